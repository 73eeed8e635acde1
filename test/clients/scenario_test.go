package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

// named is a client by its name.
func named(t *testing.T, name string) client {
	t.Helper()
	i := slices.IndexFunc(clients, func(c client) bool { return c.name == name })
	if i < 0 {
		t.Fatal("there is no client", name)
	}
	return clients[i]
}

// A door stands before the gateway and notes what came of each request.
type door struct {
	base
	mu       sync.Mutex
	statuses []int
}

func newDoor(t *testing.T, b base) *door {
	t.Helper()
	to, err := url.Parse(b.anthropic)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			// A server closes the body of a request when its answer begins. A
			// proxy that did not come to the end of it by then closes its own
			// connection, in the middle of the answer.
			b, _ := io.ReadAll(r.In.Body)
			r.SetURL(to)
			r.Out.Host, r.Out.Body = to.Host, io.NopCloser(bytes.NewReader(b))
		},
		ModifyResponse: func(r *http.Response) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.statuses = append(d.statuses, r.StatusCode)
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	d.base = base{s.URL + "/v1", s.URL, b.key}
	return d
}

// refused counts what was refused, by status.
func (d *door) refused() map[int]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := map[int]int{}
	for _, s := range d.statuses {
		if s != http.StatusOK {
			n[s]++
		}
	}
	return n
}

// running is a client that was started.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	note bytes.Buffer
	done chan struct{}
}

// start starts a program and leaves it running.
func start(t *testing.T, argv, env []string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	r := &running{t: t, cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), done: make(chan struct{})}
	r.cmd.Env, r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr, r.cmd.WaitDelay = env, t.TempDir(), &r.out, &r.note, 10*time.Second
	ran.Add(1)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		defer cancel()
		_ = r.cmd.Wait() // the exit code is in its state
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// lines waits for the end.
func (r *running) lines() []line {
	r.t.Helper()
	<-r.done
	return readLines(r.t, r.out.String())
}

