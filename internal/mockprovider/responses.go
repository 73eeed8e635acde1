package mockprovider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// responses is POST /v1/responses.
type responses struct{ mock *Mock }

func (responses) vendor() vendor { return openAI{} }

type responsesRequest struct {
	Model        string `json:"model"`
	Instructions string `json:"instructions"`
	Input        items  `json:"input"`
	Tools        []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"tools"`
	Text struct {
		Format struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"text"`
	Reasoning *struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
	Stream   bool   `json:"stream"`
	Max      *int   `json:"max_output_tokens"`
	Previous string `json:"previous_response_id"`
	Store    *bool  `json:"store"`
}

// items are a text or a list of items.
type items []item

type item struct {
	ID        string  `json:"id"`
	Type      string  `json:"type"`
	Role      string  `json:"role"`
	Content   content `json:"content"`
	CallID    string  `json:"call_id"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Output    content `json:"output"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (i *items) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*i = items{{Role: "user", Content: content{text: s}}}
		return nil
	}
	return json.Unmarshal(raw, (*[]item)(i))
}

func (f responses) parse(body []byte) (*request, *problem) {
	var r responsesRequest
	if p := decode(body, &r); p != nil {
		return nil, p
	}
	switch {
	case r.Model == "":
		return nil, bad("the model is missing; expected a string in model")
	case len(r.Input) == 0:
		return nil, bad("the input is missing; expected a string or a list of items in input")
	}
	q := &request{model: r.Model, stream: r.Stream, usage: true, choices: 1, schema: r.Text.Format.Schema}
	if r.Max != nil {
		if q.input.MaxOutput = *r.Max; *r.Max < 1 {
			return nil, bad("max_output_tokens is %d, expected 1 or more", *r.Max)
		}
	}
	q.showThoughts = r.Reasoning != nil && thinks(r.Reasoning.Effort)
	if r.Instructions != "" {
		q.add(model.Message{Role: model.System, Text: r.Instructions}, 0)
	}
	if r.Previous != "" {
		t := f.mock.conversation(r.Previous)
		if t == nil {
			return nil, &problem{status: http.StatusNotFound, kind: badRequest, message: fmt.Sprintf("previous response with id %q not found", r.Previous)}
		}
		for _, m := range t.messages {
			q.add(m, 0)
		}
	}
	for _, it := range r.Input {
		if it.Type == "item_reference" {
			if it = f.findItem(it.ID); it.Type == "" {
				return nil, &problem{status: http.StatusNotFound, kind: badRequest, message: "an item that is referred to is not kept here; expected the id of one, of a response with store: true"}
			}
		}
		q.addItem(it)
	}
	for _, t := range r.Tools {
		if t.Type == "function" {
			q.input.Tools = append(q.input.Tools, model.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.Parameters})
		}
	}
	q.extra += tokens.CountText(string(q.schema))
	q.echoed = requestEcho(body)
	if r.Store == nil || *r.Store {
		q.store = func(a *answer) *conversation { return f.conversation(q, a) }
	}
	return q, checkResults(q.input.Messages)
}

// findItem returns an item of a stored response by its id.
func (f responses) findItem(id string) item {
	kind, rest, _ := strings.Cut(id, "_")
	rest, n, _ := strings.Cut(rest, "_")
	t := f.mock.conversation("resp_" + rest)
	if t == nil {
		return item{}
	}
	said := t.messages[len(t.messages)-1]
	switch i, err := strconv.Atoi(n); {
	case kind == "msg":
		return item{Type: "message", Role: "assistant", Content: content{text: said.Text}}
	case kind == "rs":
		return item{Type: "reasoning"}
	case kind == "fc" && err == nil && i >= 0 && i < len(said.Calls):
		return item{Type: "function_call", CallID: said.Calls[i].ID, Name: said.Calls[i].Name, Arguments: said.Calls[i].Args}
	}
	return item{}
}

// addItem adds an item. The calls of one answer become one message.
func (q *request) addItem(it item) {
	switch it.Type {
	case "function_call":
		call := model.ToolCall{ID: it.CallID, Name: it.Name, Args: it.Arguments}
		if all := q.input.Messages; len(all) > 0 && all[len(all)-1].Role == model.Assistant {
			last := &all[len(all)-1]
			last.Calls = append(slices.Clip(last.Calls), call)
			return
		}
		q.add(model.Message{Role: model.Assistant, Calls: []model.ToolCall{call}}, 0)
	case "function_call_output":
		q.add(model.Message{Role: model.Tool, CallID: it.CallID, Text: it.Output.text}, it.Output.images)
	case "", "message":
		q.add(model.Message{Role: roleOf(it.Role), Text: it.Content.text}, it.Content.images)
	}
}

// conversation returns the conversation with its answer. It leaves out the
// instructions, because each request brings its own.
func (responses) conversation(q *request, a *answer) *conversation {
	t := &conversation{id: "resp_" + a.id}
	for _, m := range q.input.Messages {
		if m.Role != model.System {
			t.messages = append(t.messages, m)
		}
	}
	t.messages = append(t.messages, model.Message{Role: model.Assistant, Text: a.text, Calls: a.calls})
	return t
}

// requestEcho returns the fields of a request that the response repeats, with
// their defaults.
func requestEcho(body []byte) object {
	back := object{
		"instructions": nil, "tools": []any{}, "tool_choice": "auto", "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0,
		"max_output_tokens": nil, "previous_response_id": nil, "reasoning": object{"effort": nil, "summary": nil}, "store": true,
		"text": object{"format": object{"type": "text"}}, "truncation": "disabled", "metadata": object{}, "user": nil,
	}
	var r map[string]json.RawMessage
	if json.Unmarshal(body, &r) == nil {
		for k := range maps.Clone(back) {
			if v := bytes.TrimSpace(r[k]); len(v) > 0 && string(v) != "null" {
				back[k] = r[k]
			}
		}
	}
	return back
}

