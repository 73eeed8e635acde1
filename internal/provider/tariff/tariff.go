// Package tariff says what a request to a model may be billed for: it is a list
// of what providers sell.
//
// The list is four tables in table.go: the fields of a body, the parts of a
// message, the tools that are offered, and what a picture takes. A new thing that a
// provider sells is a row there. [Of] goes through a request by them and gives a
// [Bound].
//
// Everything counts that is not known to be free. Anything that is paid for by
// another measure than tokens of this model is named, so that a limit can refuse it. A
// bound that cannot be given is said to be none.
package tariff

import (
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// A Format is a format of requests, or several of them.
type Format uint8

// The formats. Each is one bit.
const (
	Chat Format = 1 << iota
	Responses
	Embeddings
	Messages
)

// A Request is what is asked, as far as a bill depends on it.
type Request struct {
	Format    Format // one of them
	Model     string
	Choices   int64 // answers at once; for embeddings 0
	MaxOutput int64 // tokens of one answer, as asked; 0: none asked
	Count     tokens.Counter
	Learned   Learned
	Fields    []Field  // the members of the body
	Free      []string // of them, and of theirs, that cost nothing at this provider beside their words: "a", "a/b"
}

// A Field is a member of a body.
type Field struct {
	Name string
	Val  []byte
}

// val is the value of a field, nil if it is absent or null.
func (r *Request) val(name string) []byte {
	for _, f := range r.Fields {
		if f.Name == name && jsontext.Kind(f.Val) != 'n' {
			return f.Val
		}
	}
	return nil
}

// A Bound is what a request may take at most.
type Bound struct {
	// Known says that Input bounds the input tokens. Where it is false, Why
	// says what cannot be bounded, and the model's whole window must be
	// reserved.
	Known bool
	Why   string
	Input int64
	Text  int64 // of the input, whatever is known of it: what is no picture, nor told by the provider

	Choices int64 // answers at once; for embeddings 0, and no output at all
	Output  int64 // output tokens of all choices together as asked; 0: none asked
	Least   int64 // of all choices together; with fewer the provider refuses the request

	// Cached: input may be billed as a write to a cache, which can cost more
	// than input; OpenAI writes unasked. Hour: as one that is kept for an hour,
	// or for twelve, at twice the price.
	Cached, Hour bool
	// Elsewhere: the provider fetches a part of it from an address, where the next
	// request may find another.
	Elsewhere bool
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
	Field string // in [Request.Free] it is none; empty: it always is one
}

// MaxExtras is how many are named: a request may have millions of them.
const MaxExtras = 100

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

// Learned is what is known of a request because a part of it went through
// before. The zero value is nothing.
type Learned struct {
	Sent   int   // so many elements of the conversation were sent before, in a request that was else the same,
	Tokens int64 // which took so many tokens of input
	// Kept says what something takes that the provider keeps, an item or an
	// answer with all before it, by its id.
	Kept func(id string) (tokens int64, ok bool)
}

// Of says what r may take at most. It counts all that could be read by the
// model: what is not known to be free counts.
func Of(r *Request) Bound {
	w := weigher{r: r, b: Bound{Known: true, Choices: r.Choices, Output: r.Choices * r.MaxOutput, Least: r.least(), Cached: r.Format != Messages}}
	if !r.Count.Exact() {
		w.n += PerRequest
	}
	for _, m := range searching {
		if strings.Contains(r.Model, m.part) {
			w.extra(r.Model, "/model", m.why)
		}
	}
	for _, f := range r.Fields {
		w.field("/"+jsontext.Pointer(f.Name), f.Val)
	}
	w.b.Input, w.b.Text = w.n, w.n-w.beside
	w.learned()
	quiet := r.Format == Messages && jsontext.String(jsontext.Get(r.val("thinking"), "type")) == "disabled"
	w.b.Hidden = w.b.Hidden || r.Format != Embeddings && !quiet && catalog.ThinksSilently(r.Model)
	return w.b
}

// Steady says that the provider reads what it is sent and nothing that changes
// between two requests: it leaves nothing out that a longer one might bring
// back, and puts in nothing that grows elsewhere.
func (r *Request) Steady() bool {
	for _, f := range r.Fields {
		name := jsontext.Pointer(f.Name)
		switch row := find(name, r.Format); {
		case jsontext.Kind(f.Val) == 'n':
		case row == nil && !inner[name], row != nil && row.moves != nil && row.moves(f.Val):
			return false
		}
	}
	return true
}

// maxBudget is the most tokens that a budget for thoughts is read as.
const maxBudget = 1 << 40

// least is the fewest tokens that the provider takes as a maximum: more than
// the model is to think with.
func (r *Request) least() int64 {
	least := r.Choices
	if r.Format == Responses {
		least = 16
	}
	budget := jsontext.Get(r.val("reasoning"), "max_tokens")
	if t := r.val("thinking"); r.Format == Messages && jsontext.String(jsontext.Get(t, "type")) == "enabled" {
		budget = jsontext.Get(t, "budget_tokens")
	}
	if n, ok := jsontext.Whole(budget); ok && n > 0 && n < maxBudget && (r.MaxOutput == 0 || n < r.MaxOutput) {
		least = max(least, (n+1)*r.Choices)
	}
	return least
}

// learned lowers the bound to what the beginning took and what the rest may
// take: what stands behind makes nothing before it longer.
func (w *weigher) learned() {
	l := &w.r.Learned
	name := "messages"
	if w.r.Format == Responses {
		name = "input"
	}
	v := w.r.val(name)
	if l.Sent == 0 || jsontext.Kind(v) != '[' {
		return
	}
	rest := weigher{r: w.r, b: Bound{Known: true}, n: PerMessage}
	for i, m := range jsontext.Elements(v) {
		if i >= l.Sent {
			rest.n += PerMessage
			rest.part(m)
		}
	}
	if n := l.Tokens + rest.n; rest.b.Known && (!w.b.Known || n < w.b.Input) {
		w.b.Known, w.b.Why, w.b.Input = true, "", n
	}
}

// Item is what an item of a conversation takes as a part of r; ok is false
// where that is not known.
func Item(r *Request, item []byte) (tokens int64, ok bool) {
	w := weigher{r: r, b: Bound{Known: true}, n: PerMessage}
	w.part(item)
	return w.n, w.b.Known
}

// ToolName finds the name that a call of a tool has.
func ToolName(t []byte) string {
	if jsontext.Kind(t) == '"' {
		return jsontext.String(t)
	}
	var name, kind string
	for k, v := range jsontext.Members(t) {
		switch string(k) {
		case "name":
			name = jsontext.String(v)
		case "type":
			kind = jsontext.String(v)
		case "function", "custom":
			if n := jsontext.String(jsontext.Get(v, "name")); n != "" {
				name = n
			}
		}
	}
	if name == "" {
		return kind
	}
	return name
}
