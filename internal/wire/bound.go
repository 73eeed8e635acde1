package wire

import (
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/wire/lex"
	"github.com/kern-run/kern/model"
)

// A Bound is what a request may take at most.
type Bound struct {
	// Known says that Input bounds the input tokens. Where it is false, Why
	// says what cannot be bounded, and the model's whole window must be
	// reserved.
	Known bool
	Why   string
	Input int64

	Choices int64 // answers at once; for embeddings 0, and no output at all
	Output  int64 // output tokens of all choices together as asked; 0: none asked
	Least   int64 // of all choices together; with fewer the provider refuses the request

	// Cached: input may be billed as a write to a cache, which can cost more
	// than input; Hour: as one that is kept for an hour, at twice the price.
	Cached, Hour bool
	// Hidden: the model may think without showing it. When such an answer is
	// cut before its usage came, what was shown is no bound of what is billed.
	Hidden bool
	// Extras are paid for by other measures than tokens of this model, or at
	// other prices, or without a bound. A limit on money or tokens must refuse
	// them unless they are priced.
	Extras []Extra
}

// An Extra is one such thing.
type Extra struct {
	Name  string // "web_search"
	Where string // JSON pointer
	Why   string
}

// Cost is the most that the input can cost.
func (b Bound) Cost(p model.Price) int64 { return b.CostOf(b.Input, p) }

// CostOf is the most that input tokens can cost, for a caller that reserves
// another number of them, such as the window.
func (b Bound) CostOf(input int64, p model.Price) int64 {
	most := max(p.Input, p.CacheRead)
	if b.Cached {
		most = max(most, p.CacheWrite)
	}
	if b.Hour {
		most = max(most, 2*p.Input)
	}
	return model.Price{Input: most}.Cost(model.Usage{Input: input})
}

// What a request costs beside its texts. The numbers are above what was seen of
// the providers and of common chat templates.
const (
	perRequest = 128 // templates of some servers begin with a system prompt of their own
	perMessage = 8
	perObject  = 4 // a part of a message, a call, a result
	perTool    = 16
	perTools   = 600 // what a model is told about tools before the first, and about a schema for its answer
)

// Bound says what r may take at most. It counts all that could be read by the
// model: what is not known to be free counts.
func (r *Request) Bound() Bound {
	w := weigher{r: r, b: Bound{Known: true, Choices: r.Choices, Output: r.Choices * r.MaxOutput, Least: r.Choices}}
	if !r.Count.Exact() {
		w.n += perRequest
	}
	for _, f := range r.fields {
		w.field(f.name, r.body[f.val.From:f.val.To])
	}
	w.b.Input = w.n
	w.b.Hidden = w.b.Hidden || r.Face != Embeddings && r.Face != Messages && thinks(r.Model)
	if r.Face == Responses {
		w.b.Least = 16
	}
	if t := r.val("thinking"); r.Face == Messages && lex.String(lex.Get(t, "type")) == "enabled" {
		if n, ok := lex.Whole(lex.Get(t, "budget_tokens")); ok && n > 0 && (r.MaxOutput == 0 || n < r.MaxOutput) {
			w.b.Least = n + 1
		}
	}
	return w.b
}

// thinks tells by the name whether a model thinks unasked and in silence.
func thinks(name string) bool {
	return ofOpenAI(name) && !strings.HasPrefix(name, "gpt-3") && !strings.HasPrefix(name, "gpt-4") && !strings.HasPrefix(name, "chatgpt-")
}

// A weigher adds up what a request's parts may take.
type weigher struct {
	r *Request
	b Bound
	n int64
}

func (w *weigher) text(s string) { w.n += int64(w.r.Count.Count(s)) }

// unknown says that there is no bound.
func (w *weigher) unknown(why string) {
	if w.b.Known {
		w.b.Known, w.b.Why = false, why
	}
}

func (w *weigher) extra(name, where, why string) {
	w.b.Extras = append(w.b.Extras, Extra{name, where, why})
}

