package model

import (
	"encoding/json"
	"testing"
)

// TestCountMatchesOpenAI: these totals are those that OpenAI's own description
// of the chat format gives for its example conversation.
func TestCountMatchesOpenAI(t *testing.T) {
	r := Request{Messages: []Message{
		{Role: System, Text: "You are a helpful assistant."},
		{Role: User, Text: "hello"},
	}}
	if got := CountRequest(r); got != 3+4+6+4+1 {
		t.Errorf("it counts %d", got)
	}
}

// TestCountIsOfEverything: more in a request never counts less, and everything
// in it counts.
func TestCountIsOfEverything(t *testing.T) {
	r := conversation
	last := CountRequest(r)
	for name, grow := range map[string]func(r *Request){
		"a message": func(r *Request) { r.Messages = append(r.Messages, Message{Role: User}) },
		"a call":    func(r *Request) { r.Messages = append(r.Messages, Message{Role: Assistant, Calls: []ToolCall{{}}}) },
		"arguments": func(r *Request) {
			r.Messages = append(r.Messages, Message{Role: Assistant, Calls: []ToolCall{{Args: `{"a":"b"}`}}})
		},
		"a tool":        func(r *Request) { r.Tools = append(r.Tools, ToolSpec{Name: "f"}) },
		"a description": func(r *Request) { r.Tools = append(r.Tools, ToolSpec{Name: "f", Description: "does something"}) },
		"a schema": func(r *Request) {
			r.Tools = append(r.Tools, ToolSpec{Name: "f", Schema: json.RawMessage(`{"type":"object"}`)})
		},
	} {
		g := Request{Messages: append([]Message{}, r.Messages...), Tools: append([]ToolSpec{}, r.Tools...)}
		grow(&g)
		if got := CountRequest(g); got <= last {
			t.Errorf("with %s it counts %d, without %d", name, got, last)
		}
	}
}

// conversation has one of everything.
var conversation = Request{
	MaxOutput: 77,
	Messages: []Message{
		{Role: System, Text: "Be brief. <&>"},
		{Role: System, Text: "Be kind."},
		{Role: User, Text: "Read a and b."},
		{Role: Assistant, Text: "I will. ", Calls: []ToolCall{{ID: "c1", Name: "read", Args: `{"path": "a"}`}, {ID: "c.2", Name: "read", Args: `{"path":`}}},
		{Role: Tool, CallID: "c1", Text: "contents of a"},
		{Role: Tool, CallID: "c.2", Text: "no such file", Failed: true},
		{Role: User, Text: "And now?"},
		{Role: Assistant, Text: " \n"},
		{Role: User, Text: "Well?"},
		{Role: Assistant, Text: "So: \n"},
	},
	Tools: []ToolSpec{
		{Name: "read", Description: "Read a file", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
		{Name: "now"},
	},
}
