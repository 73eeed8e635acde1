package tariff

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
)

// maxDepth is how many levels of a message are searched for parts. It is bounded
// because each level reads its text again. No client nests deeper than ten levels.
const maxDepth = 32

// part adds any value inside a message.
func (w *weigher) part(v []byte) {
	if w.depth++; w.depth > maxDepth {
		w.unknown("a message nests deeper than " + strconv.Itoa(maxDepth) + " levels")
		w.raw(v)
		w.depth--
		return
	}
	defer func() { w.depth-- }()
	switch jsontext.Kind(v) {
	case '"':
		w.text(jsontext.String(v))
	case '[':
		for _, e := range jsontext.Elements(v) {
			w.part(e)
		}
	case '{':
		w.object(v)
	default:
		w.n += int64(len(v))
	}
}

// raw adds a value that the model reads as plain text; its members have no meaning.
func (w *weigher) raw(v []byte) {
	if jsontext.Kind(v) == '"' {
		w.text(jsontext.String(v))
		return
	}
	w.text(string(v))
}

// object adds an object of a message by its type.
func (w *weigher) object(v []byte) {
	w.n += perObject
	w.objects++
	var room [8]member
	o := membersOf(v, room[:0])
	kind := jsontext.String(o.get("type"))
	if c := o.get("cache_control"); c != nil {
		w.cache("", c)
	}
	if o.elsewhere() {
		w.b.Elsewhere = true
	}
	if !w.measured(kind, o) {
		return
	}
	if jsontext.Kind(jsontext.Get(o.get("citations"), "enabled")) == 't' {
		w.cited(v)
	}
	w.pass(o)
}

// measured adds the amounts that an object costs in addition to its members. It
// reports whether the caller must still count the members.
func (w *weigher) measured(kind string, o object) bool {
	// The bytes of a picture or a sound are not text, so those members do not count.
	switch parts[kind] {
	case picture:
		w.picture(o.file())
		w.pass(o, "image_url", "source", "image")
		return false
	case drawn:
		w.picture(o.file())
		w.pass(o, "result")
		return false
	case sound:
		w.sound()
		return false
	case document: // only a document that contains its text has a bound
		if src := o.get("source"); jsontext.Kind(o.get("file_id")) == '"' || jsontext.String(jsontext.Get(src, "type")) != "text" && jsontext.String(jsontext.Get(src, "type")) != "content" {
			w.unknown("how many tokens a document is, is not known here")
			w.pass(o, "source")
			return false
		}
	case unbounded:
		w.unknown("how many tokens a " + kind + " is, is not known here")
		return false
	case defined:
		w.tool("", o.get("definition"))
		w.pass(o, "definition")
		return false
	case brought:
		for _, t := range jsontext.Elements(o.get("tools")) {
			w.tool("", t)
		}
		w.pass(o, "tools")
		return false
	case referred:
		w.n += w.again(jsontext.String(o.get("tool_name")))
	case reference:
		if kind == "item_reference" && w.kept(o.get("id")) {
			return false
		}
		w.unknown("an item is kept by the provider, and how long it is is not known here")
	default:
		if w.r.stored(kind, o) && !w.kept(o.get("id")) {
			w.unknown("a part of an item is kept by the provider, and how long it is is not known here")
		}
	}
	return true
}

// picture adds the bound of one picture.
func (w *weigher) picture(file []byte) {
	n := w.r.picture(file)
	w.n, w.beside = w.n+n, w.beside+n
	w.pictures += max(1, n-perPicture)
}

// sound adds an extra, because sound has its own price, and records that there is
// no bound.
func (w *weigher) sound() {
	w.extra("audio", "", "sound has a price of its own")
	w.unknown("how many tokens sound is, is not known here")
}

// cited adds the tokens for citations: the provider marks each sentence that can be
// cited.
func (w *weigher) cited(v []byte) {
	w.n += perTools
	for _, end := range []string{".", "!", "?", `\n`, "\u3002"} {
		w.n += int64(perCited * bytes.Count(v, []byte(end)))
	}
}

// stored reports whether an item of Responses costs more than it shows: a
// thought given only by its id, or the stored result of a hosted tool.
func (r *Request) stored(kind string, o object) bool {
	if r.Format != Responses || jsontext.String(o.get("id")) == "" {
		return false
	}
	if kind == "reasoning" {
		shown := len(jsontext.String(jsontext.Get(first(o.get("content")), "text"))) > 0 && !FromOpenAI(r.Model)
		return jsontext.String(o.get("encrypted_content")) == "" && !shown
	}
	return strings.HasSuffix(kind, "_call") && !OwnItem(kind)
}

// first returns the first element of a list, or nil.
func first(v []byte) []byte {
	for _, e := range jsontext.Elements(v) {
		return e
	}
	return nil
}

// object holds the members of a JSON object, found once, because each search would
// read over long texts again.
type (
	object []member
	member struct{ name, val []byte }
)

// membersOf appends the members of v to room, which saves an allocation.
func membersOf(v []byte, room object) object {
	for name, val := range jsontext.Members(v) {
		room = append(room, member{name, val})
	}
	return room
}

// get returns the value of a member, or nil. If two members have the name, the last
// one counts.
func (o object) get(name string) (found []byte) {
	for i := range o {
		if string(o[i].name) == name {
			found = o[i].val
		}
	}
	return found
}

// elsewhere reports whether an object gives an address from which the provider
// fetches the content.
func (o object) elsewhere() bool {
	for _, name := range []string{"image_url", "source", "file_url", "video_url"} {
		v := o.get(name)
		at := jsontext.Bare(jsontext.Get(v, "url"))
		if name != "source" && jsontext.Kind(v) == '"' { // a string in source is a name, not an address
			at = jsontext.Bare(v)
		}
		if len(at) > 0 && !bytes.HasPrefix(at, []byte("data:")) {
			return true
		}
	}
	return false
}

// pass adds the members of an object except those named in but.
func (w *weigher) pass(o object, but ...string) {
	for i := range o {
		k, val := o[i].name, o[i].val
		if slices.Contains(but, string(k)) {
			continue
		}
		switch string(k) {
		case "cache_control":
		case "type", "role":
			before := w.n // perObject already includes a short word
			w.part(val)
			w.n = max(before, w.n-perWord)
		case "encrypted_content", "signature":
			if jsontext.Kind(val) != '"' {
				w.raw(val)
			}
			w.n += int64(len(val)*3/4) + 1 // base64 of at least a byte for each token
		case "arguments", "input", "action", "operation":
			w.raw(val)
		case "audio":
			if jsontext.Kind(val) == '{' { // the id of an earlier answer in sound, which the provider stores
				w.sound()
			}
		case "content", "text", "name", "id", "call_id", "tool_call_id", "tool_use_id", "function", "output", "tool_calls", "source":
			w.part(val)
		default:
			w.text(string(k))
			w.part(val)
		}
	}
}
