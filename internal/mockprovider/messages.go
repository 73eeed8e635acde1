package mockprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// anthropic is the vendor Anthropic.
type anthropic struct{}

func (anthropic) overloaded() int { return 529 }

func (anthropic) problem(p *problem, id string) any {
	kinds := map[kind]string{
		badKey: "authentication_error", forbidden: "permission_error", notFound: "not_found_error", noModel: "not_found_error",
		rateLimited: "rate_limit_error", overloaded: "overloaded_error",
	}
	name, ok := kinds[p.kind]
	switch {
	case p.status == http.StatusRequestEntityTooLarge:
		name = "request_too_large"
	case !ok:
		name = "invalid_request_error"
	}
	return object{"type": "error", "error": object{"type": name, "message": p.message}, "request_id": id}
}

func (anthropic) headers(h http.Header, id string, l levels, now time.Time) {
	h.Set("Request-Id", id)
	for what, name := range map[string]string{requests: "Requests", allTokens: "Tokens", inputTokens: "Input-Tokens", outputTokens: "Output-Tokens"} {
		if v, ok := l[what]; ok {
			h.Set("Anthropic-Ratelimit-"+name+"-Limit", fmt.Sprint(v.limit))
			h.Set("Anthropic-Ratelimit-"+name+"-Remaining", fmt.Sprint(v.left))
			h.Set("Anthropic-Ratelimit-"+name+"-Reset", now.Add(v.reset+time.Second-1).UTC().Truncate(time.Second).Format(time.RFC3339))
		}
	}
}

// messages is POST /v1/messages.
type messages struct{}

func (messages) vendor() vendor { return anthropic{} }

type messagesRequest struct {
	Model     string  `json:"model"`
	MaxTokens *int    `json:"max_tokens"`
	Stream    bool    `json:"stream"`
	System    content `json:"system"`
	Messages  []struct {
		Role    string `json:"role"`
		Content blocks `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	Thinking struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
	Format  outputFormat `json:"output_format"`
	Options struct {
		Format outputFormat `json:"format"`
	} `json:"output_config"`
}

type outputFormat struct {
	Schema json.RawMessage `json:"schema"`
}

// blocks are a text or a list of blocks.
type blocks []block

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   content         `json:"content"`
	IsError   bool            `json:"is_error"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *blocks) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*b = blocks{{Type: "text", Text: s}}
		return nil
	}
	return json.Unmarshal(raw, (*[]block)(b))
}

func (messages) parse(body []byte) (*request, *problem) {
	q, p := readMessages(body)
	switch {
	case p != nil:
		return nil, p
	case q.input.MaxOutput == 0:
		return nil, bad("max_tokens: field required")
	}
	return q, nil
}

func readMessages(body []byte) (*request, *problem) {
	var r messagesRequest
	if p := decode(body, &r); p != nil {
		return nil, p
	}
	q := &request{model: r.Model, stream: r.Stream, choices: 1, usage: true}
	switch {
	case r.Model == "":
		return nil, bad("model: field required")
	case len(r.Messages) == 0:
		return nil, bad("messages: at least one message is required")
	}
	if r.MaxTokens != nil {
		if q.input.MaxOutput = *r.MaxTokens; *r.MaxTokens < 1 {
			return nil, bad("max_tokens: %d, expected 1 or more", *r.MaxTokens)
		}
	}
	switch q.showThoughts = r.Thinking.Type == "enabled" || r.Thinking.Type == "adaptive"; {
	case r.Thinking.Type == "enabled" && r.Thinking.Budget < 1024:
		return nil, bad("thinking.budget_tokens: %d, expected 1024 or more", r.Thinking.Budget)
	case q.showThoughts && r.MaxTokens != nil && r.Thinking.Budget >= *r.MaxTokens:
		return nil, bad("thinking.budget_tokens: %d, expected less than max_tokens", r.Thinking.Budget)
	}
	if r.System.text != "" {
		q.add(model.Message{Role: model.System, Text: r.System.text}, 0)
	}
	for _, m := range r.Messages {
		q.addBlocks(roleOf(m.Role), m.Content)
	}
	for _, t := range r.Tools {
		q.input.Tools = append(q.input.Tools, model.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	for _, f := range []outputFormat{r.Format, r.Options.Format} {
		if len(f.Schema) > 0 {
			q.schema = f.Schema
			q.extra += tokens.CountText(string(f.Schema))
		}
	}
	return q, checkResults(q.input.Messages)
}

// addBlocks adds one message, which may become several of ours.
func (q *request) addBlocks(role model.Role, all blocks) {
	msg := model.Message{Role: role}
	images := 0
	for _, b := range all {
		switch b.Type {
		case "text":
			msg.Text += b.Text
		case "image", "document":
			images++
		case "tool_use":
			msg.Calls = append(msg.Calls, model.ToolCall{ID: b.ID, Name: b.Name, Args: string(b.Input)})
		case "tool_result":
			q.add(model.Message{Role: model.Tool, CallID: b.ToolUseID, Text: b.Content.text, Failed: b.IsError}, b.Content.images)
		}
	}
	if msg.Text != "" || len(msg.Calls) > 0 || images > 0 || role == model.Assistant {
		q.add(msg, images)
	}
}

func (messages) usage(a *answer) object {
	if a.reported == nil {
		return object{"input_tokens": 0, "output_tokens": 0}
	}
	return object{
		"input_tokens": a.reported.Input, "output_tokens": a.reported.Output,
		"cache_creation_input_tokens": a.reported.CacheWrite, "cache_read_input_tokens": a.reported.CacheRead,
		"cache_creation": object{"ephemeral_5m_input_tokens": a.reported.CacheWrite, "ephemeral_1h_input_tokens": 0},
		"service_tier":   "standard",
	}
}

func stopReason(s model.Stop) string {
	switch s {
	case model.StopTools:
		return "tool_use"
	case model.StopLength:
		return "max_tokens"
	case model.StopFilter:
		return "refusal"
	}
	return "end_turn"
}

// argumentsObject returns the arguments as an object, whatever the script has.
func argumentsObject(args string) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &o) != nil || o == nil {
		b, err := encode(object{"invalid_json": args})
		if err != nil {
			return json.RawMessage("{}")
		}
		return b
	}
	return json.RawMessage(args)
}

