// Package load runs agents that call a provider directly, each on its own. Benchmarks
// compare Kern with them.
package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/model"
)

// Script returns the answers for agents that research and report: a number of
// tool calls, then a report.
func Script(searches int) *model.Script {
	s := &model.Script{Name: "research", Price: model.Price{Input: 3e9, Output: 15e9}}
	size := func(n int) *int { return &n }
	for i := range searches {
		s.Replies = append(s.Replies, model.Reply{Calls: []model.ScriptCall{{Tool: "search", Args: fmt.Sprintf(`{"page":%d}`, i+1)}}, Input: size(60 + 40*i), Output: size(20)})
	}
	s.Replies = append(s.Replies, model.Reply{Text: "the report", Input: size(60 + 40*searches), Output: size(60)})
	return s
}

// Agents ask a provider as programs with a plain client do: each retries twice,
// like the official clients, and then gives up.
type Agents struct {
	Base   string // base URL of the provider, with /v1
	Number int
}

// A Result sums up a run of agents.
type Result struct {
	Finished int
	Died     int
	Why      string // the error of the first agent that died
	Took     time.Duration
}

// Run starts all agents at once and waits for them.
func (c Agents) Run(ctx context.Context) Result {
	start := time.Now()
	var mu sync.Mutex
	var t Result
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.Number}}
	defer client.CloseIdleConnections()
	for range c.Number {
		all.Go(func() {
			err := c.runAgent(ctx, client)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				t.Finished++
				return
			}
			if t.Died++; t.Why == "" {
				t.Why = err.Error()
			}
		})
	}
	all.Wait()
	t.Took = time.Since(start)
	return t
}

// runAgent asks until the provider answers with a report.
func (c Agents) runAgent(ctx context.Context, client *http.Client) error {
	said := []map[string]any{{"role": "user", "content": "research and report"}}
	for {
		var a struct {
			Choices []struct {
				Message map[string]any `json:"message"`
			} `json:"choices"`
		}
		if err := c.ask(ctx, client, said, &a); err != nil {
			return err
		}
		if len(a.Choices) == 0 {
			return fmt.Errorf("an answer without a choice")
		}
		m := a.Choices[0].Message
		calls, _ := m["tool_calls"].([]any)
		if len(calls) == 0 {
			return nil
		}
		said = append(said, m)
		for _, call := range calls {
			one, _ := call.(map[string]any)
			said = append(said, map[string]any{"role": "tool", "tool_call_id": one["id"], "content": "a page"})
		}
	}
}

func (c Agents) ask(ctx context.Context, client *http.Client, said []map[string]any, to any) error {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": said, "max_tokens": 100})
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		wait, err := c.post(ctx, client, body, to)
		if err == nil || wait == 0 || try == 2 {
			return err
		}
		t := time.NewTimer(max(wait, 500*time.Millisecond<<try))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// post sends one request. A wait above 0 allows another try.
func (c Agents) post(ctx context.Context, client *http.Client, body []byte, to any) (wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer crowd")
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return time.Nanosecond, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return time.Nanosecond, err
	case resp.StatusCode == http.StatusOK:
		return 0, json.Unmarshal(b, to)
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= 500:
		wait = max(format.RetryAfter(resp.Header, time.Now()), time.Nanosecond)
	}
	return wait, fmt.Errorf("%s: %s", resp.Status, problemOf(b))
}

// problemOf returns the message of an error body.
func problemOf(b []byte) string {
	var p struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &p) != nil || p.Error.Message == "" {
		return string(b)
	}
	return p.Error.Message
}
