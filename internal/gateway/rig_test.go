package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

// TestMain lets more tests run at once than there are processors, because the long
// ones wait for a timeout.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leaktest.Main(m)
}

// providerKey is the key that the daemon has, and nobody else may see.
const providerKey = "sk-of-the-provider-itself"

// A rig is a provider, and a kernel with its gateway before it.
type rig struct {
	t      testing.TB
	dir    string
	mock   *mockprovider.Mock
	up     *httptest.Server
	kernel *host.Kernel
	front  *httptest.Server
	config string
}

// newRig starts both. $UP in the configuration is the provider's address; an
// empty one has a provider for each format, whose model m costs 1 and 2 dollars
// for a million tokens.
func newRig(t testing.TB, c mockprovider.Config, config string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), mock: mockprovider.New(c), config: config}
	r.up = httptest.NewServer(r.mock)
	t.Cleanup(r.up.Close)
	if config == "" {
		r.config = `providers:
  openai: {base_url: "$UP/v1", key_env: UP_KEY, concurrency: 2000, models: {m: {input: 1, output: 2, max_output: 1000}}}
  anthropic: {base_url: "$UP", key_env: UP_KEY, concurrency: 2000, models: {m: {input: 1, output: 2, max_output: 1000}}}
`
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start opens the kernel on its data directory.
func (r *rig) start() {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "kern.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(r.config, "$UP", r.up.URL)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	s, err := config.ReadSettings(file)
	if err != nil {
		r.t.Fatal(err)
	}
	r.kernel, err = host.Open(host.Config{Dir: r.dir, Settings: s, Getenv: func(name string) string {
		if name == "UP_KEY" {
			return providerKey
		}
		return ""
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.front = httptest.NewServer(r.kernel.Gateway)
	r.kernel.Gateway.Found(r.front.Listener, false)
}

func (r *rig) stop() {
	r.t.Helper()
	if r.kernel == nil {
		return
	}
	r.front.CloseClientConnections()
	if err := r.kernel.Close(); err != nil {
		r.t.Error(err)
	}
	r.front.Close()
	r.kernel = nil
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	transport.CloseIdle()
}

// limits reads money=1,steps=2.
func limits(t testing.TB, s string) (l abi.Limits) {
	t.Helper()
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		name, amount, _ := strings.Cut(part, "=")
		u, ok := abi.UnitOf(name)
		n, err := abi.ParseUnit(u, amount)
		if !ok || err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		l.Set(u, n)
	}
	return l
}

func (r *rig) key(l string) gateway.Issued {
	r.t.Helper()
	k, err := r.kernel.Gateway.Issue(r.t.Context(), gateway.Key{Name: "agent", Limits: limits(r.t, l), Priority: abi.DefaultPriority})
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// A got is an answer.
type got struct {
	status int
	header http.Header
	body   string
}

// code is Kern's code in an error of either format.
func (g *got) code() abi.Code {
	var e struct{ Error struct{ Code abi.Code } }
	body := g.body
	if i := strings.LastIndex(body, `data: {`); i >= 0 { // the last event of a stream
		body, _, _ = strings.Cut(body[i+6:], "\n")
	}
	_ = json.Unmarshal([]byte(body), &e)
	return e.Error.Code
}

func (r *rig) request(ctx context.Context, key, path, body string, h ...string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, "POST", r.front.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(h); i += 2 {
		q.Header.Set(h[i], h[i+1])
	}
	return r.front.Client().Do(q)
}

func (r *rig) post(key, path, body string, h ...string) got {
	r.t.Helper()
	resp, err := r.request(r.t.Context(), key, path, body, h...)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return got{resp.StatusCode, resp.Header, string(b)}
}

// ok posts and expects an answer.
func (r *rig) ok(key, path, body string, h ...string) got {
	r.t.Helper()
	g := r.post(key, path, body, h...)
	if g.status != http.StatusOK || g.code() != "" {
		r.t.Fatalf("%s %s: %d %s", path, body, g.status, g.body)
	}
	return g
}

// refused posts and expects an error with a code.
func (r *rig) refused(key, path, body string, code abi.Code, status int, h ...string) got {
	r.t.Helper()
	g := r.post(key, path, body, h...)
	if g.code() != code || g.status != status {
		r.t.Fatalf("%s %s: %d %s, want %d %s", path, body, g.status, g.body, status, code)
	}
	return g
}

// books compares what a process is booked with, and the provider's bill.
func (r *rig) books(pid abi.Pid) {
	r.t.Helper()
	i, s := r.info(pid), r.mock.Stats()
	if i.Used[abi.Money] != s.Nano || i.Used[abi.InputTokens] != s.Input || i.Used[abi.OutputTokens] != s.Output || i.Reserved != (abi.Usage{}) {
		r.t.Errorf("booked %d nano-dollars, %d in, %d out, %v reserved; billed %d, %d, %d",
			i.Used[abi.Money], i.Used[abi.InputTokens], i.Used[abi.OutputTokens], i.Reserved, s.Nano, s.Input, s.Output)
	}
}

func (r *rig) info(pid abi.Pid) kernelInfo {
	r.t.Helper()
	i, err := r.kernel.Info(pid)
	if err != nil {
		r.t.Fatal(err)
	}
	return kernelInfo{i.Used, i.Reserved, i.Doubt, i.Exit, i.Children, i.Steps}
}

type kernelInfo struct {
	Used, Reserved, Doubt abi.Usage
	Exit                  *process.Exit
	Children              []abi.Pid
	Steps                 int64
}

// records are those of a process, with what is still on its way to the disk.
func (r *rig) records(pid abi.Pid) (list []*abi.Record) {
	r.t.Helper()
	if _, err := r.kernel.Verify(r.t.Context(), pid); err != nil {
		r.t.Fatal(err)
	}
	if err := r.kernel.Records(r.t.Context(), pid, 0, false, func(rec *abi.Record) error {
		list = append(list, rec)
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return list
}

// eventually polls for what comes when others are done with something.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !f(); <-tick.C { // as long as a busy machine needs
		if time.Now().After(end) {
			t.Fatalf("not in two minutes: %s", what)
		}
	}
}

// A live stream is one that is being read.
type live struct {
	*http.Response
	lines *bufio.Scanner
	stop  context.CancelFunc
}

func (r *rig) stream(key, path, body string, h ...string) *live {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	resp, err := r.request(ctx, key, path, body, h...)
	if err != nil {
		r.t.Fatal(err)
	}
	l := &live{resp, bufio.NewScanner(resp.Body), cancel}
	l.lines.Buffer(nil, 1<<20)
	r.t.Cleanup(func() { cancel(); resp.Body.Close() })
	return l
}

// until reads lines up to one that has something in it.
func (l *live) until(s string) bool {
	for l.lines.Scan() {
		if bytes.Contains(l.lines.Bytes(), []byte(s)) {
			return true
		}
	}
	return false
}

func chat(say string, more ...string) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]%s}`, say, strings.Join(more, ""))
}

func script(t testing.TB, text string) *model.Script {
	t.Helper()
	s, err := model.ParseScript("script.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored holds what the requests of a process say that began behind so many
// records, and returns how many records there are now.
func (r *rig) stored(pid abi.Pid, seen int, body string) int {
	r.t.Helper()
	all := r.records(pid)
	for _, rec := range all[seen:] {
		if rec.Intent == nil {
			continue
		}
		var a syscalls.ModelArgs
		if err := json.Unmarshal(rec.Intent.Args.Bytes, &a); err != nil {
			r.t.Fatal(err)
		}
		got, err := gateway.Stored(a.Relay.Format, rec.Intent.Parts, func(h abi.Hash) ([]byte, error) { return r.kernel.Bytes(abi.Data{Hash: h}) })
		if err != nil || string(got) != body {
			r.t.Errorf("%v: stored is\n%s\nwant\n%s", err, got, body)
		}
	}
	return len(all)
}
