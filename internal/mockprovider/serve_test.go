package mockprovider_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kern-run/kern/internal/mockprovider"
)

func flags(t *testing.T, args ...string) (mockprovider.Flags, error) {
	t.Helper()
	var f mockprovider.Flags
	set := pflag.NewFlagSet("mock", pflag.ContinueOnError)
	f.Add(set)
	return f, set.Parse(args)
}

// TestServe is the command: its address first, a log, its bill at the end.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"all.yaml": script, "other.yaml": `{price: {input: 1}, replies: [{text: other}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(dir, "log")
	f, err := flags(t, "--script", filepath.Join(dir, "all.yaml"), "--script", "m2="+filepath.Join(dir, "other.yaml"), "--key", "k", "--log", log, "--rpm", "10", "--burst", "50%")
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Config()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var notes bytes.Buffer
	served := make(chan error, 1)
	go func() { served <- mockprovider.Serve(ctx, c, 0, in, &notes) }()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for model, want := range map[string]string{"m": "one two three four", "m2": "other"} {
		r, err := http.NewRequest("POST", strings.TrimSpace(url)+"/chat/completions", strings.NewReader(`{"model":"`+model+`","messages":[`+hi+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer k")
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		same(t, string(b), "choices.0.message.content", want)
		if w.Header.Get("X-Ratelimit-Remaining-Requests") != "9" {
			t.Errorf("the headers do not tell the limit: %v", w.Header)
		}
	}
	w, err := client.Get(strings.TrimSpace(url) + "/mock/stats?idle=1")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	var s mockprovider.Stats
	if err := json.NewDecoder(w.Body).Decode(&s); err != nil || s.OK != 2 || s.Models["m2"].Output != 1 {
		t.Errorf("the books: %+v, %v", s, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := c.Log.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the log is not closed: %v", err)
	}
	if !strings.Contains(notes.String(), "OPENAI_API_KEY=k ANTHROPIC") || !strings.Contains(notes.String(), "2 requests, 0 refused") || !strings.Contains(notes.String(), "billed $"+s.Dollars) {
		t.Errorf("the notes: %s", notes.String())
	}
	b, err := os.ReadFile(log)
	if err != nil || strings.Count(string(b), "\n") != 2 || strings.Contains(string(b), `"k"`) {
		t.Errorf("the log: %s, %v", b, err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--burst", "x"}, {"--overload", "120%"}, {"--latency", "soon"}, {"--ttft", "p99=1s"}, {"--fault", "flood"},
		{"--price", "3"}, {"--price", "3/x"}, {"--script", "nowhere.yaml"}, {"--rpm", "-1"}, {"--tps", "-1"}, {"--log", "/nowhere/log"},
	} {
		f, err := flags(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := f.Config(); err == nil {
			t.Errorf("%v makes sense: %+v", args, c)
		}
	}
}
