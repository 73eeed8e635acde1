package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

// A client is a program on an SDK.
type client struct {
	name string
	part string // of tools/clients.sh
	file string
	face string
	api  string // whose variables it reads
}

// clients are all there are.
var clients = []client{
	{"openai-python", "py", "openai_agent.py", "", "openai"},
	{"openai-python-responses", "py", "openai_agent.py", "responses", "openai"},
	{"anthropic-python", "py", "anthropic_agent.py", "", "anthropic"},
	{"langgraph-python", "py", "langgraph_agent.py", "", "openai"},
	{"openai-agents-python", "py", "agents_agent.py", "", "openai"},
	{"openai-agents-python-chat", "py", "agents_agent.py", "chat", "openai"},
	{"openai-node", "node", "openai.mjs", "", "openai"},
	{"openai-node-responses", "node", "openai.mjs", "responses", "openai"},
	{"anthropic-node", "node", "anthropic.mjs", "", "anthropic"},
	{"vercel-node-responses", "node", "vercel.mjs", "", "openai"},
	{"vercel-node-chat", "node", "vercel.mjs", "chat", "openai"},
	{"vercel-node-anthropic", "node", "vercel.mjs", "anthropic", "anthropic"},
	{"openai-go", "go", "openai", "", "openai"},
	{"openai-go-responses", "go", "openai", "responses", "openai"},
	{"anthropic-go", "go", "anthropic", "", "anthropic"},
}

// native says whether a client is on the official SDK of Anthropic, and so
// thinks aloud.
func (c client) native() bool { return c.api == "anthropic" && !strings.HasPrefix(c.name, "vercel") }

var tools, here string // .tools/clients, and this directory

var ran, skipped atomic.Int64

func TestMain(m *testing.M) {
	here, _ = os.Getwd()
	tools = filepath.Join(here, "..", "..", ".tools", "clients")
	// Modules of Node are found from where a program is.
	if files, err := filepath.Glob("node/*.mjs"); err == nil {
		if _, err := os.Stat(filepath.Join(tools, "node", "node_modules")); err == nil {
			names := map[string]string{"frameworks/children.mjs": "children.mjs", "frameworks/openai.mjs": "live-openai.mjs", "frameworks/anthropic.mjs": "live-anthropic.mjs"}
			for _, f := range files {
				names[f] = filepath.Base(f)
			}
			for from, to := range names {
				if err := place(from, filepath.Join(tools, "node", to)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		}
	}
	code := leaktest.Wrap(m, http.DefaultClient.CloseIdleConnections, cleanUp).Run()
	fmt.Printf("clients: %d programs were run, %d tests skipped because a client is not installed\n", ran.Load(), skipped.Load())
	os.Exit(code)
}

// place copies a file in one step, for another test run may be reading it.
func place(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%d", to, os.Getpid())
	return errors.Join(os.WriteFile(tmp, b, 0o644), os.Rename(tmp, to))
}

// argv is the command line, or skips the test where the client is not there.
func (c client) argv(t *testing.T, modes string) []string {
	t.Helper()
	var argv []string
	switch c.part {
	case "py":
		argv = []string{filepath.Join(tools, "py", "bin", "python"), filepath.Join(here, "python", c.file)}
	case "node":
		node, err := exec.LookPath("node")
		if err != nil {
			node = "node"
		}
		argv = []string{node, filepath.Join(tools, "node", c.file)}
	case "go":
		argv = []string{filepath.Join(tools, "go", c.file)}
	}
	if _, err := os.Stat(filepath.Join(tools, c.part+".stamp")); err != nil {
		skipped.Add(1)
		t.Skipf("%s is not installed: %v; tools/clients.sh installs it", c.name, err)
	}
	argv = append(argv, modes)
	if c.face != "" {
		argv = append(argv, c.face)
	}
	return argv
}

// A line is what a client prints for each mode.
type line struct {
	Mode     string
	Text     string
	Calls    [][]any
	Input    int64
	Output   int64
	Pieces   int
	Thoughts int
	Error    *struct {
		Type    string
		Status  int
		Message string
	}
}

// A base is where a provider is, or Kern in its place.
type base struct{ openai, anthropic, key string }

func (b base) env() []string {
	return []string{"OPENAI_BASE_URL=" + b.openai, "OPENAI_API_KEY=" + b.key, "ANTHROPIC_BASE_URL=" + b.anthropic, "ANTHROPIC_API_KEY=" + b.key}
}

// plainEnv is what any program has.
func plainEnv(t *testing.T) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "NO_PROXY=127.0.0.1,localhost", leaktest.Env()}
}

