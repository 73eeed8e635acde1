package format

import (
	"encoding/json"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tariff"
)

// A Call is a model's wish to have a tool called.
type Call struct {
	ID     string // as the format names it; of the functions of old, which have none, "function_call:" and the name
	Name   string
	Args   string // what the model wrote, byte for byte: it may not be JSON
	Hosted bool   // the provider runs the tool itself
	Whole  bool   // it is complete; of an answer, see Meter
}

// A Result is what a tool gave, sent back to the model.
type Result struct {
	ID     string // of the call that it answers
	Text   string // the texts of Raw; of what is no text, the JSON
	Raw    json.RawMessage
	Failed bool // the client says so; only Anthropic's format can
}

// Calls are the tool calls of the last turn of the assistant.
func (r *Request) Calls() (calls []Call) {
	for _, m := range r.Messages[r.turn():] {
		calls = append(calls, callsOf(m)...)
	}
	return calls
}

// Results are the tool results that came after the last turn of the assistant
// began: those that the model has not read yet. Where a conversation is a list
// of items, calls and results of several turns may stand in a row; then
// earlier results are among them, and their ids tell.
func (r *Request) Results() (results []Result) {
	for _, m := range r.Messages[r.turn():] {
		results = append(results, resultsOf(m)...)
	}
	return results
}

// turn is where the last turn of the assistant begins: its last message, and
// of a list of items the calls and results without a message of a user
// between them.
func (r *Request) turn() int {
	if r.Format == Embeddings {
		return len(r.Messages)
	}
	at := 0
	for i := len(r.Messages) - 1; i >= 0; i-- {
		role := jsontext.String(jsontext.Get(r.Messages[i], "role"))
		if r.Format != Responses {
			if role == "assistant" {
				return i
			}
			continue
		}
		kind := jsontext.String(jsontext.Get(r.Messages[i], "type"))
		item := strings.HasSuffix(kind, "_call") || strings.HasSuffix(kind, "_call_output") || kind == "reasoning" || role == "assistant"
		switch {
		case item:
			at = i
		case at > 0:
			return at
		}
	}
	return at
}

// callsOf finds the calls in a message, a block of one, or an item.
func callsOf(m []byte) (calls []Call) {
	switch role, kind := jsontext.String(jsontext.Get(m, "role")), jsontext.String(jsontext.Get(m, "type")); {
	case jsontext.Kind(m) != '{':
	case role == "assistant":
		for _, t := range jsontext.Elements(jsontext.Get(m, "tool_calls")) {
			calls = append(calls, chatCall(t))
		}
		if f := jsontext.Get(m, "function_call"); jsontext.Kind(f) == '{' {
			calls = append(calls, chatCall(f))
		}
		for _, block := range jsontext.Elements(jsontext.Get(m, "content")) {
			if c, ok := blockCall(block); ok {
				calls = append(calls, c)
			}
		}
	case strings.HasSuffix(kind, "_call"):
		calls = append(calls, itemCall(m, kind))
	}
	return calls
}

// chatCall reads a call of a Chat message, also one in the way of old, where
// the function itself stands in the place of the call.
func chatCall(t []byte) Call {
	c := Call{Whole: true}
	f, old := t, true
	for k, v := range jsontext.Members(t) {
		switch string(k) {
		case "id":
			c.ID = jsontext.String(v)
		case "function", "custom":
			f, old = v, false
		}
	}
	for k, v := range jsontext.Members(f) {
		switch string(k) {
		case "name":
			c.Name = jsontext.String(v)
		case "arguments", "input":
			c.Args = loose(v)
		}
	}
	if old && c.ID == "" {
		c.ID = oldID(c.Name)
	}
	return c
}

// oldID stands for the id that a function of old does not have.
func oldID(name string) string { return "function_call:" + name }

// blockCall reads a block of an Anthropic message.
func blockCall(b []byte) (c Call, ok bool) {
	c.Whole = true
	for k, v := range jsontext.Members(b) {
		switch string(k) {
		case "type":
			kind := jsontext.String(v)
			ok = strings.HasSuffix(kind, "tool_use")
			c.Hosted = kind != "tool_use"
		case "id":
			c.ID = jsontext.String(v)
		case "name":
			c.Name = jsontext.String(v)
		case "input":
			c.Args = string(v)
		}
	}
	return c, ok
}

// itemCall reads an item of Responses. The field with its arguments
// depends on the tool.
func itemCall(m []byte, kind string) Call {
	c := Call{Hosted: !tariff.OwnItem(kind), Name: strings.TrimSuffix(kind, "_call"), Whole: true}
	id := ""
	for k, v := range jsontext.Members(m) {
		switch string(k) {
		case "id":
			id = jsontext.String(v)
		case "call_id":
			c.ID = jsontext.String(v)
		case "name":
			c.Name = jsontext.String(v)
		case "arguments", "input", "action", "operation":
			c.Args = loose(v)
		}
	}
	if c.ID == "" {
		c.ID = id
	}
	return c
}

// resultsOf finds the results in a message or an item.
func resultsOf(m []byte) (results []Result) {
	role, kind := "", ""
	var id, name string
	var content, output []byte
	for k, v := range jsontext.Members(m) {
		switch string(k) {
		case "role":
			role = jsontext.String(v)
		case "type":
			kind = jsontext.String(v)
		case "tool_call_id", "call_id":
			id = jsontext.String(v)
		case "name":
			name = jsontext.String(v)
		case "content":
			content = v
		case "output":
			output = v
		}
	}
	switch {
	case role == "tool":
		return []Result{{ID: id, Text: loose(content), Raw: content}}
	case role == "function":
		return []Result{{ID: oldID(name), Text: loose(content), Raw: content}}
	case strings.HasSuffix(kind, "_call_output"):
		return []Result{{ID: id, Text: loose(output), Raw: output}}
	case role != "user":
		return nil
	}
	for _, block := range jsontext.Elements(content) {
		if r, ok := blockResult(block); ok {
			results = append(results, r)
		}
	}
	return results
}

func blockResult(b []byte) (r Result, ok bool) {
	for k, v := range jsontext.Members(b) {
		switch string(k) {
		case "type":
			ok = jsontext.String(v) == "tool_result"
		case "tool_use_id":
			r.ID = jsontext.String(v)
		case "content":
			r.Raw, r.Text = v, loose(v)
		case "is_error":
			r.Failed = jsontext.Kind(v) == 't'
		}
	}
	return r, ok
}

// bare is loose without a copy where none is needed.
func bare(v []byte) []byte {
	if jsontext.Kind(v) == '"' {
		return jsontext.Bare(v)
	}
	return []byte(loose(v))
}

// loose is a text: a string, the texts of a list of parts, nothing for null,
// and the JSON of anything else.
func loose(v []byte) string {
	switch jsontext.Kind(v) {
	case 'n':
		return ""
	case '"':
		return jsontext.String(v)
	case '[':
		var b strings.Builder
		for _, p := range jsontext.Elements(v) {
			t := jsontext.Get(p, "text")
			if jsontext.Kind(t) != '"' {
				return string(v)
			}
			b.WriteString(jsontext.String(t))
		}
		return b.String()
	}
	return string(v)
}