func (f responses) response(a *answer, status string, output []any) object {
	o := maps.Clone(a.req.echoed)
	for k, v := range (object{
		"id": "resp_" + a.id, "object": "response", "created_at": a.created, "status": status, "model": a.req.model, "background": false,
		"error": nil, "incomplete_details": nil, "output": output, "service_tier": "default", "usage": nil,
	}) {
		o[k] = v
	}
	if status == "incomplete" {
		o["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	if u := a.reported; u != nil && status != "in_progress" {
		o["usage"] = object{
			"input_tokens": u.Input, "input_tokens_details": object{"cached_tokens": u.CacheRead},
			"output_tokens": u.Output, "output_tokens_details": object{"reasoning_tokens": a.thinking},
			"total_tokens": u.Input + u.Output,
		}
	}
	return o
}

func (responses) status(a *answer) string {
	if a.stop == model.StopLength {
		return "incomplete"
	}
	return "completed"
}

// The items of a finished answer.
func reasoningItem(a *answer) object {
	return object{"id": "rs_" + a.id, "type": "reasoning", "summary": []any{object{"type": "summary_text", "text": a.thoughts}}}
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

func messageItem(a *answer, status string, content []any) object {
	return object{"id": "msg_" + a.id, "type": "message", "role": "assistant", "status": status, "content": content}
}

func callItem(a *answer, i int, status, args string) object {
	c := a.calls[i]
	return object{"id": fmt.Sprintf("fc_%s_%d", a.id, i), "type": "function_call", "status": status, "call_id": c.ID, "name": c.Name, "arguments": args}
}

func (f responses) output(a *answer) []any {
	out := []any{}
	if a.thoughts != "" {
		out = append(out, reasoningItem(a))
	}
	if a.text != "" || len(a.calls) == 0 {
		out = append(out, messageItem(a, f.status(a), []any{textPart(a.text)}))
	}
	for i, c := range a.calls {
		out = append(out, callItem(a, i, "completed", c.Args))
	}
	return out
}

func (f responses) body(a *answer) any { return f.response(a, f.status(a), f.output(a)) }

// A sequence numbers the events of one response.
type sequence struct {
	s *stream
	n int
}

func (q *sequence) event(kind string, fields object) {
	fields["type"], fields["sequence_number"] = kind, q.n
	q.n++
	q.s.event(kind, fields)
}

func (f responses) events(s *stream, a *answer) {
	q := &sequence{s: s}
	q.event("response.created", object{"response": f.response(a, "in_progress", []any{})})
	q.event("response.in_progress", object{"response": f.response(a, "in_progress", []any{})})
	index := 0
	if a.thoughts != "" {
		f.streamReasoning(q, a, index)
		index++
	}
	if a.text != "" || len(a.calls) == 0 {
		f.streamMessage(q, a, index)
		index++
	}
	for i := range a.calls {
		f.streamCall(q, a, i, index)
		index++
	}
	status := f.status(a)
	q.event("response."+status, object{"response": f.response(a, status, f.output(a))})
}

func (responses) streamReasoning(q *sequence, a *answer, index int) {
	id := "rs_" + a.id
	at := func(o object) object {
		o["item_id"], o["output_index"], o["summary_index"] = id, index, 0
		return o
	}
	q.event("response.output_item.added", object{"output_index": index, "item": object{"id": id, "type": "reasoning", "summary": []any{}}})
	q.event("response.reasoning_summary_part.added", at(object{"part": object{"type": "summary_text", "text": ""}}))
	for p := range q.s.pieces(a.thoughts) {
		q.event("response.reasoning_summary_text.delta", at(object{"delta": p}))
	}
	q.event("response.reasoning_summary_text.done", at(object{"text": a.thoughts}))
	q.event("response.reasoning_summary_part.done", at(object{"part": object{"type": "summary_text", "text": a.thoughts}}))
	q.event("response.output_item.done", object{"output_index": index, "item": reasoningItem(a)})
}

func (f responses) streamMessage(q *sequence, a *answer, index int) {
	at := func(o object) object {
		o["item_id"], o["output_index"], o["content_index"] = "msg_"+a.id, index, 0
		return o
	}
	q.event("response.output_item.added", object{"output_index": index, "item": messageItem(a, "in_progress", []any{})})
	q.event("response.content_part.added", at(object{"part": textPart("")}))
	for p := range q.s.pieces(a.text) {
		q.event("response.output_text.delta", at(object{"delta": p, "logprobs": []any{}}))
	}
	q.event("response.output_text.done", at(object{"text": a.text, "logprobs": []any{}}))
	q.event("response.content_part.done", at(object{"part": textPart(a.text)}))
	q.event("response.output_item.done", object{"output_index": index, "item": messageItem(a, f.status(a), []any{textPart(a.text)})})
}

func (responses) streamCall(q *sequence, a *answer, i, index int) {
	c := a.calls[i]
	at := func(o object) object {
		o["item_id"], o["output_index"] = fmt.Sprintf("fc_%s_%d", a.id, i), index
		return o
	}
	q.event("response.output_item.added", object{"output_index": index, "item": callItem(a, i, "in_progress", "")})
	q.s.countPaid(len(c.Name))
	for p := range q.s.pieces(c.Args) {
		q.event("response.function_call_arguments.delta", at(object{"delta": p}))
	}
	q.event("response.function_call_arguments.done", at(object{"name": c.Name, "arguments": c.Args}))
	q.event("response.output_item.done", object{"output_index": index, "item": callItem(a, i, "completed", c.Args)})
}
