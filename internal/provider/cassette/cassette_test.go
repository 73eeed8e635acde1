// Mutants that a test here kills; each was tried:
//   - the key stays in a body or a piece: TestHoldsNoKey
//   - any request is answered, or one exchange is played twice: TestShowsTheDifference
//   - the pieces are joined: TestPlaysWhatWasRecorded
package cassette

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/model"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const canary = `sk-canary/"9f8e7d6c5b4a`

var (
	hello   = model.Request{Messages: []model.Message{{Role: model.User, Text: "hello"}}, MaxOutput: 100}
	goodbye = model.Request{Messages: []model.Message{{Role: model.User, Text: "goodbye"}}}
)

func open(t *testing.T, base string, rt http.RoundTripper) model.Model {
	t.Helper()
	m, err := provider.Open("openai:m", provider.Config{
		HTTP:      &http.Client{Transport: rt},
		Providers: map[string]provider.Provider{"openai": {BaseURL: base, Key: transport.NewKey(canary)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// run is a stream as text, one line per event.
func run(t *testing.T, m model.Model, r model.Request) string {
	t.Helper()
	var b strings.Builder
	for e, err := range m.Stream(t.Context(), r) {
		line, _ := json.Marshal(e)
		fmt.Fprintf(&b, "%s\n", line)
		var failed *model.Error
		if errors.As(err, &failed) {
			line, _ := json.Marshal(failed)
			fmt.Fprintf(&b, "%s\n%v\n", line, err)
		}
	}
	return b.String()
}

// recording serves h, runs use against it through a recorder, and returns the
// cassette's path.
func recording(t *testing.T, h http.HandlerFunc, use func(model.Model)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.jsonl")
	rec, err := Record(path, &http.Transport{DisableKeepAlives: true})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	use(open(t, s.URL+"/v1", rec))
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Record(path, nil); err == nil {
		t.Error("a cassette was recorded over")
	}
	return path
}

func played(t *testing.T, path string) (model.Model, *Player) {
	t.Helper()
	p, err := Replay(path)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, "http://nowhere.invalid/v1", p), p
}

func TestPlaysWhatWasRecorded(t *testing.T) {
	n := 0
	stream, err := os.ReadFile("../testdata/openai/parallel.sse")
	if err != nil {
		t.Fatal(err)
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 2 {
			w.Header().Set("Retry-After", "4")
			w.WriteHeader(429)
			return
		}
		if n == 3 {
			stream = stream[:len(stream)/2]
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
	requests := []model.Request{hello, goodbye, {Messages: []model.Message{{Role: model.User, Text: "third"}}}}
	var live []string
	path := recording(t, h, func(m model.Model) {
		for _, r := range requests {
			live = append(live, run(t, m, r))
		}
	})
	if !strings.Contains(live[0], `"done"`) || !strings.Contains(live[1], `"retry_after":4000000000`) || !strings.Contains(live[2], `"network"`) {
		t.Fatal("the recorded traffic is not what it should be")
	}
	m, p := played(t, path)
	for i, r := range requests {
		if got := run(t, m, r); got != live[i] {
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

// A tape answers with its pieces, one per Read, and breaks.
type tape []string

func (p tape) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: &tapeBody{p}, Request: req}, nil
}

type tapeBody struct{ left []string }

func (b *tapeBody) Read(p []byte) (n int, err error) {
	if len(b.left) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, b.left = copy(p, b.left[0]), b.left[1:]
	return n, nil
}

func (b *tapeBody) Close() error { return nil }

func TestKeepsThePieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.jsonl")
	pieces := []string{"data: \xc3", "\xbc\n", "\n", "data: [DONE]\n\n"} // within a character
	rec, err := Record(path, tape(pieces))
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

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func TestHoldsNoKey(t *testing.T) {
	path := recording(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Key", canary)
		for _, part := range []string{"data: " + canary[:9], canary[9:] + "\n\n"} {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	}, func(m model.Model) {
		run(t, m, model.Request{Messages: []model.Message{{Role: model.User, Text: "my key is sk-canary/"}, {Role: model.User, Text: canary}}})
	})
	all := strings.Join(lines(t, path), "\n")
	if strings.Contains(all, "9f8e7d") || !strings.Contains(all, "data: [key]") {
		t.Errorf("the cassette is %s", all)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the cassette has mode %v", info.Mode())
	}
}

func TestShowsTheDifference(t *testing.T) {
	path := recording(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: [DONE]\n\n")
	}, func(m model.Model) { run(t, m, hello) })
	for _, c := range []struct {
		change func(*model.Request)
		want   string
	}{
		{func(r *model.Request) { r.Messages = []model.Message{{Role: model.User, Text: "bye"}} }, `at "/messages/0/content" recorded "hello", got "bye"`},
		{func(r *model.Request) {
			r.Messages = append(r.Messages[:1:1], model.Message{Role: model.User, Text: "x"})
		}, `at "/messages/1" recorded nothing, got an object`},
		{func(r *model.Request) { r.MaxOutput = 5 }, `at "/max_tokens" recorded 100, got 5`},
		{func(r *model.Request) { r.MaxOutput = 0 }, `at "/max_tokens" recorded 100, got nothing`},
	} {
		m, p := played(t, path)
		r := hello
		c.change(&r)
		if o := run(t, m, r); !strings.Contains(o, c.want) {
			t.Errorf("got %s, want %s", o, c.want)
		}
		if o := run(t, m, hello); !strings.Contains(o, `"done"`) || p.Left() != 0 {
			t.Errorf("the recorded request is not answered: %s", o)
		}
		if o := run(t, m, hello); !strings.Contains(o, "at its end") {
			t.Errorf("an exchange is played twice: %s", o)
		}
	}
}

func TestRefuses(t *testing.T) {
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
