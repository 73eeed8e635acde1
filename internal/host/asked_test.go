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

// hearing opens a kernel whose provider keeps each request. It answers with a text, in
// which %d is the number of the request, and a call of the tool look. Without tools it
// answers with last words.
func hearing(t *testing.T, text string) (p *listener, k *host.Kernel) {
	t.Helper()
	p = &listener{}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var h heard
		if err := json.NewDecoder(r.Body).Decode(&h); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests = append(p.requests, h)
		n := len(p.requests)
		w.Header().Set("Content-Type", "application/json")
		message := fmt.Sprintf(`{"role":"assistant","content":%q,"tool_calls":[{"id":"c%[2]d","type":"function","function":{"name":"look","arguments":"{\"n\":%[2]d}"}}]}`,
			strings.ReplaceAll(text, "%d", fmt.Sprint(n)), n)
		if len(h.Tools) == 0 {
			message = `{"role":"assistant","content":"in short"}`
		}
		fmt.Fprintf(w, `{"choices":[{"message":%s,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, message)
	}))
	t.Cleanup(provider.Close)
	k, err := host.Open(host.Config{Dir: t.TempDir(), Getenv: func(name string) string {
		return map[string]string{"OPENAI_API_KEY": "sk-of-a-test", "OPENAI_BASE_URL": provider.URL}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, k
}

// A listener has the requests that a provider heard.
type listener struct {
	mu       sync.Mutex
	requests []heard
}

// TestWhatTheModelIsAsked is a run as its provider sees it: each request says
// what was said before, once, and which tools there are; the one for last words
// has none, and asks for little.
func TestWhatTheModelIsAsked(t *testing.T) {
	p, k := hearing(t, "part %d")
	look := host.Tool("look", "Look.", func(_ context.Context, in number) (string, error) { return fmt.Sprint("seen ", in.N), nil })
	r, err := k.Run(t.Context(), host.Agent{Model: "openai:gpt-4o", System: "be brief", Tools: []host.Callable{look}, Limits: host.Limits{abi.ToolCalls: 2}}, "go")
	if err != nil || r.Exit != abi.ExitLimit || r.Output != "in short" {
		t.Errorf("%+v %v", r, err)
	}
	requests := p.requests // the run has ended
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
