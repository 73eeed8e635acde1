package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"
)

// obj is a JSON object.
type obj = map[string]any

// A conversation of a client with a model, in one of the formats.
type conversation struct {
	w     *world
	t     *tenant
	rnd   *rand.Rand
	face  string // chat, responses, messages, embeddings
	tools bool
	child string // the child of the key's process that makes it
	said  []any
}

// runClient has one conversation after the other.
func (w *world) runClient(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		t := w.anyTenant(rnd)
		if t == nil {
			w.pause(ctx, 50*time.Millisecond)
			continue
		}
		k := &conversation{w: w, t: t, rnd: rnd, face: []string{"chat", "chat", "responses", "messages", "messages", "embeddings"}[rnd.IntN(6)], tools: rnd.IntN(2) == 0}
		if rnd.IntN(8) == 0 {
			k.child = fmt.Sprintf("kid%d", rnd.IntN(5))
		}
		for turns := 1 + rnd.IntN(7); turns > 0 && ctx.Err() == nil; turns-- {
			if !k.ask(ctx) {
				break
			}
		}
		w.pause(ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
	}
}

// pause waits between two requests of a client.
func (w *world) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

var paths = map[string]string{"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages", "embeddings": "/v1/embeddings"}

// ask sends one request, and reports whether the conversation goes on.
func (k *conversation) ask(ctx context.Context) bool {
	stream := k.face != "embeddings" && k.rnd.IntN(2) == 0
	said := obj{"role": "user", "content": words(k.rnd, 5+k.rnd.IntN(60))}
	if n := len(k.said); n == 0 || !isToolResult(k.said[n-1]) {
		k.said = append(k.said, said)
	}
	body, err := json.Marshal(k.request(stream))
	if err != nil {
		k.w.fault("a request cannot be written: %v", err)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", k.t.base+paths[k.face], bytes.NewReader(body))
	if err != nil {
		k.w.fault("no request: %v", err)
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+k.t.key)
	if k.child != "" {
		r.Header.Set("X-Kern-Child", k.child)
		r.Header.Set("X-Kern-Limits", "money=0.01,steps=40")
	}
	k.w.requests.Add(1)
	res, err := k.w.http.Do(r)
	if err != nil {
		k.w.count(k.face + ": nobody there, or cut off")
		return false
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return k.refused(res)
	}
	switch n := k.rnd.IntN(100); {
	case n < 8: // it hangs up in the middle
		_, _ = io.CopyN(io.Discard, res.Body, int64(k.rnd.IntN(400)))
		k.w.count(k.face + ": hung up")
		return false
	case n < 11: // it reads slowly, and then no more
		for range 40 {
			if _, err := io.CopyN(io.Discard, res.Body, 32); err != nil {
				break
			}
			k.w.pause(ctx, 20*time.Millisecond)
		}
		k.w.count(k.face + ": read slowly")
		return false
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		k.w.count(k.face + ": cut off in the answer")
		return false
	}
	k.w.count(k.face + ": answered")
	return k.face != "embeddings" && k.addAnswer(b, stream)
}

func (k *conversation) refused(res *http.Response) bool {
	b, _ := io.ReadAll(res.Body) // it is a refusal all the same
	code := res.Header.Get("X-Kern-Code")
	if code == "" {
		code = between(string(b), `"code":"`, `"`)
	}
	k.w.count(fmt.Sprintf("%s: %d %s", k.face, res.StatusCode, code))
	if res.StatusCode == http.StatusInternalServerError {
		k.w.fault("%s: 500 %.300s", k.face, b)
	}
	if res.StatusCode == 401 || res.StatusCode == 403 || res.StatusCode == 402 {
		k.w.forget(k.t)
	}
	return false
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// isToolResult reports whether a message brings tool results.
func isToolResult(m any) bool {
	o, _ := m.(obj)
	_, list := o["content"].([]any)
	return o["role"] == "tool" || o["type"] == "function_call_output" || list && o["role"] == "user"
}

func (k *conversation) request(stream bool) obj {
	schema := obj{"type": "object", "properties": obj{"page": obj{"type": "integer"}, "text": obj{"type": "string"}}}
	switch k.face {
	case "embeddings":
		return obj{"model": k.t.model, "input": words(k.rnd, 30)}
	case "messages":
		q := obj{"model": k.t.model, "messages": k.said, "stream": stream, "max_tokens": 300}
		if k.tools {
			q["tools"] = []any{obj{"name": "look", "input_schema": schema}, obj{"name": "note", "input_schema": schema}}
		}
		return q
	case "responses":
		q := obj{"model": k.t.model, "input": k.said, "stream": stream, "store": false}
		if k.tools {
			q["tools"] = []any{obj{"type": "function", "name": "look", "parameters": schema}, obj{"type": "function", "name": "note", "parameters": schema}}
		}
		return q
	}
	q := obj{"model": k.t.model, "messages": k.said, "stream": stream}
	if k.tools {
		q["tools"] = []any{obj{"type": "function", "function": obj{"name": "look", "parameters": schema}}, obj{"type": "function", "function": obj{"name": "note", "parameters": schema}}}
	}
	return q
}

// addAnswer adds an answer to the conversation, with the results of its tools.
func (k *conversation) addAnswer(b []byte, stream bool) bool {
	if stream { // its words are not put together again: something like it was said
		if !bytes.Contains(b, []byte("[DONE]")) && !bytes.Contains(b, []byte("message_stop")) && !bytes.Contains(b, []byte("response.completed")) {
			k.w.count(k.face + ": of these, a stream without its end")
			return false
		}
		k.said = append(k.said, obj{"role": "assistant", "content": "So it was said."})
		return true
	}
	var a struct {
		Choices []struct{ Message obj } `json:"choices"`
		Content []any                   `json:"content"`
		Output  []any                   `json:"output"`
	}
	if err := json.Unmarshal(b, &a); err != nil {
		k.w.count(k.face + ": of these, an answer that cannot be read")
		return false
	}
	leaves := k.rnd.IntN(10) == 0 // with tool calls open
	switch {
	case len(a.Choices) > 0:
		m := a.Choices[0].Message
		k.said = append(k.said, m)
		calls, _ := m["tool_calls"].([]any)
		for _, c := range calls {
			k.said = append(k.said, obj{"role": "tool", "tool_call_id": c.(obj)["id"], "content": words(k.rnd, 8)})
		}
	case k.face == "messages":
		k.said = append(k.said, obj{"role": "assistant", "content": a.Content})
		var results []any
		for _, c := range a.Content {
			if c := c.(obj); c["type"] == "tool_use" {
				results = append(results, obj{"type": "tool_result", "tool_use_id": c["id"], "content": words(k.rnd, 8)})
			}
		}
		if results != nil {
			k.said = append(k.said, obj{"role": "user", "content": results})
		}
	default:
		k.said = append(k.said, a.Output...)
		for _, c := range a.Output {
			if c := c.(obj); c["type"] == "function_call" {
				k.said = append(k.said, obj{"type": "function_call_output", "call_id": c["call_id"], "output": words(k.rnd, 8)})
			}
		}
	}
	return !leaves
}

// runAgentProgram is the program under kern exec. It asks until it is refused, and
// starts descendants that try to outlive it.
func runAgentProgram() {
	startStubborn()
	base, key, model := os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY"), os.Getenv("SOAK_MODEL")
	said := []any{}
	for i := range 1000 {
		said = append(said, obj{"role": "user", "content": fmt.Sprintf("question %d of %s", i, model)})
		body, err := json.Marshal(obj{"model": model, "messages": said, "stream": i%2 == 0, "max_tokens": 200})
		if err != nil {
			return
		}
		r, err := http.NewRequest("POST", base+"/chat/completions", bytes.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil { // the daemon is away: it comes back
			time.Sleep(200 * time.Millisecond)
			continue
		}
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
		}
		res.Body.Close()
		said = append(said, obj{"role": "assistant", "content": "well"})
		if len(said) > 20 {
			said = nil
		}
	}
}