// free are fields that no model reads.
var free = map[string]bool{
	"model": true, "stream": true, "stream_options": true, "n": true, "max_tokens": true, "max_completion_tokens": true, "max_output_tokens": true,
	"temperature": true, "top_p": true, "top_k": true, "min_p": true, "frequency_penalty": true, "presence_penalty": true, "seed": true, "stop": true,
	"stop_sequences": true, "logprobs": true, "top_logprobs": true, "logit_bias": true, "user": true, "metadata": true, "store": true,
	"parallel_tool_calls": true, "include": true, "truncation": true, "background": true, "prompt_cache_key": true, "prompt_cache_retention": true,
	"safety_identifier": true, "verbosity": true, "encoding_format": true, "dimensions": true, "reasoning_effort": true, "max_tool_calls": true,
}

// field adds a member of the body.
func (w *weigher) field(name string, v []byte) {
	where := "/" + lex.Pointer(name)
	switch {
	case lex.Kind(v) == 'n':
	case w.other(name, where, v):
	case free[name]:
	default:
		w.read(name, where, v)
	}
}

// read adds a field that the model may read.
func (w *weigher) read(name, where string, v []byte) {
	switch name {
	case "messages", "input", "system", "instructions":
		if w.r.Face == Embeddings {
			w.embedded(v)
			return
		}
		w.n += perMessage
		for _, m := range lex.Elements(v) {
			w.n += perMessage
			w.part(m)
		}
		if lex.Kind(v) == '"' {
			w.text(lex.String(v))
		}
	case "tools", "functions":
		for i, t := range lex.Elements(v) {
			w.tool(where+"/"+strconv.Itoa(i), t)
		}
		w.n += perTools
	case "response_format", "text", "output_format", "output_config":
		if strings.Contains(string(v), "schema") {
			w.n += perTools
		}
		w.text(string(v))
	case "reasoning", "thinking":
		if t := lex.String(lex.Get(v, "type")); t != "disabled" {
			w.b.Hidden = true
		}
		w.text(string(v))
	case "cache_control":
		w.cache(v)
	default:
		w.part(v)
	}
}

// other names what is paid for by another measure, and what is kept elsewhere.
func (w *weigher) other(name, where string, v []byte) bool {
	const kept = " is kept by the provider, and how long it is is not known here"
	switch name {
	case "previous_response_id", "conversation", "prompt":
		if w.r.Face != Responses {
			return false
		}
		w.unknown(name + kept)
	case "prediction":
		w.extra(name, where, "a prediction that does not come true is billed as output")
		w.part(v)
	case "web_search_options", "plugins":
		w.extra(name, where, "searches are billed by the piece, and what they find as input")
	case "mcp_servers", "container":
		w.extra(name, where, "the provider calls tools itself, and bills what they give as input")
	case "models":
		w.extra(name, where, "another model may answer, at another price")
	case "audio", "modalities":
		if name == "modalities" && !strings.Contains(string(v), "audio") && !strings.Contains(string(v), "image") {
			return true
		}
		w.extra("audio", where, "sound and images have prices of their own")
	case "service_tier":
		if t := lex.String(v); t == "auto" || t == "default" || t == "standard_only" || t == "flex" {
			return true
		}
		w.extra(name, where, "this tier has a price of its own")
	case "speed", "inference_geo":
		if t := lex.String(v); t == "standard" || t == "global" {
			return true
		}
		w.extra(name, where, "this has a price of its own")
	default:
		return false
	}
	return true
}

// embedded adds the input of embeddings: texts, or tokens by number.
func (w *weigher) embedded(v []byte) {
	switch lex.Kind(v) {
	case '"':
		w.n += perMessage
		w.text(lex.String(v))
	case '0':
		w.n++
	case '[':
		for _, e := range lex.Elements(v) {
			w.embedded(e)
		}
	default:
		w.unknown("an input of embeddings is neither a text nor tokens")
	}
}

// tool adds a tool. One that the provider runs itself is an extra.
func (w *weigher) tool(where string, t []byte) {
	w.n += perTool
	w.text(string(t))
	if c := lex.Get(t, "cache_control"); c != nil {
		w.cache(c)
	}
	if kind := lex.String(lex.Get(t, "type")); !ownTool(w.r.Face, kind) {
		w.extra(kind, where, "the provider runs this tool itself: it may cost by the piece, and what it gives is billed as input")
	}
}

