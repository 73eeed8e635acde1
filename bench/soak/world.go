package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/bench/rig"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/mockprovider"
)

// models is the number of models of the provider. Each key uses one of its own while
// there are enough, so that the provider's bill separates the keys.
const models = 400

// payers is the number of named accounts.
var payers = []string{"alpha", "beta", "gamma", "delta"}

// A world is everything that a soak runs.
type world struct {
	o        *options
	mark     string // in the environment of all that is started
	dir      string // scripts, and what programs write
	self     string
	provider string
	end      func()
	daemon   *rig.Daemon
	hears    *daemonOutput
	http     *http.Client

	mu         sync.Mutex
	daemonLine *api.Client
	pid        int // of the daemon
	tenants    []*tenant
	made       int
	crashes    int
	requests   atomic.Int64

	notes
}

// notes are the observations of a soak, and the orders it gave.
type notes struct {
	lock   sync.Mutex
	caps   map[abi.Pid]abi.Limits // the highest that ever stood, by process
	purses map[string]abi.Limits  // by account
	names  map[abi.Pid]string     // models, by the process on top
	wrongs map[string]int         // what must not be
	asked  map[string]int         // what was asked, by how it ended

	removed []string // words of processes that were removed
}

// A tenant is an open key, as its clients know it.
type tenant struct {
	pid   abi.Pid
	key   string
	path  string // the address with the key in it
	base  string
	model string
}

const script = `price: {input: 1, output: 10}
repeat: true
replies:
  - text: I see what you mean, and will look at it before I say more about it than I know.
  - calls: [{tool: look, args: {page: 1}}]
  - text: %s
  - calls: [{tool: look, args: {page: 2}}, {tool: note, args: {text: as it was said before}}]
  - text: That is all there is to say.
`

const agentScript = `price: {input: 1, output: 10}
replies:
  - calls: [{tool: count, args: {text: one two three}}]
  - calls: [{tool: count, args: {text: four five}}, {tool: code, args: {code: "print(6*7)"}}]
  - text: It is counted.
`

const agentFile = `model: openai:agent
limits: {money: 0.05, steps: 8, wall: 30s}
tools:
  - name: count
    description: Count the words of a text.
    command: [wc, -w]
    effect: pure
  - name: code
`

func newWorld(o *options) (w *world, err error) {
	w = &world{o: o, mark: fmt.Sprintf("KERN_SOAK_MARK=%d-%d", o.seed, os.Getpid()), hears: &daemonOutput{},
		notes: notes{caps: map[abi.Pid]abi.Limits{}, purses: map[string]abi.Limits{}, names: map[abi.Pid]string{}, wrongs: map[string]int{}, asked: map[string]int{}},
		http:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.clients}, Timeout: 30 * time.Second}}
	if w.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "kern-soak-"); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"script.yaml": fmt.Sprintf(script, strings.Repeat("a longer answer ", 40)), "agentscript.yaml": agentScript, "effectscript.yaml": effectScript, "gone.yaml": goneScript, "agent.yaml": agentFile} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	w.provider, w.end, err = rig.StartMock("--script", filepath.Join(w.dir, "script.yaml"), "--script", "agent="+filepath.Join(w.dir, "agentscript.yaml"),
		"--script", "effect="+filepath.Join(w.dir, "effectscript.yaml"),
		"--seed", fmt.Sprint(o.seed), "--overload", "2%", "--latency", "p50=20ms,p99=400ms", "--tps", "3000", "--chunk", "3", "--rpm", "240",
		"--fault", "cut@3=2%", "--fault", "malformed@4=1%", "--fault", "nousage=2%", "--fault", "hang@2=0.2%", "--fault", "slow@2=0.5%")
	if err != nil {
		return nil, err
	}
	var conf strings.Builder
	for _, name := range []string{"openai", "anthropic"} {
		base := w.provider
		if name == "anthropic" {
			base = strings.TrimSuffix(base, "/v1")
		}
		fmt.Fprintf(&conf, "  %s:\n    base_url: %q\n    key_env: BENCH_PROVIDER_KEY\n    concurrency: 40\n    limits: {rpm: 30000, itpm: 40000000, otpm: 20000000}\n    models:\n", name, base)
		for i := range models {
			fmt.Fprintf(&conf, "      m%03d: {input: 1, output: 10, window: 32768, max_output: 1024}\n", i)
		}
		fmt.Fprintf(&conf, "      effect: {input: 1, output: 10, window: 32768, max_output: 1024}\n")
		fmt.Fprintf(&conf, "      agent: {input: 1, output: 10, window: 32768, max_output: 1024}\n")
	}
	if w.daemon, err = rig.NewDaemon("", "providers:\n"+conf.String()); err != nil {
		return nil, err
	}
	w.daemon.Output, w.daemon.Env = w.hears, []string{"GODEBUG=gctrace=1", w.mark}
	if err := w.daemon.Serve(); err != nil {
		return nil, err
	}
	if err := w.reconnect(context.Background()); err != nil {
		return nil, err
	}
	for i, name := range payers {
		l := limits(map[abi.Unit]int64{abi.Money: int64(i+1) * 300_000_000})
		w.purses[name] = l
		if _, err := w.control().Accounts.Set(context.Background(), name, api.Change{Limits: l}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) close() {
	w.control().Close()
	w.end()
	if w.o.keep {
		fmt.Println("kept:", w.daemon.Dir)
		_ = w.daemon.Kill() // it may have ended
	} else {
		w.daemon.Close()
	}
	os.RemoveAll(w.dir)
}

// random returns a source of random numbers for one worker.
func (w *world) random(n uint64) *rand.Rand { return rand.New(rand.NewPCG(w.o.seed, n)) }

// reconnect connects to the running daemon.
func (w *world) reconnect(ctx context.Context) error {
	c, about, err := connect(ctx, w.daemon.Dir)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.daemonLine != nil {
		w.daemonLine.Close()
	}
	w.daemonLine, w.pid = c, about.Pid
	return nil
}

func (w *world) control() *api.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.daemonLine
}

