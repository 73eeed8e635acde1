package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
)

// Withhold takes tool calls out of the held answer. why gives the reason for each, by
// its place in [Meter.Ready]. The reason stands in the answer as a text of the model in
// place of the call. The program sends that text back with the conversation, so the
// model reads it.
func (m *Meter) Withhold(why map[int]string) {
	w := withheld{format: m.format, notes: make(map[place]string), seen: make(map[place]int)}
	ready, ordinals := 0, make(map[int]int)
	for _, p := range m.answer.list {
		at := place{p.choice, p.at}
		if m.format == Chat { // some servers give no index, so the order counts
			at.call = ordinals[p.choice]
			ordinals[p.choice]++
		}
		if !p.Whole || p.free {
			continue
		}
		if reason, ok := why[ready]; ok {
			w.notes[at] = fmt.Sprintf("[The call of the tool %s was refused and did not run: %s]", p.Name, reason)
		}
		ready++
	}
	if m.stream {
		m.held = w.events(m.held)
	} else {
		m.held = w.whole(m.held)
	}
	for _, p := range m.answer.list {
		p.from = 0 // every call is complete, so all held bytes are released together
	}
}

// place is where a call stands in an answer: its choice, and its place there.
type place struct{ choice, call int }

// withheld rewrites an answer without some of its calls.
type withheld struct {
	format Format
	notes  map[place]string
	seen   map[place]int // Chat: the order of the calls by choice and index
	count  [maxChoices + 1]int
	said   map[int]bool // Chat: choices whose notes were written
}

// object is a JSON object whose members are not read.
type object = map[string]json.RawMessage

func encode(v any) json.RawMessage {
	b, _ := json.Marshal(v) // texts, numbers and parsed JSON always encode
	return b
}

func decode(b []byte) (o object) {
	_ = json.Unmarshal(b, &o) // the meter has read it before
	return o
}

// whole rewrites an answer that is one object.
func (w *withheld) whole(b []byte) []byte {
	o := decode(b)
	switch w.format {
	case Chat:
		var choices []json.RawMessage
		for _, c := range jsontext.Elements(o["choices"]) {
			choice := decode(c)
			at := int(number(choice["index"]))
			message := decode(choice["message"])
			w.message(at, message)
			choice["message"] = encode(message)
			choices = append(choices, encode(choice))
		}
		o["choices"] = encode(choices)
	case Messages:
		o["content"] = w.blocks(o["content"])
	case Responses:
		o["output"] = w.items(o["output"])
	}
	return encode(o)
}

// message takes the calls of one choice out of a message of Chat.
func (w *withheld) message(choice int, message object) {
	var kept []json.RawMessage
	var notes []string
	if text := jsontext.String(message["content"]); text != "" {
		notes = append(notes, text)
	}
	i := 0
	for _, t := range jsontext.Elements(message["tool_calls"]) {
		if note, ok := w.notes[place{choice, i}]; ok {
			notes = append(notes, note)
		} else {
			kept = append(kept, t)
		}
		i++
	}
	message["content"] = encode(strings.Join(notes, "\n"))
	if message["tool_calls"] = encode(kept); kept == nil {
		delete(message, "tool_calls")
	}
}

// blocks replaces content blocks of Messages.
func (w *withheld) blocks(content []byte) json.RawMessage {
	var all []json.RawMessage
	for i, b := range jsontext.Elements(content) {
		if note, ok := w.notes[place{0, i}]; ok {
			b = encode(map[string]string{"type": "text", "text": note})
		}
		all = append(all, b)
	}
	return encode(all)
}

// items replaces output items of Responses.
func (w *withheld) items(output []byte) json.RawMessage {
	var all []json.RawMessage
	for i, b := range jsontext.Elements(output) {
		if note, ok := w.notes[place{0, i}]; ok {
			b = encode(said(i, "completed", note))
		}
		all = append(all, b)
	}
	return encode(all)
}

// said is an output item of Responses with a text; an empty text is none.
func said(at int, status, text string) map[string]any {
	content := []any{}
	if text != "" {
		content = append(content, saidPart(text))
	}
	return map[string]any{"id": fmt.Sprintf("msg_kern_%d", at), "type": "message", "role": "assistant", "status": status, "content": content}
}

func saidPart(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}}
}

// events rewrites the events of a stream.
func (w *withheld) events(b []byte) (out []byte) {
	w.said = make(map[int]bool)
	var split splitter
	var scratch []byte
	for len(b) > 0 {
		n, _ := split.end(b)
		if n == 0 {
			n = len(b)
		}
		event := b[:n]
		b = b[n:]
		data := bytes.TrimSpace(eventData(event, &scratch))
		if jsontext.Kind(data) != '{' {
			out = append(out, event...)
			continue
		}
		list, changed := w.event(data)
		if !changed {
			out = append(out, event...)
		}
		for _, o := range list {
			if kind := jsontext.String(jsontext.Get(o, "type")); kind != "" { // Chat names no events
				out = append(append(append(out, "event: "...), kind...), '\n')
			}
			out = append(append(append(out, "data: "...), o...), "\n\n"...)
		}
	}
	return out
}

// event returns the events that replace one; changed is false if it stays.
func (w *withheld) event(data []byte) (list []json.RawMessage, changed bool) {
	switch o := decode(data); w.format {
	case Chat:
		return w.chunk(o)
	case Messages:
		at := int(number(o["index"]))
		note, ok := w.notes[place{0, at}]
		if !ok || o["index"] == nil {
			return nil, false
		}
		if jsontext.String(o["type"]) == "content_block_start" {
			list = append(list, encode(map[string]any{"type": "content_block_start", "index": at, "content_block": map[string]string{"type": "text", "text": ""}}),
				encode(map[string]any{"type": "content_block_delta", "index": at, "delta": map[string]string{"type": "text_delta", "text": note}}),
				encode(map[string]any{"type": "content_block_stop", "index": at}))
		}
		return list, true
	default:
		return w.responseEvent(o)
	}
}

