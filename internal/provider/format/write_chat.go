package format

import (
	"encoding/json"

	"github.com/kern-run/kern/model"
)

// chatRequest is the body of a Chat request. The types below are its parts.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Tools         []chatTool    `json:"tools,omitempty"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role    model.Role     `json:"role"`
	Content *string        `json:"content"`
	Calls   []chatToolCall `json:"tool_calls,omitempty"`
	CallID  string         `json:"tool_call_id,omitempty"`
}

type chatToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// writeChat returns the body of a Chat request for the model called name.
func writeChat(name string, r model.Request) chatRequest {
	q := chatRequest{Model: name, Stream: true, Messages: []chatMessage{}}
	q.StreamOptions.IncludeUsage = true
	for _, msg := range r.Messages {
		o := chatMessage{Role: msg.Role, CallID: msg.CallID}
		if msg.Text != "" || len(msg.Calls) == 0 {
			o.Content = &msg.Text
		}
		for _, c := range msg.Calls {
			oc := chatToolCall{ID: c.ID, Type: "function"}
			oc.Function.Name, oc.Function.Arguments = c.Name, c.Args
			o.Calls = append(o.Calls, oc)
		}
		q.Messages = append(q.Messages, o)
	}
	for _, t := range r.Tools {
		ot := chatTool{Type: "function"}
		ot.Function.Name, ot.Function.Description, ot.Function.Parameters = t.Name, t.Description, schemaOf(&t)
		q.Tools = append(q.Tools, ot)
	}
	return q
}
