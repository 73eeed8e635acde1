package tariff

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
)

// Tokens that a request costs beside its texts. The numbers are above what was seen of
// the providers and of common chat templates.
const (
	PerRequest = 128 // templates of some servers begin with a system prompt of their own
	PerMessage = 8
	perObject  = 4 // a part of a message, a call, a result
	perTool    = 16
	perTools   = 1_000 // what a model is told about tools before the first, about a schema for its answer, and about citing
	perOwn     = 2_000 // for the description of a tool that the provider designed: some 1,250 for a computer, in the words of Claude 4
	perCited   = 8     // what marks a sentence that can be cited
	perWord    = 2     // of the type and the role of an object, which perObject has; what is longer counts
)

// A weigher adds up what a request's parts may take.
type weigher struct {
	r *Request
	b Bound
	n int64

	depth  int              // of the part that is read
	beside int64            // of n, what is no text of the request
	taught bool             // of tools, once
	sizes  map[string]int64 // of the tools offered, when one is referred to
}

func (w *weigher) text(s string) { w.n += int64(w.r.Count.Count(s)) }

// unknown says that there is no bound.
func (w *weigher) unknown(why string) {
	if w.b.Known {
		w.b.Known, w.b.Why = false, why
	}
}

func (w *weigher) extra(name, where, why string) { w.add(Extra{Name: name, Where: where, Why: why}) }

func (w *weigher) add(e Extra) {
	if len(w.b.Extras) < MaxExtras {
		e.Name, e.Where, e.Field = jsontext.Clip(e.Name), jsontext.Clip(e.Where), jsontext.Clip(e.Field)
		w.b.Extras = append(w.b.Extras, e)
	}
}

// field adds a member of the body at where, as the table says.
func (w *weigher) field(where string, v []byte) {
	if jsontext.Kind(v) == 'n' {
		return
	}
	name := where[1:]
	f := find(name, w.r.Format)
	if f == nil && !inner[name] || f == nil && jsontext.Kind(v) != '{' {
		if outer, _, _ := strings.Cut(name, "/"); outer == router {
			w.sold(name, where, dearer)
		}
		w.anything(where, v)
		return
	}
	if f != nil && !w.row(f, where, v) || !inner[name] {
		return
	}
	for member, val := range jsontext.Members(v) {
		w.field(where+"/"+jsontext.Pointer(string(member)), val)
	}
}

// row adds a field by its row, and reports whether it asks for something.
func (w *weigher) row(f *row, where string, v []byte) bool {
	if f.off != nil && f.off(v) {
		return false
	}
	if f.sold != "" {
		w.sold(f.as, where, f.sold)
	}
	if f.kept != "" && (f.known == nil || !f.known(w, v)) {
		w.unknown(f.kept + " is kept by the provider, and how long it is is not known here")
	}
	if f.read != nil {
		f.read(w, where, v)
	}
	return true
}

// sold names a field as an extra, if it is one at this provider.
func (w *weigher) sold(name, where, why string) {
	if field := where[1:]; !slices.Contains(w.r.Free, field) {
		w.add(Extra{cmp.Or(name, field), where, why, field})
	}
}

// anything adds a field of which it is not known how it is read: as parts of a
// message, or as it stands.
func (w *weigher) anything(_ string, v []byte) {
	before := w.n
	w.part(v)
	parts := w.n
	w.n = before
	w.raw(v)
	w.n = max(w.n, parts)
}

// content adds a field that is a part of a message.
func content(w *weigher, _ string, v []byte) { w.part(v) }

// told adds a field that makes the provider tell the model more.
func told(w *weigher, _ string, v []byte) {
	if !no(v) {
		w.n, w.beside = w.n+perTools, w.beside+perTools
	}
}

// silent notes that the model may think and not show it.
func silent(w *weigher, _ string, _ []byte) { w.b.Hidden = true }

// talk adds a conversation, or what stands before it.
func (w *weigher) talk(_ string, v []byte) {
	if w.r.Format == Embeddings {
		w.embedded(v)
		return
	}
	w.n += PerMessage
	if jsontext.Kind(v) != '[' {
		w.part(v)
	}
	for _, m := range jsontext.Elements(v) {
		w.n += PerMessage
		w.part(m)
	}
}

