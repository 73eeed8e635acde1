// Package load is the other side of a provider's limits: programs that ask it
// each for itself, as most do. It is what Kern is compared with.
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

// Script is what a provider says to agents that research and report:
// so many looks with a tool, and then a report.
func Script(looks int) *model.Script {
	s := &model.Script{Name: "research", Price: model.Price{Input: 3e9, Output: 15e9}}
	size := func(n int) *int { return &n }
	for i := range looks {
		s.Replies = append(s.Replies, model.Reply{Calls: []model.ScriptCall{{Tool: "search", Args: fmt.Sprintf(`{"page":%d}`, i+1)}}, Input: size(60 + 40*i), Output: size(20)})
	}
	s.Replies = append(s.Replies, model.Reply{Text: "the report", Input: size(60 + 40*looks), Output: size(60)})
	return s
}

// A Crowd asks a provider as programs do that were written with a plain client
// and never met each other: each retries twice, as the official clients do, and
// then gives up.
type Crowd struct {
	Base   string // of the provider, with /v1
	Agents int
}

// Told is how it went.
type Told struct {
	Finished int
	Died     int
	Why      string // how the first of them died
	Took     time.Duration
}

// Run lets them all loose at once.
func (c Crowd) Run(ctx context.Context) Told {
	start := time.Now()
	var mu sync.Mutex
	var t Told
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.Agents}}
	defer client.CloseIdleConnections()
	for range c.Agents {
		all.Go(func() {
			err := c.research(ctx, client)
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

// research asks until there is a report.
func (c Crowd) research(ctx context.Context, client *http.Client) error {
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

func (c Crowd) ask(ctx context.Context, client *http.Client, said []map[string]any, to any) error {
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

// post asks once. A wait says that it may be tried again.
func (c Crowd) post(ctx context.Context, client *http.Client, body []byte, to any) (wait time.Duration, err error) {
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

// problemOf is what an error body says.
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
