package tariff

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
)

// Tokens that a request costs in addition to its texts. The numbers are higher than
// those seen at providers and in common chat templates.
const (
	PerRequest = 128 // the templates of some servers begin with a system prompt
	PerMessage = 8
	perObject  = 4 // for a part of a message, a call or a result
	perTool    = 16
	perTools   = 1_000 // for the provider's instructions about tools, about an answer schema, or about citing
	perOwn     = 2_000 // for the provider's description of a tool it designed: about 1,250 for a computer at Claude 4
	perCited   = 8     // for the mark of a sentence that can be cited
	perWord    = 2     // the share of perObject for a type or a role; only tokens beyond it count
)

// weigher adds up the tokens that the parts of a request may use.
type weigher struct {
	r *Request
	b Bound
	n int64

	depth    int   // the nesting level of the current part
	beside   int64 // the part of n that is not text of the request
	objects  int64 // parts for which n has perObject
	pictures int64 // the tokens of pictures, without perPicture

	taught bool             // perTools for the offered tools is counted
	sizes  map[string]int64 // tokens of each offered tool by name; filled by again
}

// text adds the tokens of s.
func (w *weigher) text(s string) { w.n += int64(w.r.Count.Count(s)) }

// unknown records that the request has no bound. The first reason stays.
func (w *weigher) unknown(why string) {
	if w.b.Known {
		w.b.Known, w.b.Why = false, why
	}
}

// extra adds an extra that is never free.
func (w *weigher) extra(name, where, why string) { w.add(Extra{Name: name, Where: where, Why: why}) }

// add adds an extra, up to MaxExtras, with shortened texts.
func (w *weigher) add(e Extra) {
	if len(w.b.Extras) < MaxExtras {
		e.Name, e.Where, e.Field = jsontext.Clip(e.Name), jsontext.Clip(e.Where), jsontext.Clip(e.Field)
		w.b.Extras = append(w.b.Extras, e)
	}
}

// field adds a field of the body by its row in the table. where is the JSON pointer
// of the field. A field without a row counts as text that the model may read.
func (w *weigher) field(where string, v []byte) {
	if jsontext.Kind(v) == 'n' {
		return
	}
	name := where[1:]
	f := find(name, w.r.Format)
	if f == nil && !inner[name] || f == nil && jsontext.Kind(v) != '{' {
		// An unknown wish about hosts may lead to a more expensive host. Any other
		// unknown field may switch on a service that is billed by the piece.
		if outer, _, _ := strings.Cut(name, "/"); outer == router {
			w.sold(name, where, dearer)
		} else if switchesOn(v) {
			w.sold(name, where, unheard)
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

// switchesOn reports whether the value of an unknown field can switch a service on. A
// number only tunes one, and false or an empty value asks for nothing.
func switchesOn(v []byte) bool {
	switch jsontext.Kind(v) {
	case '"':
		return jsontext.String(v) != ""
	case '{':
		for range jsontext.Members(v) {
			return true
		}
	case '[':
		for range jsontext.Elements(v) {
			return true
		}
	case 't':
		return true
	}
	return false
}

// row adds a field by its row. It reports false if the value asks for nothing.
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

// sold adds a field as an extra unless the field is free at this provider.
func (w *weigher) sold(name, where, why string) {
	if field := where[1:]; !slices.Contains(w.r.Free, field) {
		w.add(Extra{cmp.Or(name, field), where, why, field})
	}
}

// anything adds a field that the model may read as message parts or as raw text. It
// adds the larger of the two counts.
func (w *weigher) anything(_ string, v []byte) {
	before := w.n
	w.part(v)
	parts := w.n
	w.n = before
	w.raw(v)
	w.n = max(w.n, parts)
}

// content adds a field that the model reads like a part of a message.
func content(w *weigher, _ string, v []byte) { w.part(v) }

// told adds a field that makes the provider add instructions for the model.
func told(w *weigher, _ string, v []byte) {
	if !no(v) {
		w.n, w.beside = w.n+perTools, w.beside+perTools
	}
}

// silent records that the model may think without showing it.
func silent(w *weigher, _ string, _ []byte) { w.b.Hidden = true }

// talk adds a conversation, a system prompt or the input of embeddings.
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

// embedded adds the input of embeddings: texts or token numbers.
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

// shape adds a field that prescribes the form of the answer.
func shape(w *weigher, _ string, v []byte) {
	if strings.Contains(string(v), "schema") {
		w.n += perTools
		w.beside += perTools
	}
	w.text(string(v))
}

// thinking adds a field that controls how the model thinks.
func thinking(w *weigher, _ string, v []byte) {
	if jsontext.String(jsontext.Get(v, "type")) != "disabled" {
		w.b.Hidden = true
	}
	w.text(string(v))
}

// cache records that the provider may write input to its cache, and for how long. A
// lifetime other than 5 or 30 minutes counts as an hour.
func (w *weigher) cache(_ string, v []byte) {
	if jsontext.Kind(v) == 'n' {
		return
	}
	w.b.Cached = true
	if ttl := jsontext.Get(v, "ttl"); jsontext.Kind(ttl) != 'n' && jsontext.String(ttl) != "5m" && jsontext.String(ttl) != "30m" {
		w.b.Hour = true
	}
}

// lasting records that the provider may keep cached input for an hour or longer.
func lasting(w *weigher, _ string, _ []byte) { w.b.Cached, w.b.Hour = true, true }

// kept adds the tokens that the provider stores under id. It reports false if they
// are not known.
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

// tools adds a list of offered tools.
func (w *weigher) tools(where string, v []byte) {
	for i, t := range jsontext.Elements(v) {
		w.tool(where+"/"+strconv.Itoa(i), t)
	}
}

// tool adds an offered tool. A tool that the provider runs is an extra.
func (w *weigher) tool(where string, t []byte) {
	if !w.taught {
		w.taught, w.n, w.beside = true, w.n+perTools, w.beside+perTools
	}
	w.n += perTool
	w.text(string(t))
	w.offer(where, t)
}

// offer finds out whether the provider runs a tool, and looks at the tools in a
// namespace. The caller has counted the text of the tool.
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

// offered returns the row of a tool type, or nil.
func offered(f Format, kind string) *offer {
	for i := range offers {
		if o := &offers[i]; (o.at == 0 || o.at&f != 0) && (!o.family && kind == o.name || o.family && day(strings.CutPrefix(kind, o.name))) {
			return o
		}
	}
	return nil
}

// day reports whether the rest of a name is a date of eight digits; begins says
// whether the name had the expected beginning.
func day(digits string, begins bool) bool {
	return begins && len(digits) == 8 && strings.Trim(digits, "0123456789") == ""
}

// again returns the tokens of an offered tool that the conversation refers to,
// because the model reads the tool again there.
func (w *weigher) again(name string) int64 {
	if w.sizes == nil {
		w.sizes = make(map[string]int64)
		for _, t := range jsontext.Elements(w.r.val("tools")) {
			w.sizes[ToolName(t)] = perTool + int64(w.r.Count.Count(string(t)))
		}
	}
	return w.sizes[name]
}
