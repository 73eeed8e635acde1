//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// watched is a buffer that a command writes into while a server reads it.
type watched struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// TestOverloaded has a provider that is overloaded until the command says so: a person
// learns what the process waits for, and that it goes on.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"exec": {"exec", "--money", "1", "--", "agent", "1"},
		"run":  {"run", "--model", "openai:m", "--money", "1", "go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			mock := newUpstream(t, w, "", true)
			var errs watched
			s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && !strings.Contains(errs.String(), "is waiting for the provider (503, try ") {
					http.Error(rw, `{"error": {"message": "overloaded"}}`, http.StatusServiceUnavailable)
					return
				}
				mock.ServeHTTP(rw, r)
			}))
			defer s.Close()
			text := fmt.Sprintf("providers:\n  openai: {base_url: %q, key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 50}}}\n", s.URL+"/v1")
			if err := os.WriteFile(filepath.Join(w.data(), "kern.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := w.command(args...)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &errs
			if err := c.Run(); err != nil || !strings.Contains(out.String(), "a word of the model") {
				t.Errorf("%v, printed %s", err, &out)
			}
			if said := errs.String(); strings.Count(said, "is waiting for") != 1 || !strings.Contains(said, "kern: process 1 goes on after ") {
				t.Errorf("it says %s", said)
			}
		})
	}
}
