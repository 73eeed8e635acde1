package provider

import (
	"encoding/json"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
	"net/http"
	"slices"
	"strings"
)

// anthropic is the protocol of POST /v1/messages.
type anthropic struct{}

// anthropicOutput is asked for where neither the request nor the table knows a
// maximum, for the protocol wants one; every model grants this much.
const anthropicOutput = 4096

func (anthropic) path() string { return "/v1/messages" }

func (anthropic) sign(h http.Header, key string) {
	if h.Get("Anthropic-Version") == "" { // a program may have said which
		h.Set("Anthropic-Version", "2023-06-01")
	}
	if key != "" {
		h.Set("X-Api-Key", key)
	}
}

type anthropicRequest struct {
	Model     string             `json:"model"`
	MaxTokens int                `json:"max_tokens"`
	Stream    bool               `json:"stream"`
	System    string             `json:"system,omitempty"`
	Messages  []anthropicMessage `json:"messages"`
	Tools     []anthropicTool    `json:"tools,omitempty"`
}

type anthropicMessage struct {
	Role    model.Role       `json:"role"`
	Content []anthropicBlock `json:"content"`
}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"input_schema"`
}

func (anthropic) encode(m *remote, r model.Request) ([]byte, error) {
	q := anthropicRequest{Model: m.model, Stream: true, MaxTokens: r.MaxOutput, Messages: []anthropicMessage{}}
	if q.MaxTokens <= 0 {
		q.MaxTokens = m.facts.MaxOutput
	}
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
		blocks := anthropicBlocks(msg)
		if len(blocks) == 0 {
			continue
		}
		// Roles must alternate: what follows in the same role is one message,
		// and so the results of one answer's calls are.
		if n := len(q.Messages); n > 0 && q.Messages[n-1].Role == role {
			q.Messages[n-1].Content = append(q.Messages[n-1].Content, blocks...)
		} else {
			q.Messages = append(q.Messages, anthropicMessage{role, blocks})
		}
	}
	for i := range q.Messages {
		resultsFirst(q.Messages[i].Content)
	}
	for _, t := range r.Tools {
		at := anthropicTool(t)
		if len(t.Schema) == 0 {
			at.Schema = anyObject
		}
		q.Tools = append(q.Tools, at)
	}
	return encodeJSON(q)
}

// anthropicBlocks writes one message. Blank texts are refused there, and say
// nothing.
func anthropicBlocks(m model.Message) (blocks []anthropicBlock) {
	if m.Role == model.Tool {
		return []anthropicBlock{{Type: "tool_result", ToolUseID: anthropicID(m.CallID), Content: m.Text, IsError: m.Failed}}
	}
	text := m.Text
	if m.Role == model.Assistant {
		text = strings.TrimRight(text, " \t\r\n") // refused at the end of a conversation
	}
	if strings.TrimSpace(text) != "" {
		blocks = append(blocks, anthropicBlock{Type: "text", Text: text})
	}
	for _, c := range m.Calls {
		input := json.RawMessage(c.Args)
		var object map[string]json.RawMessage
		if json.Unmarshal(input, &object) != nil || object == nil {
			input, _ = encodeJSON(map[string]string{"invalid_json": c.Args}) // a string always encodes
		}
		blocks = append(blocks, anthropicBlock{Type: "tool_use", ID: anthropicID(c.ID), Name: c.Name, Input: input})
	}
	return blocks
}

func resultsFirst(blocks []anthropicBlock) {
	rank := func(b anthropicBlock) int {
		if b.Type == "tool_result" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(blocks, func(a, b anthropicBlock) int { return rank(a) - rank(b) })
}

// anthropicID keeps ids of other providers within the letters allowed here.
func anthropicID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}

// An anthropicEvent is any event of the stream.
type anthropicEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	Block struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Text  string          `json:"text"`
		Input json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		JSON     string `json:"partial_json"`
		Thinking string `json:"thinking"`
		Stop     string `json:"stop_reason"`
	} `json:"delta"`
	Usage anthropicUsage  `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type anthropicUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

// into takes over what is given: the counts are running totals.
func (u anthropicUsage) into(a *answer) {
	set := func(to *int64, v *int64) {
		if v != nil {
			*to = max(*v, 0)
		}
	}
	set(&a.usage.Input, u.Input)
	set(&a.usage.Output, u.Output)
	set(&a.usage.CacheRead, u.CacheRead)
	set(&a.usage.CacheWrite, u.CacheWrite)
	a.hasInput = a.hasInput || u.Input != nil
}

func (o anthropic) decode(a *answer, _ string, data []byte) *model.Error {
	var e anthropicEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return unreadable(data, err)
	}
	switch e.Type {
	case "message_start":
		e.Message.Usage.into(a)
	case "content_block_start":
		switch e.Block.Type {
		case "text":
			a.text(e.Block.Text)
		case "tool_use":
			c := &partialCall{at: e.Index, ID: e.Block.ID, Name: e.Block.Name}
			if err := a.open(c); err != nil {
				return err
			}
			if in := string(e.Block.Input); in != "" && in != "{}" && in != "null" {
				a.add(c, in) // a server that sends the arguments in one piece
			}
		}
	case "content_block_delta":
		a.text(e.Delta.Text)
		a.said.WriteString(e.Delta.Thinking)
		if e.Delta.Type != "input_json_delta" {
			break
		}
		for _, c := range slices.Backward(a.calls) {
			if c.at == e.Index {
				a.add(c, e.Delta.JSON)
				break
			}
		}
	case "message_delta":
		e.Usage.into(a)
		a.reported = a.hasInput && (a.reported || e.Usage.Output != nil)
		if e.Delta.Stop != "" {
			a.stop, a.ended = anthropicStop(e.Delta.Stop), true
		}
	case "message_stop":
		a.over = true
	case "error":
		kind, msg := format.ReadProblem(0, data)
		return &model.Error{Kind: kind, Message: msg}
	}
	return nil
}

func anthropicStop(s string) model.Stop {
	switch s {
	case "max_tokens", "model_context_window_exceeded":
		return model.StopLength
	case "tool_use":
		return model.StopTools
	case "refusal":
		return model.StopFilter
	}
	return model.StopEnd
}