const signature = "c2lnbmVkIGJ5IHRoZSBtb2Nr" // opaque to clients; they send it back

func (m messages) message(a *answer, content []any, stop any) object {
	return object{
		"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": a.req.model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": m.usage(a),
	}
}

func (m messages) body(a *answer) any {
	content := []any{}
	if a.thoughts != "" {
		content = append(content, object{"type": "thinking", "thinking": a.thoughts, "signature": signature})
	}
	if a.text != "" {
		content = append(content, object{"type": "text", "text": a.text})
	}
	for _, c := range a.calls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": argumentsObject(c.Args)})
	}
	return m.message(a, content, stopReason(a.stop))
}

func (m messages) events(s *stream, a *answer) {
	start := m.message(a, []any{}, nil)
	u := m.usage(a)
	u["output_tokens"] = min(1, a.usage.Output)
	start["usage"] = u
	s.event("message_start", object{"type": "message_start", "message": start})
	index := 0
	block := func(begin object, kind, text string, paid int) {
		s.event("content_block_start", object{"type": "content_block_start", "index": index, "content_block": begin})
		if index == 0 {
			s.event("ping", object{"type": "ping"})
		}
		s.countPaid(paid)
		form := func(d object) object { return object{"type": "content_block_delta", "index": index, "delta": d} }
		field := map[string]string{"thinking_delta": "thinking", "text_delta": "text", "input_json_delta": "partial_json"}[kind]
		s.deltas("content_block_delta", text, func(p string) object { return form(object{"type": kind, field: p}) })
		if kind == "thinking_delta" {
			s.event("content_block_delta", form(object{"type": "signature_delta", "signature": signature}))
		}
		s.event("content_block_stop", object{"type": "content_block_stop", "index": index})
		index++
	}
	if a.thoughts != "" {
		block(object{"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", a.thoughts, 0)
	}
	if a.text != "" {
		block(object{"type": "text", "text": ""}, "text_delta", a.text, 0)
	}
	for _, c := range a.calls {
		block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, "input_json_delta", string(argumentsObject(c.Args)), len(c.Name))
	}
	end := object{"type": "message_delta", "delta": object{"stop_reason": stopReason(a.stop), "stop_sequence": nil}, "usage": object{"output_tokens": 0}}
	if a.reported != nil {
		end["usage"] = m.usage(a)
	}
	s.event("message_delta", end)
	s.event("message_stop", object{"type": "message_stop"})
}

// countTokens is POST /v1/messages/count_tokens. It bills nothing.
type countTokens struct{ messages }

func (countTokens) parse(body []byte) (*request, *problem) {
	q, p := readMessages(body)
	if p != nil {
		return nil, p
	}
	q.noCharge, q.stream = true, false
	return q, nil
}

func (countTokens) body(a *answer) any {
	var s model.Script
	return object{"input_tokens": s.Count(a.req.input) + a.req.extra}
}