// embedded adds the input of embeddings: texts, or tokens by number.
func (w *weigher) embedded(v []byte) {
	switch jsontext.Kind(v) {
	case '"':
		w.n += PerMessage
		w.text(jsontext.String(v))
	case '0':
		w.n++
	case '[':
		for _, e := range jsontext.Elements(v) {
			w.embedded(e)
		}
	default:
		w.unknown("an input of embeddings is neither a text nor tokens")
	}
}

// shape adds what an answer is to look like.
func shape(w *weigher, _ string, v []byte) {
	if strings.Contains(string(v), "schema") {
		w.n += perTools
		w.beside += perTools
	}
	w.text(string(v))
}

// thinking adds how the model is to think.
func thinking(w *weigher, _ string, v []byte) {
	if jsontext.String(jsontext.Get(v, "type")) != "disabled" {
		w.b.Hidden = true
	}
	w.text(string(v))
}

// cache notes that input may be written to the provider's cache.
func (w *weigher) cache(_ string, v []byte) {
	if jsontext.Kind(v) == 'n' {
		return
	}
	w.b.Cached = true
	if ttl := jsontext.Get(v, "ttl"); jsontext.Kind(ttl) != 'n' && jsontext.String(ttl) != "5m" && jsontext.String(ttl) != "30m" {
		w.b.Hour = true
	}
}

// lasting notes that what is cached is kept for longer.
func lasting(w *weigher, _ string, _ []byte) { w.b.Cached, w.b.Hour = true, true }

// kept adds what the provider keeps under an id, where it is known.
func (w *weigher) kept(id []byte) bool {
	if w.r.Learned.Kept == nil || jsontext.Kind(id) != '"' {
		return false
	}
	n, ok := w.r.Learned.Kept(jsontext.String(id))
	if ok {
		w.n += n + PerMessage
	}
	return ok
}

func (w *weigher) tools(where string, v []byte) {
	for i, t := range jsontext.Elements(v) {
		w.tool(where+"/"+strconv.Itoa(i), t)
	}
}

// tool adds a tool. A tool that the provider runs itself is an extra.
func (w *weigher) tool(where string, t []byte) {
	if !w.taught {
		w.taught, w.n, w.beside = true, w.n+perTools, w.beside+perTools
	}
	w.n += perTool
	w.text(string(t))
	w.offer(where, t)
}

// offer looks at where a tool runs and at what it holds. Its words are counted.
func (w *weigher) offer(where string, t []byte) {
	if c := jsontext.Get(t, "cache_control"); c != nil {
		w.cache("", c)
	}
	kind := jsontext.String(jsontext.Get(t, "type"))
	own := offered(w.r.Format, kind)
	switch {
	case kind == "namespace":
		for i, inner := range jsontext.Elements(jsontext.Get(t, "tools")) {
			w.n += perTool
			w.offer(where+"/tools/"+strconv.Itoa(i), inner)
		}
	case kind == "tool_search" && jsontext.String(jsontext.Get(t, "execution")) == "client":
	case kind == "":
		if jsontext.Kind(t) != '{' || ToolName(t) == "" {
			w.extra("a tool without a type", where, "the provider may run it itself, and bill by the piece")
		}
	case own == nil:
		w.extra(kind, where, "the provider runs this tool itself: it may cost by the piece, and what it gives is billed as input")
	case own.taught:
		w.n, w.beside = w.n+perOwn, w.beside+perOwn
	}
}

// offered finds a type of tools in the table.
func offered(f Format, kind string) *offer {
	for i := range offers {
		if o := &offers[i]; (o.at == 0 || o.at&f != 0) && (!o.family && kind == o.name || o.family && day(strings.CutPrefix(kind, o.name))) {
			return o
		}
	}
	return nil
}

// day says that what follows the beginning of a name is a day.
func day(digits string, begins bool) bool {
	return begins && len(digits) == 8 && strings.Trim(digits, "0123456789") == ""
}

// again is what a tool takes that is named in the conversation: it is read
// there once more.
func (w *weigher) again(name string) int64 {
	if w.sizes == nil {
		w.sizes = make(map[string]int64)
		for _, t := range jsontext.Elements(w.r.val("tools")) {
			w.sizes[ToolName(t)] = perTool + int64(w.r.Count.Count(string(t)))
		}
	}
	return w.sizes[name]
}