// patience is how long a program may take on a loaded machine.
const patience = 4 * time.Minute

// run runs a client, raw, and reads its lines.
func (c client) run(t *testing.T, b base, modes string, env ...string) ([]line, string) {
	t.Helper()
	return program(t, c.argv(t, modes), slices.Concat(plainEnv(t), b.env(), env))
}

// program runs a command that prints lines, and what it says on stderr.
func program(t *testing.T, argv, env []string) ([]line, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = 10 * time.Second
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	ran.Add(1)
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%v did not end in %s; it said %s%s", argv, patience, out.Bytes(), notes.Bytes())
	}
	lines := readLines(t, out.String())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || len(lines) == 0 {
		t.Logf("%v: %v: %s", argv, err, notes.Bytes())
	}
	return lines, notes.String()
}

// readLines finds the lines of a client among what a program says.
func readLines(t *testing.T, out string) (all []line) {
	t.Helper()
	for s := range strings.Lines(out) {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		var l line
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			t.Fatalf("%v: %s", err, s)
		}
		all = append(all, l)
	}
	return all
}

// scripts are what the provider says, by mode.
func scripts(t testing.TB) map[string]*model.Script {
	var long strings.Builder
	for i := range 30 {
		fmt.Fprintf(&long, "  - {calls: [{tool: add, args: {a: %d, b: 1}}]}\n", i)
	}
	all := map[string]*model.Script{}
	for name, replies := range map[string]string{
		"plain":      `  - {text: "Hello, all is well."}`,
		"stream":     `  - {text: "` + story + `"}`,
		"structured": `  - {text: '{"city":"Paris","degrees":21}'}`,
		"error":      `  - {text: "not to be heard"}`,
		"tools": `  - {text: "Let me look at both.", calls: [{tool: weather, args: {city: Paris}}, {tool: weather, args: {city: Oslo}}]}
  - {calls: [{tool: add, args: {a: 21, b: 4}}]}
  - {text: "Together they have 25 degrees."}`,
		"long": long.String() + `  - {text: "I counted to 30."}`,
	} {
		s, err := model.ParseScript(name, []byte("price: {input: 3.00, output: 15.00}\nreplies:\n"+replies))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = s
	}
	return all
}

var story = strings.TrimSpace(strings.Repeat("once upon a time there was a kernel ", 30))

// key opens the provider.
const key = "sk-of-the-provider"

// A provider is a mock on the network.
type provider struct {
	*mockprovider.Mock
	base
	models []string
}

func serve(t *testing.T, c mockprovider.Config) provider {
	c.Keys = []string{key}
	if c.Scripts == nil && c.Script == nil {
		c.Scripts = scripts(t)
	}
	m := mockprovider.New(c)
	url := serveHTTP(t, m)
	return provider{m, base{url + "/v1", url, key}, slices.Sorted(maps.Keys(c.Scripts))}
}

