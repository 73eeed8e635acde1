package provider

import (
	"bytes"
	"encoding/json"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
	"net/http"
)

// openAI is the protocol of POST /chat/completions, which many servers speak.
type openAI struct{}

func (openAI) path() string { return "/chat/completions" }

func (openAI) sign(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

type openAIRequest struct {
	Model         string          `json:"model"`
	Messages      []openAIMessage `json:"messages"`
	Tools         []openAITool    `json:"tools,omitempty"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxCompletion int `json:"max_completion_tokens,omitempty"`
	MaxTokens     int `json:"max_tokens,omitempty"`
}

type openAIMessage struct {
	Role    model.Role   `json:"role"`
	Content *string      `json:"content"`
	Calls   []openAICall `json:"tool_calls,omitempty"`
	CallID  string       `json:"tool_call_id,omitempty"`
}

type openAICall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type openAITool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

var anyObject = json.RawMessage(`{"type":"object","properties":{}}`)

func (openAI) encode(m *remote, r model.Request) ([]byte, error) {
	q := openAIRequest{Model: m.model, Stream: true, Messages: []openAIMessage{}}
	q.StreamOptions.IncludeUsage = true
	// OpenAI's reasoning models refuse max_tokens, whoever passes them on; servers
	// of other models mostly know nothing else, and one that ignores a maximum
	// costs money.
	if m.facts.Provider == "openai" || catalog.FromOpenAI(m.model) {
		q.MaxCompletion = r.MaxOutput
	} else {
		q.MaxTokens = r.MaxOutput
	}
	for _, msg := range r.Messages {
		o := openAIMessage{Role: msg.Role, CallID: msg.CallID}
		if msg.Text != "" || len(msg.Calls) == 0 {
			o.Content = &msg.Text
		}
		for _, c := range msg.Calls {
			oc := openAICall{ID: c.ID, Type: "function"}
			oc.Function.Name, oc.Function.Arguments = c.Name, c.Args
			o.Calls = append(o.Calls, oc)
		}
		q.Messages = append(q.Messages, o)
	}
	for _, t := range r.Tools {
		ot := openAITool{Type: "function"}
		ot.Function.Name, ot.Function.Description, ot.Function.Parameters = t.Name, t.Description, t.Schema
		if len(t.Schema) == 0 {
			ot.Function.Parameters = anyObject
		}
		q.Tools = append(q.Tools, ot)
	}
	return encodeJSON(q)
}

// encodeJSON writes v without the escapes that are meant for HTML, which cost
// tokens.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// An openAIChunk is one event, or the whole answer of a server that does not
// stream: then the choice has a message in place of a delta.
type openAIChunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Index   int         `json:"index"`
		Delta   openAIDelta `json:"delta"`
		Message openAIDelta `json:"message"`
		Finish  string      `json:"finish_reason"`
	} `json:"choices"`
	Usage *openAIUsage `json:"usage"`
}

type openAIDelta struct {
	Content   looseText        `json:"content"`
	Refusal   looseText        `json:"refusal"`
	Reasoning looseText        `json:"reasoning_content"`
	Calls     []openAICallPart `json:"tool_calls"`
}

type openAICallPart struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments looseText `json:"arguments"`
	} `json:"function"`
}

type openAIUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
}

// looseText is a string, null, a list of parts with texts, or, where a server
// forgot to quote arguments, the JSON itself.
type looseText string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *looseText) UnmarshalJSON(b []byte) error {
	var s string
	var parts []struct{ Text string }
	switch {
	case string(b) == "null":
	case json.Unmarshal(b, &s) == nil:
		*t = looseText(s)
	case json.Unmarshal(b, &parts) == nil:
		for _, p := range parts {
			*t += looseText(p.Text)
		}
	default:
		*t = looseText(b)
	}
	return nil
}

func (o openAI) decode(a *answer, _ string, data []byte) *model.Error {
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		a.over = true
		return nil
	}
	var c openAIChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return unreadable(data, err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		kind, msg := format.ReadProblem(0, data)
		return &model.Error{Kind: kind, Message: msg}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // one answer was asked for
		}
		for _, d := range []openAIDelta{choice.Delta, choice.Message} {
			if err := d.into(a); err != nil {
				return err
			}
		}
		if choice.Finish != "" {
			a.ended = true
			if a.stop != model.StopFilter {
				a.stop = openAIStop(choice.Finish)
			}
		}
	}
	if u := c.Usage; u != nil {
		in := max(u.Prompt, 0)
		read := min(max(u.Details.Cached, 0), in)
		write := min(max(u.Details.Written, 0), in-read)
		a.usage = model.Usage{Input: in - read - write, CacheRead: read, CacheWrite: write, Output: max(u.Completion, 0)}
		a.hasInput, a.reported = true, true
	}
	return nil
}

func (d openAIDelta) into(a *answer) *model.Error {
	a.said.WriteString(string(d.Reasoning))
	a.text(string(d.Content))
	if d.Refusal != "" {
		a.text(string(d.Refusal))
		a.stop = model.StopFilter
	}
	for _, p := range d.Calls {
		c := p.belongs(a.calls)
		if c == nil {
			c = &partialCall{at: len(a.calls), ID: p.ID}
			if p.Index != nil {
				c.at = *p.Index
			}
			if err := a.open(c); err != nil {
				return err
			}
		}
		if c.ID == "" {
			c.ID = p.ID
		}
		if c.Name == "" {
			c.Name = p.Function.Name
		}
		a.add(c, string(p.Function.Arguments))
	}
	return nil
}

// belongs finds the call that p continues, nil when it begins one. A part
// names its call by index. Servers exist that give every call the index 0, or
// none: there a new id begins a new call.
func (p openAICallPart) belongs(calls []*partialCall) *partialCall {
	for i := len(calls) - 1; i >= 0; i-- {
		c := calls[i]
		if p.Index != nil && c.at != *p.Index {
			continue
		}
		if p.ID != "" && c.ID != "" && p.ID != c.ID {
			continue
		}
		if p.Index == nil && p.ID == "" && p.Function.Name != "" {
			return nil
		}
		return c
	}
	return nil
}

func openAIStop(s string) model.Stop {
	switch s {
	case "length", "max_tokens":
		return model.StopLength
	case "content_filter":
		return model.StopFilter
	case "tool_calls", "function_call":
		return model.StopTools
	}
	return model.StopEnd
}
