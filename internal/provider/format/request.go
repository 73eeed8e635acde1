// Package format reads the formats in which programs speak to model providers,
// and meters what is said, without changing a byte that no limit must change.
//
// A [Request] is a view of a body: what it asks for, what it may cost at most
// ([Request.Bound]), the tools it speaks of, its messages one by one
// ([Request.Split]), and the body to send, which differs from the one that came
// in the output maximum and in nothing else ([Request.Bytes]). A [Meter] reads
// the answer as it passes, in pieces of any size: what was said, which tools the
// model wants called, what it took; it can hold such a call back until it was
// allowed, and it can end a stream in the middle so that the caller's own
// library stops ([Meter.Cut]).
//
// It promises four things. A body with two readings is refused: no key comes
// twice, none is written in another case than the ones that are governed. Everything
// counts that is not known to be free. A bound that cannot be given is said to be
// none. Fields nobody here knows pass through.
//
// The package is pure: no network, no clock, no goroutine.
package format

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/provider/tokens"
)

// A Format is a shape of requests and answers.
type Format string

// The formats, by the paths they are served at.
const (
	Chat       Format = "openai.chat"        // POST /v1/chat/completions
	Responses  Format = "openai.responses"   // POST /v1/responses
	Embeddings Format = "openai.embeddings"  // POST /v1/embeddings
	Messages   Format = "anthropic.messages" // POST /v1/messages, and its count_tokens
)

// Vendor is the provider whose format f is: "openai" or "anthropic".
func (f Format) Vendor() string {
	vendor, _, _ := strings.Cut(string(f), ".")
	return vendor
}

// paths are where a format is at a provider, below its base URL.
var paths = map[Format]string{Chat: "/chat/completions", Responses: "/responses", Embeddings: "/embeddings", Messages: "/v1/messages"}

// Path is where requests of f are sent, below the base URL of a provider.
func (f Format) Path() string { return paths[f] }

// A Request is a body that was read. It keeps the body and does not change it.
type Request struct {
	Format    Format
	Model     string
	Stream    bool
	MaxOutput int64             // tokens of one choice, as asked; 0: none asked
	Choices   int64             // answers asked for at once; 0 for embeddings
	Tools     []string          // names of the tools offered; a hosted one is named by its type
	Messages  []json.RawMessage // the conversation; what a format keeps apart, system or instructions, first
	Usage     bool              // the client itself asked a Chat stream for its usage

	// Count counts tokens for the model that will be asked. The zero Counter
	// is an upper bound for every vocabulary in use.
	Count tokens.Counter
	// MaxField is how this provider's Chat calls the output maximum that is
	// put in where none was asked; empty: as the model's name suggests.
	MaxField string
	// Mutes says that this provider of Messages takes an output maximum of 0 to
	// mean that nothing is to be said, and fills its cache.
	Mutes bool
	// Free are fields that cost nothing at this provider beside their words.
	Free []string
	// Learned is what is known of it because a part went through before.
	Learned Learned

	body    []byte
	fields  []field // the members of the body
	renamed bool    // Model is not what the body says
}

// A field is a member of the body.
type field struct {
	name     string
	key, val jsontext.Span
}

// maxChoices is how many answers can be asked for at once.
const maxChoices = 1024

// maxKey bounds the names that are compared with the governed ones.
const maxKey = 64

// governed are the fields that are read here, and those that the tariff knows
// something of. A name in another case is refused: there are
// servers that would read it all the same.
var governed = append([]string{"model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_new_tokens", "background"}, tariff.Named()...)

// Parse reads a body. Its error is an [*abi.Error] that says what was expected
// and where. A body that the provider will refuse for other reasons passes: the
// provider says it better.
func Parse(f Format, body []byte) (*Request, error) {
	if parts[f] == nil {
		return nil, fmt.Errorf("format %q, expected one of %s, %s, %s and %s", f, Chat, Responses, Embeddings, Messages)
	}
	if !utf8.Valid(body) {
		return nil, invalid("", "the body is not all UTF-8, expected JSON")
	}
	if bad := jsontext.Check(body, jsontext.UniqueKeys); bad != nil {
		return nil, invalid(bad.Pointer, "the body is not JSON: %v", bad)
	}
	start := jsontext.Blank(body, 0)
	if jsontext.Kind(body[start:]) != '{' {
		return nil, invalid("", "the body is no object, expected one with a model")
	}
	r := newRequest(f, body, start)
	for _, step := range []func() *abi.Error{r.checkNames, r.readHead, r.readMaximum, r.readConversation} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// newRequest finds the members of a body, an object that begins at start.
func newRequest(f Format, body []byte, start int) *Request {
	r := &Request{Format: f, body: body}
	for key, val := range jsontext.Spans(body[start:]) {
		for _, s := range []*jsontext.Span{&key, &val} {
			s.From, s.To = s.From+start, s.To+start
		}
		r.fields = append(r.fields, field{jsontext.String(body[key.From:key.To]), key, val})
	}
	return r
}

// invalid is a body that is not what it should be.
func invalid(where, format string, args ...any) *abi.Error {
	return &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf(format, args...), Where: where}
}

// unlike says that a field has the wrong value.
func (r *Request) unlike(name, want string) *abi.Error {
	e := invalid("/"+jsontext.Pointer(name), "%s cannot be used, expected %s", name, want)
	e.Got = jsontext.Clip(string(r.val(name)))
	return e
}