func serveHTTP(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

const allModes = "plain,stream,tools,structured,long"

// judge holds lines against what must be, in every way to a provider. The
// usage is the client's own count.
func judge(t *testing.T, c client, lines []line, billed func(mode string) (in, out int64)) {
	t.Helper()
	if len(lines) != 5 {
		t.Fatalf("%d lines, expected one for each of %s: %+v", len(lines), allModes, lines)
	}
	texts := map[string]string{
		"plain": "Hello, all is well.", "stream": story, "tools": "Together they have 25 degrees.", "structured": "Paris 21", "long": "I counted to 30.",
	}
	for _, l := range lines {
		if l.Error != nil {
			t.Errorf("%s: %+v", l.Mode, *l.Error)
			continue
		}
		if l.Text != texts[l.Mode] {
			t.Errorf("%s: the text is %q, expected %q", l.Mode, l.Text, texts[l.Mode])
		}
		if in, out := billed(l.Mode); l.Input != in || l.Output != out {
			t.Errorf("%s: the client counted in %d, out %d; the provider in %d, out %d", l.Mode, l.Input, l.Output, in, out)
		}
		calls, thoughts, pieces := "[]", 0, 0
		switch l.Mode {
		case "stream":
			pieces = 200
		case "tools":
			calls, pieces = `[["weather",{"city":"Paris"}],["weather",{"city":"Oslo"}],["add",{"a":21,"b":4}]]`, 9
			if c.native() {
				thoughts = 3
			}
		case "long":
			calls = ""
			if c.native() {
				thoughts = 31
			}
			if len(l.Calls) != 30 {
				t.Errorf("long: %d calls, expected 30", len(l.Calls))
			}
		}
		if b, err := json.Marshal(l.Calls); err != nil || calls != "" && sorted(string(b)) != sorted(calls) {
			t.Errorf("%s: the calls are %s, expected %s", l.Mode, b, calls)
		}
		if l.Thoughts != thoughts || l.Pieces < pieces {
			t.Errorf("%s: %d thoughts and %d pieces, expected %d and at least %d", l.Mode, l.Thoughts, l.Pieces, thoughts, pieces)
		}
	}
}

// sorted makes calls comparable that run at the same time.
func sorted(calls string) string {
	all := strings.Split(calls, "],[")
	for i := range all {
		all[i] = strings.Trim(all[i], "[]")
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// each runs a test for every client.
func each(t *testing.T, f func(t *testing.T, c client)) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) { f(t, c) })
	}
}

// TestRaw: the provider for tests is one to the real clients.
func TestRaw(t *testing.T) {
	each(t, func(t *testing.T, c client) {
		t.Parallel()
		p := serve(t, mockprovider.Config{})
		lines, _ := c.run(t, p.base, allModes)
		s := p.Idle(t.Context())
		judge(t, c, lines, func(mode string) (int64, int64) { return s.Models[mode].Input, s.Models[mode].Output })
	})
}

// TestRawRefused: a wrong key stops a client at its first request.
func TestRawRefused(t *testing.T) {
	each(t, func(t *testing.T, c client) {
		t.Parallel()
		p := serve(t, mockprovider.Config{})
		lines, _ := c.run(t, base{p.openai, p.anthropic, "wrong"}, "error")
		if len(lines) != 1 || lines[0].Error == nil || lines[0].Error.Status != 401 {
			t.Fatalf("%+v, expected an error with status 401", lines)
		}
		if s := p.Idle(t.Context()); s.Requests != 1 || s.Statuses["401"] != 1 {
			t.Errorf("%d requests, expected that it stops after one", s.Requests)
		}
	})
}

// TestRawRetries: a 429 with Retry-After is waited out by every client, and an
// overloaded provider is asked again.
func TestRawRetries(t *testing.T) {
	each(t, func(t *testing.T, c client) {
		t.Parallel() // they wait more than they work
		s, err := model.ParseScript("plain", []byte("replies: [{error: rate_limit}, {error: overloaded}, {text: well}]"))
		if err != nil {
			t.Fatal(err)
		}
		p := serve(t, mockprovider.Config{Scripts: map[string]*model.Script{"plain": s}})
		lines, _ := c.run(t, p.base, "plain")
		if len(lines) != 1 || lines[0].Text != "well" {
			t.Fatalf("%+v, expected the answer after two errors", lines)
		}
		if s := p.Idle(t.Context()); s.Requests != 3 {
			t.Errorf("%d requests, expected 3", s.Requests)
		}
	})
}

// hashOfKey is how the provider's books call its key.
var hashOfKey = mockprovider.HashKey(key)

func mockConfig(t testing.TB) mockprovider.Config { return mockprovider.Config{Scripts: scripts(t)} }