// until waits for something that has no event to wait for.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func script(t *testing.T, text string) *model.Script {
	t.Helper()
	s, err := model.ParseScript("script", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failed is the only line, which is an error with a code of Kern.
func failed(t *testing.T, lines []line, code abi.Code) {
	t.Helper()
	if len(lines) != 1 || lines[0].Error == nil {
		t.Errorf("%+v, expected one error with the code %s", lines, code)
	} else if !strings.Contains(lines[0].Error.Message, string(code)) {
		t.Errorf("the error is %+v, expected the code %s in it", *lines[0].Error, code)
	}
}

// TestScenario05: model calls alone reach a limit on money. Nothing is
// overspent, and the client stops at the first refusal.
func TestScenario05(t *testing.T) {
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	each(t, func(t *testing.T, c client) {
		argv := c.argv(t, "long")
		limit := int64(10_000_000) // 0.01 dollars: some turns, and the least output that is worth a call
		if c.native() {
			limit = 30_000_000 // a budget for thinking is reserved whole
		}
		i := k.key("--name", c.name, "--money", abi.FormatMoney(limit))
		d := newDoor(t, baseOf(i))
		before := p.Idle(t.Context())
		begun := time.Now()
		lines, _ := program(t, argv, slices.Concat(plainEnv(t), d.env()))
		took := time.Since(begun)
		billed := p.Idle(t.Context()).Nano - before.Nano
		if billed > limit || billed < limit/8 {
			t.Errorf("the provider billed %d of %d", billed, limit)
		}
		if used := k.show(i.Pid); money(t, used.Usage.Money) != billed {
			t.Errorf("kern booked %s, the provider billed %d\n%s", used.Usage.Money, billed, k.failures(i.Pid))
		}
		n := d.refused()
		t.Logf("%s: refused by status %v, billed %d of %d, %s", c.name, n, billed, limit, took.Round(time.Millisecond))
		if len(n) != 1 || n[http.StatusPaymentRequired] != 1 {
			t.Errorf("what was refused, by status: %v; expected one 402", n)
		}
		failed(t, lines, abi.LimitMoney)
	})
}

// TestScenario06: two programs under one account with room for one call,
// started together.
func TestScenario06(t *testing.T) {
	c := named(t, "openai-go")
	argv := c.argv(t, "plain")
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	for round := range 12 {
		account := fmt.Sprint("crew", round)
		const limit = 1_150_000 // a call needs 1,089,000, and takes 153,000
		if out, notes, code := k.kern("account", "set", account, "--money", abi.FormatMoney(limit)); code != 0 {
			t.Fatal(out, notes)
		}
		before := p.Idle(t.Context())
		var both []*running
		for range 2 {
			both = append(both, start(t, argv, slices.Concat(plainEnv(t), baseOf(k.key("--account", account)).env())))
		}
		var ok, refused int
		for _, r := range both {
			for _, l := range r.lines() {
				switch {
				case l.Error == nil:
					ok++
				case strings.Contains(l.Error.Message, string(abi.LimitMoney)) || l.Error.Status == http.StatusPaymentRequired:
					refused++
				}
			}
		}
		s := p.Idle(t.Context())
		if ok != 1 || refused != 1 || s.Requests-before.Requests != 1 || s.Nano-before.Nano > limit {
			t.Fatalf("round %d: %d answered, %d refused, %d requests, billed %d of %d", round, ok, refused, s.Requests-before.Requests, s.Nano-before.Nano, limit)
		}
	}
}

// TestScenario12: kill ends a program's call wherever it is: in a stream, in a
// provider's back-off, while it waits for its turn.
func TestScenario12(t *testing.T) {
	t.Run("stream", func(t *testing.T) {
		argv := named(t, "openai-node").argv(t, "stream")
		c := mockConfig(t)
		c.TPS = 5 // the story takes a minute
		p := serve(t, c)
		k := newKernel(t, p, "")
		i := k.key()
		r := start(t, argv, slices.Concat(plainEnv(t), baseOf(i).env()))
		until(t, "the stream has begun", func() bool { return strings.Contains(k.log(i.Pid), "model") && p.Stats().InFlight == 1 })
		killed(t, k, i, r)
		if s := p.Idle(t.Context()); s.Requests != 1 || s.Aborted != 1 {
			t.Errorf("%d requests, %d of them stopped; expected one, stopped", s.Requests, s.Aborted)
		}
	})
	t.Run("back-off", func(t *testing.T) {
		argv := named(t, "anthropic-node").argv(t, "plain")
		c := mockConfig(t)
		c.Limits.Requests = 1
		p := serve(t, c)
		k := newKernel(t, p, "")
		i := k.key()
		if lines, _ := program(t, argv, slices.Concat(plainEnv(t), baseOf(i).env())); len(lines) != 1 || lines[0].Error != nil {
			t.Fatalf("the first request: %+v", lines)
		}
		r := start(t, argv, slices.Concat(plainEnv(t), baseOf(i).env()))
		until(t, "the provider has said no", func() bool { return p.Stats().Refused >= 1 || len(k.show(i.Pid).Waits) > 0 })
		killed(t, k, i, r)
		if s := p.Idle(t.Context()); s.OK != 1 || s.Refused > 1 {
			t.Errorf("%d answers and %d refusals, expected one and at most one", s.OK, s.Refused)
		}
	})
	t.Run("turn", func(t *testing.T) {
		argv := named(t, "openai-go-responses").argv(t, "stream")
		c := mockConfig(t)
		c.TPS = 5
		p := serve(t, c)
		k := newKernel(t, p, "")
		k.configure("models: {", "limits: {concurrency: 1}, models: {")
		first, second := k.key(), k.key()
		a := start(t, argv, slices.Concat(plainEnv(t), baseOf(first).env()))
		until(t, "the first is at the provider", func() bool { return p.Stats().InFlight == 1 })
		b := start(t, argv, slices.Concat(plainEnv(t), baseOf(second).env()))
		until(t, "the second waits for its turn", func() bool {
			return slices.ContainsFunc(k.show(second.Pid).Waits, func(s string) bool { return strings.Contains(s, "turn") })
		})
		killed(t, k, second, b)
		if s := p.Stats(); s.Requests != 1 {
			t.Errorf("%d requests, expected one", s.Requests)
		}
		killed(t, k, first, a)
	})
}

// killed kills the process of a key, and holds that its program hears of it.
func killed(t *testing.T, k *kernel, i api.KeyInfo, r *running) {
	t.Helper()
	if out, notes, code := k.kern("kill", fmt.Sprint(i.Pid)); code != 0 {
		t.Fatal(out, notes)
	}
	begun := time.Now()
	lines := r.lines()
	t.Logf("the program ended %s after the kill: %s", time.Since(begun).Round(time.Millisecond), r.note.String())
	if len(lines) != 1 || lines[0].Error == nil {
		t.Errorf("%+v, expected an error", lines)
	}
	if s := k.show(i.Pid); s.State != abi.Exited || s.End.Exit != abi.ExitKilled {
		t.Errorf("the process is %s, %s; expected that it was killed", s.State, s.End.Exit)
	}
}

// log is what kern log prints.
func (k *kernel) log(pid abi.Pid) string {
	k.t.Helper()
	out, _, _ := k.kern("log", fmt.Sprint(pid))
	return out
}

// configure changes the configuration before the daemon is started.
func (k *kernel) configure(from, to string) {
	k.t.Helper()
	name := filepath.Join(k.data(), "kern.yaml")
	b, err := os.ReadFile(name)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.ReplaceAll(string(b), from, to)), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// TestScenario13: the same call with the same result three times ends a
// program, and so does a circle; twice is fine.
func TestScenario13(t *testing.T) {
	c := mockConfig(t)
	c.Scripts["tools"] = script(t, `{repeat: true, replies: [{calls: [{tool: weather, args: {city: Paris}}]}]}`)
	c.Scripts["long"] = script(t, `{repeat: true, replies: [{calls: [{tool: weather, args: {city: Paris}}]}, {calls: [{tool: weather, args: {city: Oslo}}]}]}`)
	twice := script(t, `{replies: [{calls: [{tool: weather, args: {city: Paris}}]}, {calls: [{tool: weather, args: {city: Paris}}]}, {text: twice}]}`)
	c.Scripts["stream"] = twice
	p := serve(t, c)
	k := newKernel(t, p, "")
	for _, try := range []struct {
		client, mode, model string
		least, most         int
	}{
		{"openai-python", "tools", "tools", 3, 3},
		{"anthropic-node", "tools", "tools", 3, 3},
		{"vercel-node-responses", "tools", "tools", 3, 3},
		{"openai-go-responses", "long", "long", 4, 6},
		{"anthropic-go", "tools", "stream", 2, 2},
	} {
		t.Run(try.client+"-"+try.model, func(t *testing.T) {
			argv := named(t, try.client).argv(t, try.mode)
			i := k.key()
			lines, _ := program(t, argv, slices.Concat(plainEnv(t), baseOf(i).env(), []string{"CLIENT_MODEL=" + try.model}))
			if len(lines) != 1 || len(lines[0].Calls) < try.least || len(lines[0].Calls) > try.most {
				t.Fatalf("%+v, expected %d to %d calls", lines, try.least, try.most)
			}
			if try.model == "stream" {
				if lines[0].Text != "twice" {
					t.Errorf("%+v, expected that twice is fine", lines[0])
				}
				return
			}
			failed(t, lines, abi.WatchdogLoop)
			if s := k.show(i.Pid); s.End.Exit != abi.ExitLoop {
				t.Errorf("the process is %s, %s; expected loop", s.State, s.End.Exit)
			}
		})
	}
}

// TestScenario19: fifty programs at once, with tools of the same names that do
// different things; each has its own answers and its own records.
func TestScenario19(t *testing.T) {
	argv := named(t, "openai-go").argv(t, "tools")
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	const n = 50
	var all []*running
	var keys []api.KeyInfo
	for i := range n {
		key := k.key("--name", fmt.Sprint("agent", i))
		keys = append(keys, key)
		all = append(all, start(t, argv, slices.Concat(plainEnv(t), baseOf(key).env(), []string{fmt.Sprintf("CLIENT_SAY=secret-%d-of-mine", i)})))
	}
	for i, r := range all {
		lines := r.lines()
		if len(lines) != 1 || lines[0].Error != nil || lines[0].Text != "Together they have 25 degrees." || len(lines[0].Calls) != 3 {
			t.Errorf("agent %d: %+v %s", i, lines, r.note.String())
		}
		out, _, code := k.kern("log", fmt.Sprint(keys[i].Pid), "--json")
		own := fmt.Sprintf("secret-%d-of-mine", i)
		if code != 0 || !strings.Contains(out, own) || strings.Count(out, "-of-mine") != strings.Count(out, own) {
			t.Errorf("agent %d: the journal has not its own records alone", i)
		}
	}
	if s := p.Idle(t.Context()); s.OK != 3*n {
		t.Errorf("%d answers, expected %d", s.OK, 3*n)
	}
}

// TestScenario22: whoever watches and stops reading, or goes away, does not slow
// a program; the records have no gap and one end.
func TestScenario22(t *testing.T) {
	argv := named(t, "vercel-node-chat").argv(t, "long")
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	i := k.key()
	for _, blocked := range []bool{true, false} {
		watch := exec.Command(k.bin, "log", "-f", "--json", fmt.Sprint(i.Pid))
		watch.Dir, watch.Env = k.dir, k.env
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if watch.Stdout = io.Writer(w); !blocked {
			watch.Stdout = nil
		}
		if err := watch.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = watch.Process.Kill() // it may be gone
			_ = watch.Wait()
			r.Close()
			w.Close()
		})
		if !blocked {
			if err := watch.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines, _ := program(t, argv, slices.Concat(plainEnv(t), baseOf(i).env()))
	if len(lines) != 1 || lines[0].Text != "I counted to 30." {
		t.Fatalf("%+v", lines)
	}
	if out, notes, code := k.kern("key", "revoke", fmt.Sprint(i.Pid)); code != 0 {
		t.Fatal(out, notes)
	}
	if out, notes, code := k.kern("log", fmt.Sprint(i.Pid), "--verify"); code != 0 {
		t.Error(out, notes)
	}
	out, _, _ := k.kern("log", fmt.Sprint(i.Pid), "--json")
	ends, last := 0, uint64(0)
	for s := range strings.Lines(out) {
		var r struct {
			N    uint64 `json:"n"`
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal([]byte(s), &r); err != nil {
			t.Fatal(err, s)
		}
		if last > 0 && r.N != last+1 {
			t.Errorf("record %d follows %d", r.N, last)
		}
		if last = r.N; r.Kind == "exited" {
			ends++
		}
	}
	if ends != 1 || last == 0 {
		t.Errorf("%d records that it ended, expected one", ends)
	}
}

// TestScenario23: the daemon is killed with kill -9 in the middle of a run, and
// started again: the program goes on at the same address, and the books hold.
func TestScenario23(t *testing.T) {
	for _, name := range []string{"openai-python", "anthropic-go"} {
		t.Run(name, func(t *testing.T) {
			argv := named(t, name).argv(t, "long")
			c := mockConfig(t)
			c.Latency = mustSpread(t, "40ms")
			p := serve(t, c)
			k := newKernel(t, p, "")
			const limit = 1_000_000_000
			i := k.key("--money", "1")
			trace := filepath.Join(t.TempDir(), "trace")
			r := start(t, argv, slices.Concat(plainEnv(t), baseOf(i).env(), []string{"CLIENT_TRACE=" + trace}))
			until(t, "five answers were given", func() bool { return p.Stats().OK >= 5 })
			k.crash()
			if out, notes, code := k.kern("ps"); code != 0 {
				t.Fatal(out, notes)
			}
			lines := r.lines()
			s := p.Idle(t.Context())
			now := k.show(i.Pid)
			used, reserved := money(t, now.Usage.Money), money(t, now.Reserved.Money)
			if s.Nano > used+reserved || used+reserved > limit {
				t.Errorf("billed %d, booked %d, in doubt %d, limit %d", s.Nano, used, reserved, limit)
			}
			t.Logf("billed %d, booked %d, in doubt %d: %s", s.Nano, used, reserved, r.out.String())
			b, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			done := strings.Split(strings.TrimSpace(string(b)), "\n")
			slices.Sort(done)
			if len(slices.Compact(slices.Clone(done))) != len(done) {
				t.Errorf("a tool ran twice: %v", done)
			}
			if out, notes, code := k.kern("log", fmt.Sprint(i.Pid), "--verify"); code != 0 {
				t.Error(out, notes)
			}
			// Its SDK tries again for a second or two: it went on, or it heard of it.
			if len(lines) != 1 || lines[0].Error == nil && lines[0].Text != "I counted to 30." {
				t.Errorf("%+v, expected the end of the task, or an error", lines)
			}
			// The same calls again would be a loop; another task is not.
			argv = named(t, name).argv(t, "tools")
			if lines, notes := program(t, argv, slices.Concat(plainEnv(t), baseOf(i).env())); len(lines) != 1 || lines[0].Text != "Together they have 25 degrees." {
				t.Errorf("with the same key, after the daemon was started again: %+v %s", lines, notes)
			}
		})
	}
}

func mustSpread(t *testing.T, s string) mockprovider.Spread {
	t.Helper()
	d, err := mockprovider.ParseSpread(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestScenario24: a limit trips in a grandchild; it is told so, and those above
// it go on. A limit above binds those below.
func TestScenario24(t *testing.T) {
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	below := func(parent api.KeyInfo, limits ...string) api.KeyInfo {
		return k.key(append([]string{"--parent", fmt.Sprint(parent.Pid)}, limits...)...)
	}
	old := k.key("--money", "5")
	mid := below(old)
	young := below(mid, "--model-calls", "2")
	run := func(name, mode string, i api.KeyInfo) []line {
		lines, _ := program(t, named(t, name).argv(t, mode), slices.Concat(plainEnv(t), baseOf(i).env()))
		return lines
	}
	failed(t, run("anthropic-python", "long", young), abi.LimitModelCalls)
	for _, i := range []api.KeyInfo{mid, old} {
		if lines := run("openai-go", "tools", i); len(lines) != 1 || lines[0].Error != nil {
			t.Errorf("process %d: %+v, expected that it goes on", i.Pid, lines)
		}
	}
	if s := p.Idle(t.Context()); money(t, k.show(old.Pid).Usage.Money) != s.Nano || s.OK != 8 {
		t.Errorf("the oldest has booked %s; the provider billed %d for %d answers, expected 8", k.show(old.Pid).Usage.Money, s.Nano, s.OK)
	}
	if out, notes, code := k.kern("key", "narrow", fmt.Sprint(old.Pid), "--money", "0"); code != 0 {
		t.Fatal(out, notes)
	}
	failed(t, run("openai-node", "plain", below(mid)), abi.LimitMoney)
}

// TestScenario25: a child asks for more than its parent has; ten children at
// once never take more.
func TestScenario25(t *testing.T) {
	argv := named(t, "openai-go").argv(t, "long")
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	const limit = 20_000_000
	old := k.key("--money", abi.FormatMoney(limit))
	var all []*running
	for range 10 {
		i := k.key("--parent", fmt.Sprint(old.Pid), "--money", "100")
		child := k.show(i.Pid)
		if n, set := child.Limits.Get(abi.Money); set && n > limit {
			t.Errorf("the child may spend %d, its parent %d", n, limit)
		}
		all = append(all, start(t, argv, slices.Concat(plainEnv(t), baseOf(i).env())))
	}
	for _, r := range all {
		failed(t, r.lines(), abi.LimitMoney)
	}
	if s := p.Idle(t.Context()); s.Nano > limit || s.Nano < limit/2 || money(t, k.show(old.Pid).Usage.Money) != s.Nano {
		t.Errorf("billed %d of %d, booked %s", s.Nano, limit, k.show(old.Pid).Usage.Money)
	}
}

// secretFree fails where a file holds one of the secrets.
func secretFree(t *testing.T, dir string, secrets ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		for _, s := range secrets {
			if bytes.Contains(b, []byte(s)) {
				t.Errorf("%s holds the secret %.8s...", name, s)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestScenario34: no secret is in a record, a log, an error or the environment
// of a program.
func TestScenario34(t *testing.T) {
	for _, name := range []string{"openai-node", "anthropic-python"} {
		t.Run(name, func(t *testing.T) {
			argv := named(t, name).argv(t, "tools,error")
			c := mockConfig(t)
			c.Scripts["error"] = script(t, `{replies: [{error: bad_request}]}`)
			p := serve(t, c)
			k := newKernel(t, p, "")
			out, notes, _ := k.kern(append([]string{"exec", "--money", "1", "--"}, argv...)...)
			if lines := readLines(t, out); len(lines) != 2 || lines[0].Error != nil || lines[1].Error == nil {
				t.Fatalf("%s%s", out, notes)
			}
			env, more, code := k.kern("exec", "--", "env")
			if code != 0 || !strings.Contains(env, "OPENAI_BASE_URL=http://127.0.0.1:") {
				t.Fatalf("%d %s%s", code, env, more)
			}
			for what, text := range map[string]string{"stdout": out, "stderr": notes + more, "the environment": env, "the log": k.log(1)} {
				if strings.Contains(text, key) {
					t.Errorf("the provider's key is in %s", what)
				}
			}
			secretFree(t, k.data(), key)
		})
	}
}

// TestOwnCredential: where no key is configured, the program's own goes to the
// provider, and is kept nowhere; Kern's key is in the address. Scenario 34.
func TestOwnCredential(t *testing.T) {
	for _, name := range []string{"openai-python", "anthropic-node", "vercel-node-anthropic", "openai-go-responses"} {
		t.Run(name, func(t *testing.T) {
			argv := named(t, name).argv(t, "tools")
			p := serve(t, mockConfig(t))
			k := newKernel(t, p, "")
			k.configure(", key_env: UP_KEY", "")
			i := k.key("--money", "1")
			lines, notes := program(t, argv, slices.Concat(plainEnv(t), base{i.InPath + "/v1", i.InPath, key}.env()))
			if len(lines) != 1 || lines[0].Error != nil || lines[0].Text != "Together they have 25 degrees." {
				t.Fatalf("%+v %s", lines, notes)
			}
			s := p.Idle(t.Context())
			if s.Keys[hashOfKey].OK != s.Requests || money(t, k.show(i.Pid).Usage.Money) != s.Nano {
				t.Errorf("the provider's books: %+v; kern booked %s", s, k.show(i.Pid).Usage.Money)
			}
			secretFree(t, k.data(), key, i.Key)
		})
	}
}

// TestExec: under kern exec every client does the same as raw, with nothing but
// the words kern exec before its command line; and it is stopped to the cent.
func TestExec(t *testing.T) {
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	each(t, func(t *testing.T, c client) {
		argv := c.argv(t, "stream,tools,long")
		before := p.Idle(t.Context())
		limit := int64(20_000_000)
		if c.native() {
			limit = 50_000_000
		}
		ran.Add(1)
		out, notes, code := k.kern(append([]string{"exec", "--money", abi.FormatMoney(limit), "--name", c.name, "--"}, argv...)...)
		lines := readLines(t, out)
		if len(lines) == 0 || lines[0].Text != story || len(lines) < 2 || lines[1].Text != "Together they have 25 degrees." {
			t.Fatalf("%s%s", out, notes)
		}
		billed := p.Idle(t.Context()).Nano - before.Nano
		if code != 124 || billed > limit || billed < limit/8 || !strings.Contains(notes, "money") {
			t.Errorf("exit code %d, billed %d of %d: %s", code, billed, limit, notes)
		}
		if strings.Contains(notes, "ANTHROPIC_") { // an SDK that is given two credentials says so
			t.Errorf("its environment is warned of: %s", notes)
		}
		t.Logf("billed %d of %d: %s", billed, limit, strings.TrimSpace(notes))
	})
}