// val is the value of a field, nil if it is absent or null.
func (r *Request) val(name string) []byte {
	for _, f := range r.fields {
		if f.name == name {
			if v := r.body[f.val.From:f.val.To]; jsontext.Kind(v) != 'n' {
				return v
			}
		}
	}
	return nil
}

func (r *Request) checkNames() *abi.Error {
	for _, f := range r.fields {
		if len(f.name) > maxKey {
			continue
		}
		if strings.ContainsFunc(f.name, func(c rune) bool { return c == utf8.RuneError || unicode.IsControl(c) }) {
			return invalid("/"+jsontext.Pointer(f.name), "a field is named %q, and there are servers that read less of it", f.name)
		}
		for _, g := range governed {
			if f.name != g && strings.EqualFold(f.name, g) {
				return invalid("/"+jsontext.Pointer(f.name), "a field is written %q, expected %q", f.name, g)
			}
		}
	}
	return nil
}

// readHead reads the plain fields.
func (r *Request) readHead() *abi.Error {
	var ok bool
	if r.Model, ok = jsontext.Text(r.val("model")); !ok || r.Model == "" {
		return r.unlike("model", "the name of a model")
	}
	switch v := r.val("stream"); jsontext.Kind(v) {
	case 't':
		r.Stream = true
	case 'f', 'n':
	default:
		return r.unlike("stream", "true or false")
	}
	switch r.Format {
	case Embeddings:
		if r.Stream {
			return r.unlike("stream", "none: embeddings are not streamed")
		}
		return nil
	case Chat:
		switch v := r.val("stream_options"); jsontext.Kind(v) {
		case '{':
			r.Usage = jsontext.Kind(jsontext.Get(v, "include_usage")) == 't'
		case 'n':
		default:
			return r.unlike("stream_options", "an object")
		}
	case Responses:
		switch v := r.val("background"); jsontext.Kind(v) {
		case 'f', 'n':
		default:
			e := r.unlike("background", "false: an answer made in the background outlives its request, and no limit could stop it")
			e.Hint = "ask with background false, and stream"
			return e
		}
	}
	r.Choices = 1
	if v := r.val("n"); v != nil && r.Format == Chat {
		if r.Choices, ok = jsontext.Whole(v); !ok || r.Choices < 1 || r.Choices > maxChoices {
			return r.unlike("n", "a whole number from 1 to "+strconv.Itoa(maxChoices))
		}
	}
	return nil
}

// maxima are the fields that bound the output, the usual one first. Servers
// know some by other names, and one that is there is lowered like the others;
// whether the server knows it is another question, see [Request.obeys].
var maxima = map[Format][]string{
	Chat:      {"max_completion_tokens", "max_tokens", "n_predict", "max_new_tokens"},
	Responses: {"max_output_tokens", "max_tokens"},
	Messages:  {"max_tokens"},
}

// maxMaximum is the most tokens that a maximum is read as.
const maxMaximum = 1 << 40

// readMaximum reads the output maximum: the least that is asked for. Servers take
// -1 and 0 for none; but 0 in Messages asks for no words at all, and where that
// is not known for one is the nearest.
func (r *Request) readMaximum() *abi.Error {
	for _, name := range maxima[r.Format] {
		v := r.val(name)
		if v == nil {
			continue
		}
		n, ok := jsontext.Whole(v)
		if !ok {
			return r.unlike(name, "a whole number of tokens")
		}
		if n == 0 && r.Format == Messages {
			n = 1
		}
		if n = min(n, maxMaximum); n > 0 && (r.MaxOutput == 0 || n < r.MaxOutput) {
			r.MaxOutput = n
		}
	}
	return nil
}

// maxElements is how many elements a conversation may have, or a list of tools:
// as many messages as Anthropic takes. Each of them is stored.
const maxElements = 100_000

// many refuses a list that is longer.
func many(name string, v []byte) *abi.Error {
	for i := range jsontext.Elements(v) {
		if i == maxElements {
			return invalid("/"+name, "%s is longer than the %d elements that are taken", name, maxElements)
		}
	}
	return nil
}

// readConversation reads the conversation and the tools.
func (r *Request) readConversation() *abi.Error {
	for _, name := range []string{"messages", "input", "system", "instructions", "tools", "functions"} {
		if err := many(name, r.val(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"tools", "functions"} {
		v := r.val(name)
		if v != nil && jsontext.Kind(v) != '[' {
			return r.unlike(name, "a list of tools")
		}
		for _, t := range jsontext.Elements(v) {
			r.Tools = append(r.Tools, tariff.ToolName(t))
		}
	}
	before, list := "", "messages"
	switch r.Format {
	case Embeddings:
		before, list = "", "input"
	case Responses:
		before, list = "instructions", "input"
	case Messages:
		before = "system"
	}
	if before != "" {
		switch v := r.val(before); jsontext.Kind(v) {
		case '"', '[':
			r.Messages = append(r.Messages, v)
		case 'n':
		default:
			return r.unlike(before, "a text or a list")
		}
	}
	switch v := r.val(list); jsontext.Kind(v) {
	case '[':
		for _, m := range jsontext.Elements(v) {
			r.Messages = append(r.Messages, m)
		}
	case '"':
		if r.Format == Chat || r.Format == Messages {
			return r.unlike(list, "a list of messages")
		}
		r.Messages = append(r.Messages, v)
	case 'n':
		if r.Format != Responses { // a stored prompt may stand for it
			return r.unlike(list, "what the model is to read")
		}
	default:
		return r.unlike(list, "a list")
	}
	return nil
}
