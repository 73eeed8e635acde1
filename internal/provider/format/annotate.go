package format

import (
	"bytes"

	"github.com/kern-run/kern/internal/jsontext"
)

// Annotate adds a member to an answer: to the JSON object itself, or to the last
// event of a stream. In Responses the event holds the answer, so the member goes
// there. Annotate returns end unchanged if it finds no object.
func (f Format) Annotate(end []byte, stream bool, name string, value []byte) []byte {
	object := jsontext.Span{From: 0, To: len(end)}
	if stream {
		object = lastObject(end)
	}
	v := end[object.From:object.To]
	if stream && f == Responses {
		for key, val := range jsontext.Spans(v) {
			if jsontext.String(v[key.From:key.To]) == "response" && jsontext.Kind(v[val.From:val.To]) == '{' {
				object = jsontext.Span{From: object.From + val.From, To: object.From + val.To}
				v = end[object.From:object.To]
				break
			}
		}
	}
	at := bytes.LastIndexByte(v, '}')
	if at < 0 || jsontext.Kind(bytes.TrimSpace(v)) != '{' {
		return end
	}
	member := append(append(jsontext.Quote(name), ':'), value...)
	for range jsontext.Members(v) {
		member = append([]byte{','}, member...)
		break
	}
	at += object.From
	return append(append(append(make([]byte, 0, len(end)+len(member)), end[:at]...), member...), end[at:]...)
}

// lastObject returns the span of the last JSON object that is the data of an event.
func lastObject(events []byte) (object jsontext.Span) {
	for from := 0; from < len(events); {
		to := len(events)
		if n := bytes.IndexAny(events[from:], "\r\n"); n >= 0 {
			to = from + n
		}
		if value, ok := bytes.CutPrefix(events[from:to], []byte("data:")); ok {
			if value = bytes.TrimSpace(value); len(value) > 1 && value[0] == '{' && value[len(value)-1] == '}' {
				at := from + bytes.IndexByte(events[from:to], '{')
				object = jsontext.Span{From: at, To: at + len(value)}
			}
		}
		from = to + 1
	}
	return object
}