// fault notes a broken promise.
func (n *notes) fault(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	n.lock.Lock()
	defer n.lock.Unlock()
	if n.wrongs[s]++; len(n.wrongs) <= 40 && n.wrongs[s] == 1 {
		fmt.Println("WRONG:", s)
	}
}

func (n *notes) verdict(seed uint64) error {
	n.lock.Lock()
	defer n.lock.Unlock()
	for _, what := range slices.Sorted(maps.Keys(n.asked)) {
		fmt.Printf("%8d  %s\n", n.asked[what], what)
	}
	if len(n.wrongs) > 0 {
		return fmt.Errorf("%d things are wrong; seed %d", len(n.wrongs), seed)
	}
	fmt.Println("all is well")
	return nil
}

func (n *notes) count(what string) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.asked[what]++
}

// observe lets the daemon run for a time, and samples it meanwhile.
func (w *world) observe(ctx context.Context, d time.Duration) {
	end := time.After(d)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-end:
			w.printSample("")
			return
		case <-ctx.Done():
			return
		case <-look.C:
			w.checkLimits(ctx)
		}
	}
}

const heading = "    requests  processes  live  resident  heap  descriptors  threads  journal"

// printSample prints the resources of the daemon.
func (w *world) printSample(what string) {
	w.mu.Lock()
	pid, asked := w.pid, w.requests.Load()
	w.mu.Unlock()
	s, err := takeSample(pid)
	if err != nil {
		return // it is gone
	}
	live := 0
	list, _ := w.control().List(context.Background())
	for i := range list {
		if list[i].State != abi.Exited {
			live++
		}
	}
	heap, _, _ := w.hears.take()
	fmt.Printf("    %8d  %9d %5d %6d MB %2d MB %12d %8d %5d KB  %s\n", asked, len(list), live, s.resident>>20, heap>>20, s.descriptors, s.threads, journalSize(w.daemon.Dir)>>10, what)
}

// restart kills the daemon and starts it again. With dump, the daemon prints the
// stacks of its goroutines first.
func (w *world) restart(ctx context.Context, dump bool) error {
	w.mu.Lock()
	pid := w.pid
	w.mu.Unlock()
	signal := syscall.SIGKILL
	if dump {
		signal = syscall.SIGQUIT
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("the daemon %d is gone: %w", pid, err)
	}
	if err := w.daemon.WaitForEnd(); err != nil {
		return err
	}
	w.crashes++
	begin := time.Now()
	err := w.serve(ctx)
	took := time.Since(begin)
	if err != nil {
		return err
	}
	_, procs, odd := w.hears.take()
	for _, s := range odd {
		if strings.Contains(s, "panic") || strings.Contains(s, "fatal error") || strings.Contains(s, "DATA RACE") {
			w.fault("the daemon said %q", s)
		}
	}
	if procs != nil {
		fmt.Printf("    %d goroutines at its end: %s\n", procs["all"], mostCommon(procs, 12))
	}
	w.checkLimits(ctx)
	w.printSample(fmt.Sprintf("started again in %s", took.Round(time.Millisecond)))
	return nil
}

// serve starts the daemon. A command may have started one a moment before. That one
// is ended, because only the daemon started here has its output read.
func (w *world) serve(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		err := w.daemon.Serve()
		if err == nil {
			return w.reconnect(ctx)
		}
		if !strings.Contains(err.Error(), "serves") && !strings.Contains(err.Error(), "is held by another kern") {
			return err
		}
		c, about, err := connect(ctx, w.daemon.Dir)
		if err != nil {
			continue // it is just starting, or just gone
		}
		if err := c.Stop(ctx); err != nil && !errors.Is(err, api.ErrLost) {
			_ = syscall.Kill(about.Pid, syscall.SIGKILL)
		}
		c.Close()
		w.count("daemons that a command started")
	}
	return errors.New("the daemon cannot be started: another is always there")
}

// providerBill returns the bill of the provider.
func (w *world) providerBill(ctx context.Context, idle bool) (s mockprovider.Stats, err error) {
	url := strings.TrimSuffix(w.provider, "/v1") + "/mock/stats"
	if idle {
		url += "?idle=1"
	}
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return s, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return s, err
	}
	err = json.Unmarshal(b, &s)
	return s, err
}