// responseEvent replaces an event of Responses.
func (w *withheld) responseEvent(o object) (list []json.RawMessage, changed bool) {
	kind := jsontext.String(o["type"])
	if response := o["response"]; jsontext.Get(response, "output") != nil {
		r := decode(response)
		r["output"] = w.items(r["output"])
		o["response"] = encode(r)
		return []json.RawMessage{encode(o)}, true
	}
	at := int(number(o["output_index"]))
	note, ok := w.notes[place{0, at}]
	if !ok || o["output_index"] == nil {
		return nil, false
	}
	if kind != "response.output_item.added" {
		return nil, true
	}
	event := func(kind string, more map[string]any) {
		e := map[string]any{"type": "response." + kind, "output_index": at, "sequence_number": o["sequence_number"]}
		if strings.HasPrefix(kind, "content_part") || strings.HasPrefix(kind, "output_text") {
			e["item_id"], e["content_index"] = fmt.Sprintf("msg_kern_%d", at), 0
		}
		for name, v := range more {
			e[name] = v
		}
		list = append(list, encode(e))
	}
	event("output_item.added", map[string]any{"item": said(at, "in_progress", "")})
	event("content_part.added", map[string]any{"part": saidPart("")})
	event("output_text.delta", map[string]any{"delta": note})
	event("output_text.done", map[string]any{"text": note})
	event("content_part.done", map[string]any{"part": saidPart(note)})
	event("output_item.done", map[string]any{"item": said(at, "completed", note)})
	return list, true
}

// chunk replaces a chunk of a Chat stream. The notes of a choice come in one chunk,
// before the first call that is withheld.
func (w *withheld) chunk(o object) (list []json.RawMessage, changed bool) {
	var choices []json.RawMessage
	for _, c := range jsontext.Elements(o["choices"]) {
		choice := decode(c)
		at, delta := int(number(choice["index"])), decode(choice["delta"])
		if delta["tool_calls"] == nil {
			choices = append(choices, c)
			continue
		}
		var kept []json.RawMessage
		for _, t := range jsontext.Elements(delta["tool_calls"]) {
			if _, ok := w.notes[place{at, w.ordinal(at, t)}]; !ok {
				kept = append(kept, t)
				continue
			}
			if changed = true; !w.said[at] {
				w.said[at] = true
				list = append(list, w.noteChunk(o, at))
			}
		}
		if delta["tool_calls"] = encode(kept); kept == nil {
			delete(delta, "tool_calls")
		}
		if choice["delta"] = encode(delta); len(delta) > 0 || jsontext.Kind(choice["finish_reason"]) != 'n' {
			choices = append(choices, encode(choice))
		}
	}
	if !changed {
		return nil, false
	}
	if choices != nil || jsontext.Kind(o["usage"]) == '{' {
		o["choices"] = encode(append([]json.RawMessage{}, choices...))
		list = append(list, encode(o))
	}
	return list, true
}

// noteChunk returns a chunk like o with the notes of a choice.
func (w *withheld) noteChunk(o object, choice int) json.RawMessage {
	var notes []string
	for i := range maxCalls {
		if note, ok := w.notes[place{choice, i}]; ok {
			notes = append(notes, note)
		}
	}
	n := make(object, len(o))
	for name, v := range o {
		if name != "usage" {
			n[name] = v
		}
	}
	n["choices"] = encode([]any{map[string]any{"index": choice, "delta": map[string]string{"content": "\n" + strings.Join(notes, "\n")}, "finish_reason": nil}})
	return encode(n)
}

// ordinal returns the place of the call that a piece belongs to, in the order in which
// the calls of the choice began.
func (w *withheld) ordinal(choice int, t []byte) int {
	index := jsontext.Get(t, "index")
	if jsontext.Kind(index) != '0' { // without an index, an id begins a call
		if id := jsontext.String(jsontext.Get(t, "id")); id != "" || w.count[choice] == 0 {
			w.count[choice]++
		}
		return w.count[choice] - 1
	}
	at := place{choice, int(number(index))}
	n, ok := w.seen[at]
	if !ok {
		n = w.count[choice]
		w.seen[at], w.count[choice] = n, n+1
	}
	return n
}

// WithResults returns a request that also has a result for each withheld call of the
// stored answer that it continues. withheld has the calls by answer. The provider keeps
// the calls of a stored answer, and wants a result for each of them.
func (r *Request) WithResults(withheld map[string][]string, result string) (*Request, error) {
	calls := withheld[jsontext.String(r.val("previous_response_id"))]
	if r.Format != Responses || calls == nil {
		return r, nil
	}
	var items []string
	for _, id := range calls {
		items = append(items, string(encode(map[string]string{"type": "function_call_output", "call_id": id, "output": result})))
	}
	list := strings.Join(items, ",")
	at, v := r.at("input"), r.val("input")
	e := edit{jsontext.Span{From: at.From + 1, To: at.From + 1}, list}
	switch jsontext.Kind(v) {
	case '[':
		for range jsontext.Elements(v) {
			e.text += ","
			break
		}
	case '"':
		e = edit{at, "[" + list + `,{"role":"user","content":` + string(v) + "}]"}
	default:
		return r, nil
	}
	return Parse(r.Format, apply(r.body, []edit{e}))
}