// ownTool says whether tools of a type are run by the client, and so cost
// nothing but their words. A type that is not known here is not.
func ownTool(f Face, kind string) bool {
	switch kind {
	case "", "function", "custom":
		return true
	case "local_shell", "apply_patch", "computer", "computer_use_preview":
		return f == Responses
	}
	if f == Messages {
		for _, p := range []string{"bash_", "text_editor_", "computer_", "memory_"} {
			if strings.HasPrefix(kind, p) {
				return true
			}
		}
	}
	return false
}

// cache notes that input may be written to the provider's cache.
func (w *weigher) cache(v []byte) {
	if lex.Kind(v) == 'n' {
		return
	}
	w.b.Cached = true
	if ttl := lex.String(lex.Get(v, "ttl")); ttl != "" && ttl != "5m" {
		w.b.Hour = true
	}
}

// part adds what stands within a message, whatever it is.
func (w *weigher) part(v []byte) {
	switch lex.Kind(v) {
	case '"':
		w.text(lex.String(v))
	case '[':
		for _, e := range lex.Elements(v) {
			w.part(e)
		}
	case '{':
		w.object(v)
	default:
		w.n += int64(len(v))
	}
}

// object adds an object of a message by its type. Pictures are bounded by what
// their model takes at most; files and sound cannot be.
func (w *weigher) object(v []byte) {
	w.n += perObject
	kind := lex.String(lex.Get(v, "type"))
	switch kind {
	case "image_url", "input_image", "image", "computer_screenshot":
		w.n += w.r.image()
		if c := lex.Get(v, "cache_control"); c != nil {
			w.cache(c)
		}
		return
	case "input_audio", "audio":
		w.extra("audio", "", "sound has a price of its own")
		w.unknown("how many tokens sound is, is not known here")
		return
	case "document":
		if src := lex.Get(v, "source"); lex.Kind(lex.Get(v, "file_id")) == '"' || lex.String(lex.Get(src, "type")) != "text" && lex.String(lex.Get(src, "type")) != "content" {
			w.unknown("how many tokens a document is, is not known here")
			w.pass(v, "source")
			return
		}
	case "file", "input_file", "video_url", "input_video", "video", "container_upload":
		w.unknown("how many tokens a " + kind + " is, is not known here")
		return
	case "item_reference", "compaction":
		w.unknown("an item is kept by the provider, and how long it is is not known here")
	}
	w.pass(v, "")
}

// pass adds the members of an object but one.
func (w *weigher) pass(v []byte, but string) {
	for k, val := range lex.Members(v) {
		switch string(k) {
		case but:
		case "type", "role":
		case "cache_control":
			w.cache(val)
		case "encrypted_content", "signature":
			w.n += int64(len(val)*3/4) + 1 // base64 of at least a byte for each token
		case "content", "text", "name", "arguments", "id", "call_id", "tool_call_id", "tool_use_id", "function", "input", "output", "tool_calls", "source":
			w.part(val)
		default:
			w.text(string(k))
			w.part(val)
		}
	}
}

// image is the most tokens that one picture takes, whatever its size: models
// shrink what is larger than they see.
func (r *Request) image() int64 {
	const anybody = 50_000
	name := r.Model
	switch {
	case r.Face == Messages && strings.HasPrefix(name, "claude-"):
		return 5_000 // some 1,600, and 4,784 of the models that see more
	case strings.HasPrefix(name, "gpt-4o-mini"):
		return 48_200 // 2,833 and 5,667 for each of up to 8 tiles
	case strings.HasPrefix(name, "gpt-4.1-mini"), strings.HasPrefix(name, "gpt-4.1-nano"), strings.HasPrefix(name, "gpt-5-mini"),
		strings.HasPrefix(name, "gpt-5-nano"), strings.HasPrefix(name, "o4-mini"):
		return 4_000 // 1,536 patches at up to 2.46
	case strings.HasPrefix(name, "gpt-4o"), strings.HasPrefix(name, "gpt-4.1"), strings.HasPrefix(name, "gpt-4-turbo"),
		strings.HasPrefix(name, "o1"), strings.HasPrefix(name, "o3"), name == "gpt-5", strings.HasPrefix(name, "gpt-5-2"), strings.HasPrefix(name, "gpt-5.1"):
		return 1_500 // 85 and 170 for each of up to 8 tiles
	}
	return anybody
}
