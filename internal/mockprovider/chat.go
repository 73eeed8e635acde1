package mockprovider

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// chat is POST /v1/chat/completions.
type chat struct{}

func (chat) vendor() vendor { return openAI{} }

type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string     `json:"role"`
		Content content    `json:"content"`
		Refusal content    `json:"refusal"`
		Calls   []chatCall `json:"tool_calls"`
		CallID  string     `json:"tool_call_id"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	Format struct {
		Type   string `json:"type"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
	Stream  bool `json:"stream"`
	Options *struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens     *int   `json:"max_tokens"`
	MaxCompletion *int   `json:"max_completion_tokens"`
	N             *int   `json:"n"`
	Effort        string `json:"reasoning_effort"`
}

// reasoning matches the models that refuse max_tokens.
var reasoning = regexp.MustCompile(`^(o[1-9]|gpt-[5-9])`)

func (chat) parse(body []byte) (*request, *problem) {
	var r chatRequest
	if p := decode(body, &r); p != nil {
		return nil, p
	}
	q := &request{model: r.Model, stream: r.Stream, choices: 1, showThoughts: thinks(r.Effort), schema: r.Format.Schema.Schema}
	q.usage = r.Options != nil && r.Options.Usage
	switch {
	case r.Model == "":
		return nil, bad("the model is missing; expected a string in model")
	case len(r.Messages) == 0:
		return nil, bad("the messages are missing; expected a list in messages")
	case r.Options != nil && !r.Stream:
		return nil, bad("stream_options is only for stream: true")
	case r.MaxTokens != nil && reasoning.MatchString(r.Model):
		return nil, bad("max_tokens is not for the model %s; expected max_completion_tokens", r.Model)
	}
	for _, most := range []*int{r.MaxTokens, r.MaxCompletion} {
		if most != nil {
			if *most < 1 {
				return nil, bad("the output maximum is %d, expected 1 or more", *most)
			}
			q.input.MaxOutput = *most
		}
	}
	if r.N != nil {
		if q.choices = *r.N; *r.N < 1 || *r.N > 128 {
			return nil, bad("n is %d, expected 1 to 128", *r.N)
		}
	}
	for _, m := range r.Messages {
		msg := model.Message{Role: roleOf(m.Role), Text: m.Content.text + m.Refusal.text, CallID: m.CallID}
		for _, c := range m.Calls {
			msg.Calls = append(msg.Calls, model.ToolCall{ID: c.ID, Name: c.Function.Name, Args: c.Function.Arguments})
		}
		q.add(msg, m.Content.images)
	}
	for _, t := range r.Tools {
		q.input.Tools = append(q.input.Tools, model.ToolSpec{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	q.extra += tokens.CountText(string(q.schema))
	if q.schema == nil && r.Format.Type == "json_object" {
		q.schema = []byte(`{"type":"object","properties":{"answer":{"type":"string"}}}`)
	}
	return q, checkResults(q.input.Messages)
}

func thinks(effort string) bool { return effort != "" && effort != "none" && effort != "minimal" }

func roleOf(s string) model.Role {
	switch s {
	case "system", "developer":
		return model.System
	case "assistant":
		return model.Assistant
	case "tool", "function":
		return model.Tool
	}
	return model.User
}

// add appends a message. Consecutive messages of one side are one turn.
func (q *request) add(m model.Message, images int) {
	all := q.input.Messages
	if m.Role == model.Assistant && (len(all) == 0 || all[len(all)-1].Role != model.Assistant) {
		q.input.Index++
	}
	q.extra += images * perImage
	q.input.Messages = append(all, m)
}

type chatCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func chatCallOf(c model.ToolCall) (o chatCall) {
	o.ID, o.Type = c.ID, "function"
	o.Function.Name, o.Function.Arguments = c.Name, c.Args
	return o
}

func finishReason(s model.Stop) string {
	switch s {
	case model.StopTools:
		return "tool_calls"
	case model.StopLength:
		return "length"
	case model.StopFilter:
		return "content_filter"
	}
	return "stop"
}

// An object is a JSON object. Its first keys are those that real providers
// write first.
type object map[string]any

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	keys := slices.SortedFunc(maps.Keys(o), func(a, b string) int {
		return cmp.Or(cmp.Compare(keyOrder(a), keyOrder(b)), cmp.Compare(a, b))
	})
	b := []byte{'{'}
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		v, err := encode(o[k])
		if err != nil {
			return nil, err
		}
		b = append(append(append(append(b, '"'), k...), `":`...), v...)
	}
	return append(b, '}'), nil
}

func keyOrder(key string) int {
	if at := slices.Index([]string{"type", "id", "object", "index", "role"}, key); at >= 0 {
		return at
	}
	return 9
}

func (chat) usage(a *answer) any {
	if a.reported == nil {
		return nil
	}
	u := a.reported
	return object{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     object{"cached_tokens": u.CacheRead, "audio_tokens": 0},
		"completion_tokens_details": object{"reasoning_tokens": a.thinking, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
	}
}

func (c chat) body(a *answer) any {
	var choices []any
	for i := range a.req.choices {
		msg := object{"role": "assistant", "content": a.text, "refusal": nil, "annotations": []any{}}
		if a.text == "" && len(a.calls) > 0 {
			msg["content"] = nil
		}
		if len(a.calls) > 0 {
			var calls []chatCall
			for _, call := range a.calls {
				calls = append(calls, chatCallOf(call))
			}
			msg["tool_calls"] = calls
		}
		choices = append(choices, object{"index": i, "message": msg, "logprobs": nil, "finish_reason": finishReason(a.stop)})
	}
	o := object{
		"id": "chatcmpl-" + a.id, "object": "chat.completion", "created": a.created, "model": a.req.model,
		"choices": choices, "service_tier": "default", "system_fingerprint": "fp_mock",
	}
	if u := c.usage(a); u != nil {
		o["usage"] = u
	}
	return o
}

// chunk returns one event. If the client asked for usage, each event has the
// key, mostly as null.
func (c chat) chunk(a *answer, choices []any, usage any) object {
	o := object{
		"id": "chatcmpl-" + a.id, "object": "chat.completion.chunk", "created": a.created, "model": a.req.model,
		"service_tier": "default", "system_fingerprint": "fp_mock", "choices": choices,
	}
	if a.req.usage {
		o["usage"] = usage
	}
	return o
}

func (c chat) events(s *stream, a *answer) {
	for i := range a.req.choices {
		c.streamChoice(s, a, i)
	}
	if a.req.usage && a.reported != nil {
		s.event("", c.chunk(a, []any{}, c.usage(a)))
	}
	s.event("", []byte("[DONE]"))
}

func (c chat) streamChoice(s *stream, a *answer, i int) {
	form := func(d object, finish any) object {
		return c.chunk(a, []any{object{"index": i, "delta": d, "logprobs": nil, "finish_reason": finish}}, nil)
	}
	first := object{"role": "assistant", "content": "", "refusal": nil}
	if a.text == "" && len(a.calls) > 0 {
		first["content"] = nil
	}
	s.event("", form(first, nil))
	for range s.pieces(a.thoughts) { // thoughts cost time and money, and Chat does not show them
	}
	s.deltas("", a.text, func(p string) object { return form(object{"content": p}, nil) })
	for n, call := range a.calls {
		o := chatCallOf(call)
		o.Index, o.Function.Arguments = &n, ""
		s.event("", form(object{"tool_calls": []chatCall{o}}, nil))
		s.countPaid(len(call.Name))
		s.deltas("", call.Args, func(p string) object {
			part := chatCall{Index: &n}
			part.Function.Arguments = p
			return form(object{"tool_calls": []chatCall{part}}, nil)
		})
	}
	s.event("", form(object{}, finishReason(a.stop)))
}
