//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

// agentMain is the program agent, which knows nothing of Kern: it asks a model
// at the address and with the key that its environment names, as SDKs do.
//
//	agent N [FILE]      asks N times, or until the model asks for no tool when N is 0; FILE must be there before the second time
//	agent env NAME...   prints variables
//	agent child N       asks once, N times as a child that may ask once, and once more
//
// Its tools do nothing. At an error it prints what came, and exits with 7.
func agentMain() {
	args := append(os.Args[1:], "")
	switch args[0] {
	case "env":
		for _, name := range args[1 : len(args)-1] {
			fmt.Println(name + "=" + os.Getenv(name))
		}
	case "child":
		n, _ := strconv.Atoi(args[1])
		a := agent{}
		a.must(a.ask("", "of the parent"))
		for range n {
			if m, status, err := a.ask("kid", "of the child"); err != nil || status != http.StatusOK {
				fmt.Println("child:", status, m.Error.Code, err)
			}
		}
		a.must(a.ask("", "again"))
		fmt.Println("the parent goes on")
	default:
		n, _ := strconv.Atoi(args[0])
		a := agent{msgs: []any{map[string]any{"role": "user", "content": "go"}}}
		for i := 0; n == 0 || i < n; i++ {
			for i == 1 && args[1] != "" && !there(args[1]) {
				time.Sleep(5 * time.Millisecond)
			}
			m := a.must(a.ask("", ""))
			fmt.Println(i+1, m.text())
			if a.answer(m); n == 0 && len(m.calls()) == 0 {
				return
			}
		}
	}
}

func there(name string) bool { _, err := os.Stat(name); return err == nil }

type agent struct{ msgs []any }

// an answer of the model, or an error.
type answer struct {
	Choices []struct{ Message json.RawMessage }
	Error   struct{ Code, Message string }
}

type message struct {
	Content    string
	Tool_calls []struct{ ID string }
}

func (a *answer) message() (m message) {
	if len(a.Choices) > 0 {
		_ = json.Unmarshal(a.Choices[0].Message, &m)
	}
	return m
}

func (a *answer) text() string                 { return a.message().Content }
func (a *answer) calls() []struct{ ID string } { return a.message().Tool_calls }

// answer adds an answer to the conversation, with the results of its tools.
func (a *agent) answer(m answer) {
	a.msgs = append(a.msgs, m.Choices[0].Message)
	for _, c := range m.calls() {
		a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": c.ID, "content": "nothing"})
	}
	if len(m.calls()) == 0 {
		a.msgs = append(a.msgs, map[string]any{"role": "user", "content": "more"})
	}
}

// ask makes a request, again when nobody answers, as SDKs do.
func (a *agent) ask(child, say string) (out answer, status int, err error) {
	body := map[string]any{"model": "m", "messages": a.msgs, "tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "look", "parameters": map[string]any{"type": "object"}}}}}
	if say != "" {
		body["messages"] = []any{map[string]any{"role": "user", "content": say}}
	}
	b, err := json.Marshal(body)
	if err != nil {
		return out, 0, err
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequest("POST", os.Getenv("OPENAI_BASE_URL")+"/chat/completions", bytes.NewReader(b))
		if err != nil {
			return out, 0, err
		}
		r.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
		r.Header.Set("Content-Type", "application/json")
		if child != "" {
			r.Header.Set("X-Kern-Child", child)
			r.Header.Set("X-Kern-Limits", "steps=1")
		}
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			b, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err == nil {
				err = json.Unmarshal(b, &out)
				return out, res.StatusCode, err
			}
		}
		if time.Since(begun) > patience {
			return out, 0, err
		}
	}
}

func (a *agent) must(m answer, status int, err error) answer {
	if err != nil || status != http.StatusOK {
		fmt.Println("error:", status, m.Error.Code, m.Error.Message, err)
		if os.Getenv("STUBBORN") != "" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		os.Exit(7)
	}
	return m
}
