package format

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kern-run/kern/model"
)

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

// writeMessages writes a request of Messages. Roles must alternate there, so what
// follows in the same role is one message, and so are the results of the calls
// of one answer.
func writeMessages(name string, r model.Request) messagesRequest {
	q := messagesRequest{Model: name, Stream: true, Messages: []messagesMessage{}}
	rest := r.Messages
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

// messageBlocks writes one message. Blank texts are refused there, and say
// nothing.
func messageBlocks(m model.Message) (blocks []messagesBlock) {
	if m.Role == model.Tool {
		return []messagesBlock{{Type: "tool_result", ToolUseID: plainName(m.CallID), Content: m.Text, IsError: m.Failed}}
	}
	text := m.Text
	if m.Role == model.Assistant {
		text = strings.TrimRight(text, " \t\r\n") // refused at the end of a conversation
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

func resultsFirst(blocks []messagesBlock) {
	rank := func(b messagesBlock) int {
		if b.Type == "tool_result" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(blocks, func(a, b messagesBlock) int { return rank(a) - rank(b) })
}
