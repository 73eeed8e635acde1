package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tariff"
)

// edit replaces one span of the body by text.
type edit struct {
	jsontext.Span
	text string
}

// WithModel returns a copy of r that asks another model. Both share the body.
func (r *Request) WithModel(name string) *Request {
	c := *r
	c.renamed = c.renamed || name != r.Model
	c.Model = name
	return &c
}

// Bytes returns the body to send, with max as the most output tokens of all
// choices together. A max of 0 sets no maximum. Bytes changes only this:
//
//   - Each choice gets an equal share of max, and never more than it asked for.
//   - If the provider may ignore the maximum that the client set, Bytes adds a
//     maximum that the provider is known to read.
//   - After [Request.WithModel] the body names the new model.
//   - A Chat stream always asks for its usage. If the client did not, the [Meter]
//     of [Request.Meter] hides the usage from the client.
//
// All other bytes stay as they are. If nothing changes, Bytes returns the original
// body without a copy.
func (r *Request) Bytes(max int64) []byte {
	var edits []edit
	fresh := "" // new members to add after the last member
	if r.renamed {
		edits = append(edits, edit{r.at("model"), string(jsontext.Quote(r.Model))})
	}
	if max > 0 && r.Choices > 0 {
		each, found := max/r.Choices, false
		if each < 1 {
			each = 1 // only if max is below Bound.Least, which is at least one token for each choice
		}
		if r.MaxOutput > 0 {
			each = min(each, r.MaxOutput)
		}
		// Lower every maximum in the body, because it is not certain which one the provider reads.
		for _, name := range maxima[r.Format] {
			v := r.val(name)
			if v == nil {
				continue
			}
			found = found || r.obeys(name)
			if n, _ := jsontext.Whole(v); n > each || n <= 0 && !(n == 0 && r.Mutes) {
				edits = append(edits, edit{r.at(name), strconv.FormatInt(each, 10)})
			}
		}
		if !found {
			edits, fresh = r.put(edits, fresh, r.maxField(), strconv.FormatInt(each, 10))
		}
	}
	if r.Format == Chat && r.Stream && !r.Usage {
		edits, fresh = r.askUsage(edits, fresh)
	}
	if len(edits) == 0 && fresh == "" {
		return r.body
	}
	if fresh != "" {
		edits = append(edits, r.tail(fresh))
	}
	return apply(r.body, edits)
}

// at returns the span of a field's value, or the zero span if the field is absent.
func (r *Request) at(name string) jsontext.Span {
	for _, f := range r.fields {
		if f.name == name {
			return f.val
		}
	}
	return jsontext.Span{}
}

// put sets a field that is null or absent: by an edit, or as a new member in fresh.
func (r *Request) put(edits []edit, fresh, name, value string) ([]edit, string) {
	if s := r.at(name); s.To > 0 {
		return append(edits, edit{s, value}), fresh
	}
	return edits, fresh + "," + strconv.Quote(name) + ":" + value
}

// tail returns the edit that adds members after the last member.
func (r *Request) tail(members string) edit {
	end := r.fields[len(r.fields)-1].val.To // there is a model at least
	return edit{jsontext.Span{From: end, To: end}, members}
}

// askUsage makes a Chat stream report its usage and keeps the other stream options.
func (r *Request) askUsage(edits []edit, fresh string) ([]edit, string) {
	const name = "stream_options"
	v := r.val(name)
	if v == nil {
		return r.put(edits, fresh, name, `{"include_usage":true}`)
	}
	base := r.at(name).From
	empty := true
	for key, val := range jsontext.Spans(v) {
		empty = false
		if jsontext.String(v[key.From:key.To]) == "include_usage" {
			return append(edits, edit{jsontext.Span{From: base + val.From, To: base + val.To}, "true"}), fresh
		}
	}
	member := `"include_usage":true`
	if !empty {
		member += ","
	}
	return append(edits, edit{jsontext.Span{From: base + 1, To: base + 1}, member}), fresh
}

// maxField returns the field for an output maximum that Bytes adds. The reasoning
// models of OpenAI refuse max_tokens, but most other servers know only max_tokens.
// A server that ignores the maximum would cost money.
func (r *Request) maxField() string {
	switch {
	case r.Format != Chat:
		return maxima[r.Format][0]
	case r.MaxField != "":
		return r.MaxField
	case tariff.FromOpenAI(r.Model):
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// obeys reports whether the provider is known to read the maximum called name. Some
// servers know only max_tokens and ignore max_completion_tokens. A server that knows
// max_completion_tokens also reads max_tokens, or refuses it.
func (r *Request) obeys(name string) bool {
	field := r.maxField()
	return name == field || field == "max_completion_tokens" && name == "max_tokens"
}

// apply returns a copy of body with the edits, which must not overlap.
func apply(body []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.From - b.From })
	out := make([]byte, 0, len(body)+128)
	at := 0
	for _, e := range edits {
		out = append(out, body[at:e.From]...)
		out = append(out, e.text...)
		at = e.To
	}
	return append(out, body[at:]...)
}

