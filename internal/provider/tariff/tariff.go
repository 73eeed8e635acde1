// Package tariff lists everything in a model request that a provider may bill, and
// computes the most that a request can use.
//
// The tariff is four tables: the fields of a body, the parts of a message and the
// offered tools in table.go, and the tokens of a picture in picture.go. When a
// provider sells a new thing, add a row there. [Of] applies the tables to a request and returns a
// [Bound].
//
// The package counts everything that is not known to be free. It names everything
// that is not paid in tokens of this model as an [Extra], so that a limit can
// refuse it. When it cannot give a bound, it says so.
package tariff

import (
	"slices"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// Format is a set of provider formats; most values hold a single format.
type Format uint8

// The formats. Each is one bit.
const (
	Chat Format = 1 << iota
	Responses
	Embeddings
	Messages
)

// Request holds the parts of a request that can change its bill.
type Request struct {
	Format    Format // a single format
	Model     string
	Choices   int64 // how many answers the client asked for at once; 0 for embeddings
	MaxOutput int64 // output tokens of one answer, as the client asked; 0: the client set no maximum
	Count     tokens.Counter
	Learned   Learned
	Fields    []Field  // the members of the body
	Free      []string // fields "a" and members "a/b" that cost nothing at this provider except the tokens of their text
}

// Field is a member of a request body.
type Field struct {
	Name string
	Val  []byte
}

// val returns the value of a field, or nil if the field is absent or null.
func (r *Request) val(name string) []byte {
	for _, f := range r.Fields {
		if f.Name == name && jsontext.Kind(f.Val) != 'n' {
			return f.Val
		}
	}
	return nil
}

// Bound is the most that a request can use.
type Bound struct {
	// Known means that Input bounds the input tokens. If Known is false, Why says
	// which part has no bound, and the caller must reserve the whole window of the
	// model.
	Known bool
	Why   string
	Input int64
	Text  int64 // the input tokens of the request's own text, without pictures and the provider's own words; set even if Known is false

	Choices int64 // how many answers the client asked for at once; 0 for embeddings, which have no output
	Output  int64 // output tokens of all choices together, as the client asked; 0: the client set no maximum
	Least   int64 // the lowest maximum, for all choices together, that the provider accepts

	// Cached means that the provider may bill input as a cache write, which can cost
	// more than input. OpenAI writes to its cache unasked. Hour means that the cache
	// may keep it for an hour or twelve, at twice the price.
	Cached, Hour bool
	// Elsewhere means that the provider fetches a part of the request from an address.
	// The next request may find other content at that address.
	Elsewhere bool
	// Hidden means that the model may think without showing it. If such an answer is
	// cut before its usage arrives, the shown text does not bound the bill.
	Hidden bool
	// Extras are things not paid in tokens of this model, or sold at another price, or
	// without a bound. A limit on money or tokens must refuse them unless they have a
	// price.
	Extras []Extra
	// Steady means that the same content uses the same input in the next request; see
	// [Request.Steady].
	Steady bool
}

// Extra is one thing that the tokens of the model do not pay for; see [Bound].
type Extra struct {
	Name  string // for example "web_search"
	Where string // JSON pointer to it in the body
	Why   string
	Field string // the name that makes it free if it is in [Request.Free]; empty: it is never free
}

// MaxExtras is how many extras a Bound names, because a request may have millions.
const MaxExtras = 100

// Cost returns the most that the input can cost.
func (b Bound) Cost(p model.Price) int64 { return b.CostOf(b.Input, p) }

// CostOf returns the most that input tokens can cost. It is for a caller that
// reserves another number of tokens than b.Input, such as the window.
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

// Learned holds facts from earlier requests that lower the bound of a request. The
// zero value holds no facts.
type Learned struct {
	Sent   int   // how many elements of this conversation an earlier request sent that was otherwise the same
	Tokens int64 // the input tokens of that earlier request
	// Fresh is set instead of Sent if the earlier request was another one that shares
	// parts with this one. It says of each element of a list, or of a whole field,
	// that the earlier request did not have it. A field without an entry costs nothing.
	Fresh map[string][]bool
	// Kept returns the tokens of an item or an answer that the provider stores under
	// id. An answer includes everything before it.
	Kept func(id string) (tokens int64, ok bool)
}

// has reports whether the earlier request had a part of this one.
func (l *Learned) has(field string, at int) bool {
	if l.Fresh == nil {
		return at < l.Sent || field != "messages" && field != "input"
	}
	f := l.Fresh[field]
	return at >= len(f) || !f[at]
}

// Of returns the most that r can use. It counts everything that the model may read,
// except what is known to be free.
func Of(r *Request) Bound {
	w := weigher{r: r, b: Bound{Known: true, Choices: r.Choices, Output: r.Choices * r.MaxOutput, Least: r.least(), Cached: r.Format != Messages}}
	// PerRequest covers server templates, which matter only if the vocabulary is unknown.
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
	w.b.Input, w.b.Text, w.b.Steady = w.n, w.n-w.beside, r.Steady()
	w.learned()
	quiet := r.Format == Messages && jsontext.String(jsontext.Get(r.val("thinking"), "type")) == "disabled"
	w.b.Hidden = w.b.Hidden || r.Format != Embeddings && !quiet && ThinksSilently(r.Model)
	return w.b
}

// Steady reports whether the provider reads only what r contains, in every request
// alike. A provider that drops parts of a long conversation is not steady. A
// provider that adds content which grows elsewhere is not steady either.
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

// Unread reports whether a field changes nothing that the model reads, so that two
// requests which differ only there use the same input.
func Unread(at Format, name string) bool {
	f := find(jsontext.Pointer(name), at)
	return f != nil && f.sold == "" && f.kept == "" && f.read == nil && f.moves == nil
}

// maxBudget bounds a budget for thoughts; least ignores a budget that is not lower.
const maxBudget = 1 << 40

// least returns the lowest output maximum that the provider accepts. The maximum
// must be larger than the budget for thoughts.
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

// learned lowers the bound to the reported tokens of an earlier request, plus the
// bound of the parts that it did not have. New parts do not lengthen the others.
func (w *weigher) learned() {
	l := &w.r.Learned
	if l.Sent == 0 && l.Fresh == nil {
		return
	}
	rest := weigher{r: w.r, b: Bound{Known: true}, n: PerMessage}
	for _, f := range w.r.Fields {
		if jsontext.Kind(f.Val) != '[' || !parted(f.Name) {
			if !l.has(f.Name, 0) {
				rest.field("/"+jsontext.Pointer(f.Name), f.Val)
			}
			continue
		}
		for i, e := range jsontext.Elements(f.Val) {
			switch {
			case l.has(f.Name, i):
			case f.Name == "tools" || f.Name == "functions":
				rest.tool("", e)
			default:
				rest.n += PerMessage
				rest.part(e)
			}
		}
	}
	if n := l.Tokens + rest.n; rest.b.Known && (!w.b.Known || n < w.b.Input) {
		w.b.Known, w.b.Why, w.b.Input = true, "", n
	}
}

// parted reports whether [Learned] tells the elements of a field apart.
func parted(field string) bool {
	return slices.Contains([]string{"messages", "input", "system", "instructions", "tools", "functions"}, field)
}

// Item returns the most tokens that an item of a conversation uses as a part of r. ok
// is false if the item has no bound.
func Item(r *Request, item []byte) (tokens int64, ok bool) {
	w := weigher{r: r, b: Bound{Known: true}, n: PerMessage}
	w.part(item)
	return w.n, w.b.Known
}

// ToolName returns the name that calls of an offered tool have: its name, or its type
// if it has no name.
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
