package format

import (
	"encoding/json"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tariff"
)

// Call is a tool call in an answer of a model, or in a conversation.
type Call struct {
	ID     string // the id in the message; a deprecated function call has none, so its ID is "function_call:" and the name
	Name   string
	Args   string // the arguments byte for byte as the model wrote them; they may not be JSON
	Hosted bool   // the provider runs the tool itself
	Whole  bool   // the call is complete; in an answer, Meter sets it
}

// Result is a tool result that the client sends back to the model.
type Result struct {
	ID     string // the ID of the answered call
	Text   string // the text parts of Raw, or the JSON of Raw if it is not text
	Raw    json.RawMessage
	Failed bool // the client marked the result as an error; only Anthropic's format has the mark
}

// Calls returns the tool calls of the last turn of the assistant.
func (r *Request) Calls() (calls []Call) {
	for _, m := range r.Messages[r.turn():] {
		calls = append(calls, callsOf(m)...)
	}
	return calls
}

// Results returns the tool results after the start of the assistant's last turn: the
// results that the model has not read yet.
//
// A Responses conversation may have the calls and results of several turns in a row.
// Then Results includes earlier results, and the caller must compare their IDs.
func (r *Request) Results() (results []Result) {
	for _, m := range r.Messages[r.turn():] {
		results = append(results, resultsOf(m)...)
	}
	return results
}

// turn returns the index in Messages at which the last turn of the assistant begins.
// In Responses the turn is the last run of calls, results, thoughts and assistant
// messages. In the other formats it begins at the last assistant message.
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

// News splits the conversation at its end: said is the number of elements that the
// model made last, and news the number of elements after them, which it has not read.
func (r *Request) News() (said, news int) {
	i := len(r.Messages)
	for i > 0 && !madeByModel(r.Messages[i-1], r.Format) {
		i--
	}
	news = len(r.Messages) - i
	for i > 0 && madeByModel(r.Messages[i-1], r.Format) {
		i, said = i-1, said+1
	}
	return said, news
}

// madeByModel reports whether m is an answer of the model, or a part of one.
func madeByModel(m []byte, f Format) bool {
	if jsontext.String(jsontext.Get(m, "role")) == "assistant" {
		return true
	}
	kind := jsontext.String(jsontext.Get(m, "type"))
	return f == Responses && (strings.HasSuffix(kind, "_call") || kind == "reasoning")
}

// callsOf returns the calls in a message or in a Responses item.
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

// chatCall reads a call of a Chat message. It also reads the deprecated
// function_call, which is the bare function object without an id.
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

// oldID returns an ID for a deprecated function call, which has no id of its own.
func oldID(name string) string { return "function_call:" + name }

// blockCall reads a content block of Messages; ok means that the block is a call.
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

// itemCall reads a call item of Responses. The name of the field with the arguments
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

// resultsOf returns the tool results in a message or in a Responses item.
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
	// Each case is the result of another format; Messages has its results as blocks.
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

// blockResult reads a content block of Messages; ok means that the block is a result.
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

// bare returns the same text as loose, and avoids the copy for a plain string.
func bare(v []byte) []byte {
	if jsontext.Kind(v) == '"' {
		return jsontext.Bare(v)
	}
	return []byte(loose(v))
}

// loose returns the text of a JSON value: the string, the joined texts of a list
// of parts, "" for null, and the JSON itself for anything else.
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