// Parted reports whether [Request.Split] splits a field in format f.
func (f Format) Parted(field string) bool { return slices.Contains(parts[f], field) }

// parts names the fields that [Request.Split] splits: fields that grow with a
// conversation, and long fields that stay the same.
var parts = map[Format][]string{
	Chat:       {"messages", "tools", "functions"},
	Responses:  {"instructions", "input", "tools"},
	Embeddings: {"input"},
	Messages:   {"system", "messages", "tools"},
}

// Split splits the original body, before any change by [Request.Bytes], for storage
// as blobs. Elements that two requests share have the same bytes, so they are stored once.
//
// msgs holds the elements of the long fields in the order of the body: messages,
// tools, blocks of a system prompt. A long text instead of a list is one element.
// rest is the body with a number in place of each such field: the number of its
// elements, or -1 for a text. No body that [Parse] accepts has a number there.
// [Join] undoes Split.
func (r *Request) Split() (rest json.RawMessage, msgs []json.RawMessage) {
	var edits []edit
	for _, f := range r.fields {
		if !r.Format.Parted(f.name) {
			continue
		}
		v := r.body[f.val.From:f.val.To]
		n := 0
		switch jsontext.Kind(v) {
		case '"':
			if len(v) <= shortText {
				continue
			}
			n, msgs = -1, append(msgs, v)
		case '[':
			if r.Format == Embeddings && jsontext.Kind(v[jsontext.Blank(v, 1):]) == '0' {
				continue // a list of token numbers stays in rest
			}
			for _, e := range jsontext.Elements(v) {
				n, msgs = n+1, append(msgs, e)
			}
		default:
			continue
		}
		edits = append(edits, edit{f.val, strconv.Itoa(n)})
	}
	return apply(r.body, edits), msgs
}

// shortText is the size in bytes up to which Split leaves a text in rest.
const shortText = 256

// Join rebuilds the body that [Request.Split] split. The values and their order are
// the same. The bytes are the same too if the lists had no space between elements.
func Join(f Format, rest json.RawMessage, msgs []json.RawMessage) ([]byte, error) {
	if bad := jsontext.Check(rest, jsontext.UniqueKeys); bad != nil {
		return nil, fmt.Errorf("the rest of a request is not JSON: %w", bad)
	}
	start := jsontext.Blank(rest, 0)
	var edits []edit
	for key, val := range jsontext.Spans(rest[start:]) {
		name := jsontext.String(rest[start+key.From : start+key.To])
		v := rest[start+val.From : start+val.To]
		if jsontext.Kind(v) != '0' || !f.Parted(name) {
			continue
		}
		n, ok := jsontext.Whole(v)
		take := max(n, -n)
		if !ok || n < -1 || take > int64(len(msgs)) {
			return nil, fmt.Errorf("the rest of a request says %s for %s, and %d elements are left", jsontext.Clip(string(v)), name, len(msgs))
		}
		edits = append(edits, edit{jsontext.Span{From: start + val.From, To: start + val.To}, list(msgs[:take], n >= 0)})
		msgs = msgs[take:]
	}
	if len(msgs) > 0 {
		return nil, fmt.Errorf("%d elements are left over after joining a request", len(msgs))
	}
	return apply(rest, edits), nil
}

// list joins elements with commas, in brackets or without.
func list(msgs []json.RawMessage, brackets bool) string {
	var b strings.Builder
	for i, m := range msgs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(m)
	}
	if !brackets {
		return b.String()
	}
	return "[" + b.String() + "]"
}

// maxMark is the longest cache_control value, in bytes, that Unmarked removes.
const maxMark = 64

// Unmarked returns an element of a conversation without its cache_control marks.
// Use it to compare elements, because programs move these marks while a conversation
// grows, and no model reads them.
func Unmarked(m json.RawMessage) json.RawMessage {
	if !bytes.Contains(m, []byte("cache_control")) {
		return m
	}
	return apply(m, marks(nil, m, 0))
}

// marks adds an edit for each cache_control mark of a block and of the blocks in its
// content. base is the offset of v in the element.
func marks(edits []edit, v []byte, base int) []edit {
	switch jsontext.Kind(v) {
	case '[':
		for _, e := range jsontext.Elements(v) {
			edits = marks(edits, e, base+offset(v, e))
		}
	case '{':
		end := 0 // where the previous member ends
		for key, val := range jsontext.Spans(v) {
			switch name := jsontext.String(v[key.From:key.To]); {
			case name == "content":
				edits = marks(edits, v[val.From:val.To], base+val.From)
			case name == "cache_control" && val.To-val.From <= maxMark && end > 0:
				edits = append(edits, edit{Span: jsontext.Span{From: base + end, To: base + val.To}})
			}
			end = val.To
		}
	}
	return edits
}

// offset returns where part begins in whole; part must be a slice of whole.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }
