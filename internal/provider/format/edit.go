package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/catalog"
)

// An edit puts text in the place of a part of the body.
type edit struct {
	jsontext.Span
	text string
}

// WithModel is r asked of another model. The body is shared.
func (r *Request) WithModel(name string) *Request {
	c := *r
	c.renamed = c.renamed || name != r.Model
	c.Model = name
	return &c
}

// Bytes is the body to send so that all choices together give at most max
// output tokens: each gets an equal share, and never more than it asked for. A
// max of 0 sets no maximum. Where what was asked may not be read by the
// provider the maximum is set beside it. A Chat stream asks for its usage, also where the
// client did not; the [Meter] of [Request.Meter] keeps that from the client. All
// else is the body that came, byte for byte; so is all of it where nothing must
// change.
func (r *Request) Bytes(max int64) []byte {
	var edits []edit
	fresh := "" // members to put before the last brace
	if r.renamed {
		edits = append(edits, edit{r.at("model"), string(jsontext.Quote(r.Model))})
	}
	if max > 0 && r.Choices > 0 {
		each, found := max/r.Choices, false
		if each < 1 {
			each = 1 // what Bound calls the least is never below the number of choices
		}
		if r.MaxOutput > 0 {
			each = min(each, r.MaxOutput)
		}
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

// at is where the value of a field stands.
func (r *Request) at(name string) jsontext.Span {
	for _, f := range r.fields {
		if f.name == name {
			return f.val
		}
	}
	return jsontext.Span{}
}

// put sets a field that is null or absent.
func (r *Request) put(edits []edit, fresh, name, value string) ([]edit, string) {
	if s := r.at(name); s.To > 0 {
		return append(edits, edit{s, value}), fresh
	}
	return edits, fresh + "," + strconv.Quote(name) + ":" + value
}

// tail puts members behind the last one.
func (r *Request) tail(members string) edit {
	end := r.fields[len(r.fields)-1].val.To // there is a model at least
	return edit{jsontext.Span{From: end, To: end}, members}
}

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

// maxField is the name of the output maximum where none was asked. The models
// of OpenAI that reason refuse max_tokens; other servers mostly know nothing
// else, and one that ignores a maximum costs money.
func (r *Request) maxField() string {
	switch {
	case r.Format != Chat:
		return maxima[r.Format][0]
	case r.MaxField != "":
		return r.MaxField
	case catalog.FromOpenAI(r.Model):
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// obeys says that the provider is known to read a maximum by this name. There
// are servers that know max_tokens alone, and let the other name pass unread;
// a server that knows the newer name reads the older one too, or refuses it.
func (r *Request) obeys(name string) bool {
	field := r.maxField()
	return name == field || field == "max_completion_tokens" && name == "max_tokens"
}

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

// Parted says whether [Request.Split] takes a field of the format apart.
func (f Format) Parted(field string) bool { return slices.Contains(parts[f], field) }

// parts are the fields that [Request.Split] takes apart: those that grow with a
// conversation, and those that are long and stay.
var parts = map[Format][]string{
	Chat:       {"messages", "tools", "functions"},
	Responses:  {"instructions", "input", "tools"},
	Embeddings: {"input"},
	Messages:   {"system", "messages", "tools"},
}

// Split takes the body apart, to be stored by content: what is the same in two
// requests is the same bytes. msgs are the elements of the long fields in the
// order of the body: messages, tools, blocks of a system prompt; a long text in
// place of a list is one element. In rest each such field is a number: how many
// elements it has, or -1 for the text. No body that [Parse] reads has a number
// there. It is the body that came, without what a limit changed.
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
				continue // a text as the numbers of its tokens
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

// shortText is the size up to which a text stays where it is.
const shortText = 256

// Join puts together what [Request.Split] took apart: the same values in the
// same order, and the same bytes where the lists had no space between their
// elements.
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

// maxMark is the longest mark for a cache that is taken for one.
const maxMark = 64

// Unmarked is an element of a conversation without its marks for the provider's
// cache: programs move them along while a conversation grows, and no model
// reads them.
func Unmarked(m json.RawMessage) json.RawMessage {
	if !bytes.Contains(m, []byte("cache_control")) {
		return m
	}
	return apply(m, marks(nil, m, 0))
}

// marks finds the marks of a block, and of those that are its content.
func marks(edits []edit, v []byte, base int) []edit {
	switch jsontext.Kind(v) {
	case '[':
		for _, e := range jsontext.Elements(v) {
			edits = marks(edits, e, base+offset(v, e))
		}
	case '{':
		end := 0 // of the member before
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

// offset is where part begins, a slice of whole.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }
