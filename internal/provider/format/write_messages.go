package format

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kern-run/kern/model"
)

// messagesRequest is the body of a Messages request. The types below are its parts.
type messagesRequest struct {
	Model    string            `json:"model"`
	Stream   bool              `json:"stream"`
	System   string            `json:"system,omitempty"`
	Messages []messagesMessage `json:"messages"`
	Tools    []messagesTool    `json:"tools,omitempty"`
}

type messagesMessage struct {
	Role    model.Role      `json:"role"`
	Content []messagesBlock `json:"content"`
}

type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

type messagesTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"input_schema"`
}

// writeMessages returns the body of a Messages request for the model called name.
// Messages wants alternating roles, so it joins neighbours of the same role into one
// message. The tool results of one answer become one message for the same reason.
func writeMessages(name string, r model.Request) messagesRequest {
	q := messagesRequest{Model: name, Stream: true, Messages: []messagesMessage{}}
	rest := r.Messages
	// Messages has the system prompt in a field of its own.
	for len(rest) > 0 && rest[0].Role == model.System {
		q.System = strings.TrimSpace(q.System + "\n\n" + rest[0].Text)
		rest = rest[1:]
	}
	for _, msg := range rest {
		role := model.User
		if msg.Role == model.Assistant {
			role = model.Assistant
		}
		blocks := messageBlocks(msg)
		if len(blocks) == 0 {
			continue
		}
		if n := len(q.Messages); n > 0 && q.Messages[n-1].Role == role {
			q.Messages[n-1].Content = append(q.Messages[n-1].Content, blocks...)
		} else {
			q.Messages = append(q.Messages, messagesMessage{role, blocks})
		}
	}
	for i := range q.Messages {
		resultsFirst(q.Messages[i].Content)
	}
	for _, t := range r.Tools {
		q.Tools = append(q.Tools, messagesTool{t.Name, t.Description, schemaOf(&t)})
	}
	return q
}

// messageBlocks returns the content blocks of one message. It omits blank texts,
// because Anthropic refuses them and they say nothing.
func messageBlocks(m model.Message) (blocks []messagesBlock) {
	if m.Role == model.Tool {
		return []messagesBlock{{Type: "tool_result", ToolUseID: plainName(m.CallID), Content: m.Text, IsError: m.Failed}}
	}
	text := m.Text
	if m.Role == model.Assistant {
		text = strings.TrimRight(text, " \t\r\n") // Anthropic refuses trailing space at the end of a conversation
	}
	if strings.TrimSpace(text) != "" {
		blocks = append(blocks, messagesBlock{Type: "text", Text: text})
	}
	for _, c := range m.Calls {
		input := json.RawMessage(c.Args)
		var object map[string]json.RawMessage
		if json.Unmarshal(input, &object) != nil || object == nil {
			input, _ = encodeJSON(map[string]string{"invalid_json": c.Args}) // a string always encodes
		}
		blocks = append(blocks, messagesBlock{Type: "tool_use", ID: plainName(c.ID), Name: c.Name, Input: input})
	}
	return blocks
}

// resultsFirst moves the tool results to the front and keeps the order otherwise.
func resultsFirst(blocks []messagesBlock) {
	rank := func(b messagesBlock) int {
		if b.Type == "tool_result" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(blocks, func(a, b messagesBlock) int { return rank(a) - rank(b) })
}
