package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/bench/rig"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
)

// measureEnded measures the cost of n ended processes: memory, disk, the next start
// and kern ps. A third are keys, a third programs under kern exec, and a third agents
// of the built-in loop with pages and messages. One of each really runs. The others
// are copies of its records under pids and keys of their own.
func measureEnded(ctx context.Context, n, calls int) error {
	provider, end, err := rig.StartMock("--reply", strings.Repeat("word ", 30), "--price", "1/10")
	if err != nil {
		return err
	}
	defer end()
	k, err := rig.NewDaemon("", fmt.Sprintf("providers:\n  openai:\n    base_url: %q\n    key_env: BENCH_PROVIDER_KEY\n    models:\n      m: {input: 1, output: 10, window: 32768, max_output: 2048}\n", provider))
	if err != nil {
		return err
	}
	hears := &daemonOutput{}
	k.Output, k.Env = hears, []string{"GODEBUG=gctrace=1"}
	if err := k.Serve(); err != nil {
		return err
	}
	defer k.Close()
	if err := runOneOfEach(ctx, k, calls); err != nil {
		return err
	}
	fmt.Printf("%9s %9s %10s %10s %12s %10s %10s %10s %10s\n", "processes", "records", "start", "resident", "live heap", "journal", "ps", "ps -a", "ps --json")
	for _, made := range []int{n / 16, n / 4, n} {
		if err := k.Kill(); err != nil {
			return err
		}
		records, err := multiply(k.Dir, made)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := k.Serve(); err != nil {
			return err
		}
		if err := printRow(ctx, k, hears, made, records, time.Since(begin)); err != nil {
			return err
		}
	}
	return nil
}

// printRow prints one row of the table, for a daemon that has just started.
func printRow(ctx context.Context, k *rig.Daemon, hears *daemonOutput, made, records int, start time.Duration) error {
	var took [3]time.Duration
	for i, args := range [][]string{{"ps"}, {"ps", "-a"}, {"ps", "--json"}} {
		begin := time.Now()
		if out, err := k.Command(args...).Output(); err != nil {
			return fmt.Errorf("kern %s: %w: %.200s", strings.Join(args, " "), err, out)
		}
		if took[i] = time.Since(begin); i > 0 {
			continue
		}
		c, about, err := connect(ctx, k.Dir)
		if err != nil {
			return err
		}
		c.Close()
		s, err := takeSample(about.Pid) // before all are asked for
		if err != nil {
			return err
		}
		live, _, _ := hears.take()
		fmt.Printf("%9d %9d %10s %7d MB %9d MB %7d MB", made, records, start.Round(time.Millisecond), s.resident>>20, live>>20, journalSize(k.Dir)>>20)
	}
	fmt.Printf(" %10s %10s %10s\n", took[0].Round(time.Millisecond), took[1].Round(time.Millisecond), took[2].Round(time.Millisecond))
	return nil
}

// sorts is the number of sorts of process. The first process of a sort has its
// number as pid.
const sorts = 3

// runOneOfEach runs one process of each sort until it ends.
func runOneOfEach(ctx context.Context, k *rig.Daemon, calls int) error {
	c, _, err := connect(ctx, k.Dir)
	if err != nil {
		return err
	}
	defer c.Close()
	made, err := c.Keys.New(ctx, api.Key{Name: "short", Limits: limits(map[abi.Unit]int64{abi.Money: 1e9, abi.Steps: 100, abi.Wall: int64(time.Hour)}), Priority: 10})
	if err != nil {
		return err
	}
	if err := chat(ctx, made.OpenAI, made.Key, calls); err != nil {
		return err
	}
	if err := c.Keys.End(ctx, made.Pid, api.KeyEnd{}); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if out, err := k.Command("exec", "--money", "1", "--steps", "100", "--", self, "chat", strconv.Itoa(calls)).CombinedOutput(); err != nil {
		return fmt.Errorf("kern exec: %w: %s", err, out)
	}
	var replies strings.Builder
	for i := range 4 * calls {
		fmt.Fprintf(&replies, "  - calls: [{tool: send, args: {to: %d, message: \"message %d\"}}, {tool: show, args: {page: %d}}]\n  - calls: [{tool: recv}]\n", sorts, i, i)
	}
	replies.WriteString("  - text: It is done.\n")
	for name, text := range map[string]string{
		"agent.yaml":   "name: pager\nmodel: script:replies.yaml\nlimits: {steps: 1000, money: 1}\ntools:\n  - name: send\n  - name: recv\n  - {name: show, description: Show something., effect: pure, command: [seq, \"40\"]}\n",
		"replies.yaml": "replies:\n" + replies.String(),
	} {
		if err := os.WriteFile(filepath.Join(k.Dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if out, err := k.Command("run", "-f", filepath.Join(k.Dir, "agent.yaml"), "look around").CombinedOutput(); err != nil {
		return fmt.Errorf("kern run: %w: %s", err, out)
	}
	return nil
}

// multiply copies the records of the first process of each sort until the journal
// has n processes, and returns the number of records. The journal must be closed.
func multiply(dir string, n int) (records int, err error) {
	s, lease, err := sqlite.Open(dir)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	var lives [sorts][]*abi.Record
	last := abi.Pid(0)
	if err := s.Scan(func(r *abi.Record) error {
		if r.Pid > 0 && r.Pid <= sorts {
			lives[r.Pid-1] = append(lives[r.Pid-1], r)
		}
		last, records = r.Pid, records+1
		return nil
	}); err != nil {
		return 0, err
	}
	var batch []abi.Record
	for pid := last + 1; int(pid) <= n; pid++ {
		for _, r := range lives[int(pid-1)%sorts] {
			c, err := copyRecord(s, r, pid)
			if err != nil {
				return 0, err
			}
			batch, records = append(batch, c), records+1
		}
		if len(batch) > 10_000 || int(pid) == n {
			if err := s.Append(lease, batch); err != nil {
				return 0, err
			}
			batch = nil
		}
	}
	return records, nil
}

// copyRecord returns a record as another process would have it.
func copyRecord(s journal.Store, r *abi.Record, pid abi.Pid) (abi.Record, error) {
	c := *r
	c.Pid = pid
	if r.Spawn == nil {
		return c, nil
	}
	def := r.Spawn.Program.Bytes
	if h := r.Spawn.Program.Hash; !h.IsZero() {
		var err error
		if def, err = s.Blob(h); err != nil {
			return c, err
		}
	}
	var program map[string]json.RawMessage
	if err := json.Unmarshal(def, &program); err != nil || program["key"] == nil {
		return c, err
	}
	program["key"] = fmt.Appendf(nil, "%q", abi.HashOf(fmt.Append(nil, pid)).String())
	b, err := json.Marshal(program)
	if err != nil {
		return c, err
	}
	spawn := *r.Spawn
	d, blob := abi.NewData(b)
	if spawn.Program = d; blob != nil {
		c.Blobs = append(c.Blobs, *blob)
	}
	c.Spawn = &spawn
	return c, nil
}

// chat makes a few calls with a key.
func chat(ctx context.Context, base, key string, calls int) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range calls {
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, words(rnd, 60))
		r, err := http.NewRequestWithContext(ctx, "POST", base+"/chat/completions", strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 {
			return fmt.Errorf("%s: %s: %w", res.Status, b, err)
		}
	}
	return nil
}

func limits(m map[abi.Unit]int64) (l abi.Limits) {
	for u, n := range m {
		l.Set(u, n)
	}
	return l
}

// words returns n words, different each time.
func words(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "w%d ", rnd.IntN(100000))
	}
	return b.String()
}
