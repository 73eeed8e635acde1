package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
)

// Mutants that die here: the model is not told of its tools, or is so for its
// last words; last words that are as long as any; what was said is left out of
// the next request, or stands there twice.

// heard is a request as a provider reads it.
type heard struct {
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		CallID  string `json:"tool_call_id"`
		Calls   []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Max int `json:"max_completion_tokens"`
}

// lines are its messages, and what each calls or answers.
func (h *heard) lines() (all []string) {
	for _, m := range h.Messages {
		s := m.Role + ": " + m.Content
		if m.CallID != "" {
			s += " to " + m.CallID
		}
		for _, c := range m.Calls {
			s += " calls " + c.ID
		}
		all = append(all, s)
	}
	return all
}

// TestWhatTheModelIsAsked is a run as its provider sees it: each request says
// what was said before, once, and which tools there are; the one for last words
// has none, and asks for little.
func TestWhatTheModelIsAsked(t *testing.T) {
	var mu sync.Mutex
	var requests []heard
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var h heard
		if err := json.NewDecoder(r.Body).Decode(&h); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, h)
		w.Header().Set("Content-Type", "application/json")
		message := fmt.Sprintf(`{"role":"assistant","content":"part %d","tool_calls":[{"id":"c%[1]d","type":"function","function":{"name":"look","arguments":"{\"n\":%[1]d}"}}]}`, len(requests))
		if len(h.Tools) == 0 {
			message = `{"role":"assistant","content":"in short"}`
		}
		fmt.Fprintf(w, `{"choices":[{"message":%s,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, message)
	}))
	defer provider.Close()
	k, err := host.Open(host.Config{Dir: t.TempDir(), Getenv: func(name string) string {
		return map[string]string{"OPENAI_API_KEY": "sk-of-a-test", "OPENAI_BASE_URL": provider.URL}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	look := host.Tool("look", "Look.", func(_ context.Context, in number) (string, error) { return fmt.Sprint("seen ", in.N), nil })
	r, err := k.Run(t.Context(), host.Agent{Model: "openai:gpt-4o", System: "be brief", Tools: []host.Callable{look}, Limits: host.Limits{abi.ToolCalls: 2}}, "go")
	if err != nil || r.Exit != abi.ExitLimit || r.Output != "in short" {
		t.Errorf("%+v %v", r, err)
	}
	if len(requests) != 4 {
		t.Fatalf("%d requests", len(requests))
	}
	said := []string{"system: be brief", "user: go", "assistant: part 1 calls c1", "tool: seen 1 to c1", "assistant: part 2 calls c2", "tool: seen 2 to c2", "assistant: part 3 calls c3"}
	for i := range requests {
		h := &requests[i]
		last := i == len(requests)-1
		got := h.lines()
		want := said[:min(2*i+2, len(said))]
		if last {
			if len(got) < len(said)+1 || !strings.Contains(got[len(said)], "LIMIT_TOOL_CALLS") {
				t.Errorf("the last words are asked for after %q", got[min(len(got), len(said)):])
			}
		}
		if n := min(len(got), len(want)); !slices.Equal(got[:n], want) || !last && len(got) != len(want) {
			t.Errorf("request %d says\n%q, want\n%q", i, got, want)
		}
		if tools := len(h.Tools); tools > 1 || (tools == 1) == last || tools == 1 && h.Tools[0].Function.Name != "look" {
			t.Errorf("request %d tells of %+v", i, h.Tools)
		}
		if small := h.Max > 0 && h.Max <= 1024; small != last {
			t.Errorf("request %d asks for at most %d tokens", i, h.Max)
		}
	}
}
