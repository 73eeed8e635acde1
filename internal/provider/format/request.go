// Package format reads the requests and answers of model providers in each
// provider format, and counts what an answer uses. It changes only the bytes
// that a limit, a fallback route or the metering needs changed.
//
// A [Request] is a view of a request body. It gives:
//
//   - the model, the tools and the messages of the request;
//   - the most that the request can use ([Request.Bound]);
//   - the body in parts, for storage by content ([Request.Split]);
//   - the body to send, with the output maximum lowered ([Request.Bytes]).
//
// A [Meter] reads an answer as it passes, in pieces of any size. It collects the
// text, the tool calls and the usage. It can hold a tool call back until the
// kernel admits the call. It can end a stream in the middle in such a way that
// the client's own library stops ([Meter.Cut]).
//
// The package promises four things:
//
//   - It refuses a body that two servers could read differently: a key that
//     occurs twice, or a known field name in another letter case.
//   - It counts everything that is not known to be free.
//   - When it cannot give a bound, it says so ([Bound]: Known is false).
//   - It passes fields on that it does not know.
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

// Format is the shape of a provider's requests and answers.
type Format string

// The formats, each with the path at which the gateway serves it.
const (
	Chat       Format = "openai.chat"        // POST /v1/chat/completions
	Responses  Format = "openai.responses"   // POST /v1/responses
	Embeddings Format = "openai.embeddings"  // POST /v1/embeddings
	Messages   Format = "anthropic.messages" // POST /v1/messages, and its count_tokens
)

// Vendor returns the provider that defined f: "openai" or "anthropic".
func (f Format) Vendor() string {
	vendor, _, _ := strings.Cut(string(f), ".")
	return vendor
}

// paths holds the path of each format below the base URL of a provider.
var paths = map[Format]string{Chat: "/chat/completions", Responses: "/responses", Embeddings: "/embeddings", Messages: "/v1/messages"}

// Path returns the path, below the base URL of a provider, to which requests of
// f are sent.
func (f Format) Path() string { return paths[f] }

// Request is a view of a request body. It keeps a reference to the body and
// never changes it.
type Request struct {
	Format    Format
	Model     string
	Stream    bool
	Silent    bool              // a Messages request asks for no output at all, which only Anthropic itself understands
	MaxOutput int64             // output tokens of one choice, as the client asked; 0: the client set no maximum
	Choices   int64             // how many answers the client asked for at once; 0 for embeddings
	Tools     []string          // names of the offered tools; a tool without a name goes by its type
	Messages  []json.RawMessage // the conversation; a separate system prompt or instructions field comes first
	Usage     bool              // the client itself asked for the usage of a Chat stream

	// Count counts tokens for the model of the request. The zero Counter gives
	// an upper bound for every vocabulary in use.
	Count tokens.Counter
	// MaxField names the Chat field for an output maximum that Kern adds.
	// If it is empty, the model name decides; see [Request.maxField].
	MaxField string
	// Mutes reports that this Messages provider reads an output maximum of 0 as:
	// say nothing, and fill the cache.
	Mutes bool
	// Free names the fields that cost nothing at this provider except the tokens
	// of their text.
	Free []string
	// Learned lowers the bound with the reported usage of earlier requests that
	// share a part with this request.
	Learned Learned

	body    []byte
	fields  []field // the members of the body
	renamed bool    // Model differs from the model in the body
}

// field is a member of the body: its name and where its key and value are.
type field struct {
	name     string
	key, val jsontext.Span
}

// maxChoices is the most answers that one request may ask for.
const maxChoices = 1024

// maxKey is the longest field name, in bytes, that is compared with the governed
// names. A longer name equals none of them.
const maxKey = 64

// governed names the fields that this package reads and the fields that have a
// price in the tariff. Parse refuses such a name in another letter case, because
// some servers would read the field anyway.
var governed = append([]string{"model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_new_tokens", "background"}, tariff.Named()...)

// Parse reads a request body of format f. For a bad body the error is an
// [*abi.Error] that says what was expected and where. Parse accepts a body that the
// provider will refuse for other reasons, because the provider explains those better.
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

// newRequest returns a Request with the members of body, a JSON object that
// begins at start.
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

// invalid returns the error for a bad body; where is a JSON pointer.
func invalid(where, format string, args ...any) *abi.Error {
	return &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf(format, args...), Where: where}
}

// unlike returns the error for a field with a wrong value. It quotes the value.
func (r *Request) unlike(name, want string) *abi.Error {
	e := invalid("/"+jsontext.Pointer(name), "%s cannot be used, expected %s", name, want)
	e.Got = jsontext.Clip(string(r.val(name)))
	return e
}

// val returns the value of a field, or nil if the field is absent or null.
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

// checkNames refuses a field whose name a server may read as another name.
func (r *Request) checkNames() *abi.Error {
	for _, f := range r.fields {
		if len(f.name) > maxKey {
			continue
		}
		// Some servers stop reading a name at a control character.
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

// readHead reads the model, the streaming fields and the number of choices.
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
		// Bytes asks for the usage itself when the client did not.
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
	// Only Chat makes several answers at once.
	r.Choices = 1
	if v := r.val("n"); v != nil && r.Format == Chat {
		if r.Choices, ok = jsontext.Whole(v); !ok || r.Choices < 1 || r.Choices > maxChoices {
			return r.unlike("n", "a whole number from 1 to "+strconv.Itoa(maxChoices))
		}
	}
	return nil
}

// maxima names the fields that bound the output in each format, the usual field
// first. Servers use several names, so [Request.Bytes] lowers every maximum in
// the body. [Request.obeys] reports which names a server is known to read.
var maxima = map[Format][]string{
	Chat:      {"max_completion_tokens", "max_tokens", "n_predict", "max_new_tokens"},
	Responses: {"max_output_tokens", "max_tokens"},
	Messages:  {"max_tokens"},
}

// maxMaximum is the largest output maximum; a larger number is read as this one.
const maxMaximum = 1 << 40

// readMaximum sets MaxOutput to the lowest output maximum in the body. Servers
// read -1 and 0 as no maximum. In Messages 0 asks for no output at all, so
// readMaximum reads it as 1, the nearest maximum that every server knows.
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
			r.Silent, n = true, 1
		}
		if n = min(n, maxMaximum); n > 0 && (r.MaxOutput == 0 || n < r.MaxOutput) {
			r.MaxOutput = n
		}
	}
	return nil
}

// maxElements is the most elements in a conversation or a list of tools. It is the
// number of messages that Anthropic accepts. It exists because Kern stores each element.
const maxElements = 100_000

// many refuses a list of more than maxElements elements.
func many(name string, v []byte) *abi.Error {
	for i := range jsontext.Elements(v) {
		if i == maxElements {
			return invalid("/"+name, "%s is longer than the %d elements that are taken", name, maxElements)
		}
	}
	return nil
}

// readConversation reads the names of the tools into Tools and the conversation
// into Messages.
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
	// Each format keeps its system prompt and its messages in other fields.
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
		if r.Format != Responses { // a Responses request may name a stored prompt instead
			return r.unlike(list, "what the model is to read")
		}
	default:
		return r.unlike(list, "a list")
	}
	return nil
}
