// Mutants that a test here kills; each was tried:
//   - the key stays in a body or a piece: TestCassetteHoldsNoKey
//   - any request is answered, or one exchange is played twice: TestCassetteShowsTheDifference
//   - the pieces are joined: TestCassette
package model

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// recording serves h, runs use against it through a recorder, and returns the
// cassette's path.
func recording(t *testing.T, h http.HandlerFunc, use func(Model)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.jsonl")
	tr := &http.Transport{DisableKeepAlives: true}
	rec, err := Record(path, tr)
	if err != nil {
		t.Fatal(err)
	}
	use(serve(t, "openai:m", Config{HTTP: &http.Client{Transport: rec}}, h))
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Record(path, nil); err == nil {
		t.Error("a cassette was recorded over")
	}
	return path
}

func played(t *testing.T, path string) (Model, *Player) {
	t.Helper()
	p, err := Replay(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open("openai:m", Config{Getenv: env("OPENAI_BASE_URL", "http://nowhere.invalid/v1"), HTTP: &http.Client{Transport: p}})
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

func TestCassette(t *testing.T) {
	n := 0
	stream, err := os.ReadFile("testdata/openai/parallel.sse")
	if err != nil {
		t.Fatal(err)
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 2 {
			w.Header().Set("Retry-After", "4")
			w.WriteHeader(429)
			return
		}
		for i := 0; i < len(stream); i += 300 {
			w.Write(stream[i:min(i+300, len(stream))])
			w.(http.Flusher).Flush()
		}
		if n == 3 {
			c, buf, _ := w.(http.Hijacker).Hijack()
			io.WriteString(buf, "7\r\ndata: {\r\n")
			buf.Flush()
			c.Close()
		}
	}
	requests := []Request{hello, conversation, {Messages: []Message{{Role: User, Text: "third"}}}}
	var live []outcome
	path := recording(t, h, func(m Model) {
		for _, r := range requests {
			live = append(live, run(t, m, r))
		}
	})
	if live[1].err.RetryAfter == 0 || live[0].done == nil {
		t.Fatal("the recorded traffic is not what it should be")
	}
	m, p := played(t, path)
	for i, r := range requests {
		if got := run(t, m, r); !reflect.DeepEqual(got, live[i]) {
			t.Errorf("request %d: played\n%slive\n%s", i, got, live[i])
		}
	}
	if p.Left() != 0 {
		t.Errorf("%d exchanges are left", p.Left())
	}
	var x exchange
	for i, line := range lines(t, path) {
		if err := json.Unmarshal([]byte(line), &x); err != nil || x.Path != "/v1/chat/completions" {
			t.Errorf("line %d: %v, %+v", i+1, err, x)
		}
	}
}

func TestCassetteKeepsThePieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.jsonl")
	pieces := []string{"data: \xc3", "\xbc\n", "\n", "data: [DONE]\n\n"} // within a character
	rec, err := Record(path, &tape{pieces: pieces, end: io.ErrUnexpectedEOF})
	if err != nil {
		t.Fatal(err)
	}
	read := func(rt http.RoundTripper) (got []string, err error) {
		req, _ := http.NewRequest(http.MethodGet, "http://nowhere.invalid/x", http.NoBody)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b := make([]byte, 99)
		for {
			n, err := resp.Body.Read(b)
			if n > 0 {
				got = append(got, string(b[:n]))
			}
			if err != nil {
				return got, err
			}
		}
	}
	live, broke := read(rec)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := Replay(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(p)
	if !reflect.DeepEqual(got, pieces) || !reflect.DeepEqual(live, pieces) || err.Error() != broke.Error() {
		t.Errorf("played %q and %v, recorded %q and %v", got, err, live, broke)
	}
}

func lines(t *testing.T, path string) (all []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		all = append(all, s.Text())
	}
	return all
}

func TestCassetteHoldsNoKey(t *testing.T) {
	path := recording(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Key", canary)
		for _, part := range []string{"data: " + canary[:9], canary[9:] + "\n\n"} {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	}, func(m Model) {
		run(t, m, Request{Messages: []Message{{Role: User, Text: "my key is sk-canary/"}, {Role: User, Text: canary}}})
	})
	all := strings.Join(lines(t, path), "\n")
	if strings.Contains(all, "9f8e7d") || !strings.Contains(all, "data: [key]") {
		t.Errorf("the cassette is %s", all)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the cassette has mode %v", info.Mode())
	}
}

func TestCassetteShowsTheDifference(t *testing.T) {
	path := recording(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: [DONE]\n\n")
	}, func(m Model) { run(t, m, hello) })
	for _, c := range []struct {
		change func(*Request)
		want   string
	}{
		{func(r *Request) { r.Messages = []Message{{Role: User, Text: "bye"}} }, `at "/messages/0/content" recorded "hello", got "bye"`},
		{func(r *Request) { r.Messages = append(r.Messages[:1:1], Message{Role: User, Text: "x"}) }, `at "/messages/1" recorded nothing, got {"content":"x","role":"user"}`},
		{func(r *Request) { r.MaxOutput = 5 }, `at "/max_tokens" recorded 100, got 5`},
		{func(r *Request) { r.MaxOutput = 0 }, `at "/max_tokens" recorded 100, got nothing`},
	} {
		m, p := played(t, path)
		r := hello
		c.change(&r)
		if o := run(t, m, r); o.err == nil || !strings.Contains(o.err.Message, c.want) {
			t.Errorf("got %v, want %s", o.err, c.want)
		}
		if o := run(t, m, hello); o.done == nil || p.Left() != 0 {
			t.Errorf("the recorded request is not answered: %v", o.err)
		}
		if o := run(t, m, hello); o.err == nil || !strings.Contains(o.err.Message, "at its end") {
			t.Errorf("an exchange is played twice: %s", o)
		}
	}
}

func TestCassetteRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"nonsense":                      "c.jsonl:1: not an exchange",
		"\n{\"unknown\":1}":             "c.jsonl:2: not an exchange",
		`{"text":"abc","sizes":[2]}`:    "c.jsonl:1: the sizes do not add up",
		`{"text":"abc","sizes":[4]}`:    "c.jsonl:1: the sizes do not add up",
		`{"text":"abc","sizes":[4,-1]}`: "c.jsonl:1: the sizes do not add up",
	} {
		path := filepath.Join(t.TempDir(), "c.jsonl")
		if err := os.WriteFile(path, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Replay(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
	if _, err := Replay(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no cassette was played")
	}
}
