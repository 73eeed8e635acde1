//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/daemon"
)

// Mutants that die here and in the scripts: a doubtful effect that is run again
// (23); a reservation given back at recovery (23); a tool call that is not
// reserved (script 3); results with the provider's key (34); a cap on calls
// that does not hold for a provider at another address (12); exit codes mixed
// up (scripts 1 to 3); a stream that begins anew after a crash, and a daemon in
// its starter's session (daemon_test.go). That an intent is on disk before its
// effect begins is not seen from here: the kernel's own crash tests see it.

// TestScenario06 starts two processes together under an account with room for
// one call. However often, one call is made.
func TestScenario06TwoUnderOneAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"once.yaml": `
price: {input: 10.00}
replies: [{text: done, usage: {input: 100, output: 1}}]
`})
	w.ok("ps")
	for i := range 12 {
		name := "account" + strconv.Itoa(i)
		w.ok("account", "set", name, "--money", "0.001")
		var got [2]result
		var both sync.WaitGroup
		for j := range got {
			both.Go(func() {
				out, _, _ := w.kern("run", "--model", "script:once.yaml", "--account", name, "--json", "go")
				if err := json.Unmarshal([]byte(out), &got[j]); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		both.Wait()
		calls, ends := got[0].Usage.Model+got[1].Usage.Model, string(got[0].Exit)+" "+string(got[1].Exit)
		if calls != 1 || ends != "done limit" && ends != "limit done" {
			t.Errorf("round %d: %d calls, exits %s", i, calls, ends)
		}
		var b api.Account
		if err := json.Unmarshal([]byte(w.ok("account", "show", name, "--json")), &b); err != nil || b.Usage.Money != "0.001" || b.Reserved.Money != "0" {
			t.Errorf("round %d: the account is %+v, %v", i, b, err)
		}
	}
}

// A provider is an OpenAI-compatible server on this machine.
type provider struct {
	*httptest.Server
	asked atomic.Int64
	hold  chan struct{} // requests wait for it, if it is not nil
	fail  string        // an error that quotes the key, if it is not empty
}

func newProvider(t *testing.T, hold chan struct{}) *provider {
	p := &provider{hold: hold}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		p.asked.Add(1)
		if p.hold != nil {
			select {
			case <-p.hold:
			case <-r.Context().Done():
				return
			}
		}
		if p.fail != "" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":%q}}`, p.fail+r.Header.Get("Authorization"))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":"hello"}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}`,
			`[DONE]`,
		} {
			fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// TestScenario12Turn kills a process that waits for its turn at a provider
// that takes one call at a time.
func TestScenario12KilledWaitingForATurn(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	p := newProvider(t, hold)
	w := newWorld(t, map[string]string{"data/kern.yaml": fmt.Sprintf("providers: {openai: {base_url: %q, concurrency: 1}}\n", p.URL+"/v1")})
	w.ok("run", "--detach", "--model", "openai:some", "go")
	w.until("the first request", func() bool { return p.asked.Load() == 1 })
	w.ok("run", "--detach", "--model", "openai:some", "go")
	w.until("the wait for a turn", func() bool { return strings.HasPrefix(w.waitsFor(2), "turn openai") })
	if out := w.ok("ps"); !strings.Contains(out, "waiting: turn openai") {
		t.Errorf("ps shows %s", out)
	}
	begun := time.Now()
	w.ok("kill", "2")
	if r := w.wait("2"); r.Exit != abi.ExitKilled || r.Usage.Model != 0 || time.Since(begun) > patience {
		t.Errorf("%+v after %s", r, time.Since(begun))
	}
	close(hold)
	if r := w.wait("1"); r.Exit != abi.ExitDone || r.Output != "hello" {
		t.Errorf("the other one: %+v", r)
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}

// TestNice makes the last of three the most urgent while all but one wait for
// their turn: it goes before the other.
func TestNice(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	p := newProvider(t, hold)
	w := newWorld(t, map[string]string{"data/kern.yaml": fmt.Sprintf("providers: {openai: {base_url: %q, concurrency: 1}}\n", p.URL+"/v1")})
	for pid := abi.Pid(1); pid <= 3; pid++ {
		w.ok("run", "--detach", "--model", "openai:some", "go")
		w.until("a call", func() bool {
			return p.asked.Load() == 1 && (pid == 1 || strings.HasPrefix(w.waitsFor(pid), "turn openai"))
		})
	}
	w.ok("nice", "3", "0")
	close(hold)
	begun := map[abi.Pid]int64{}
	for pid := abi.Pid(1); pid <= 3; pid++ {
		if r := w.wait(fmt.Sprint(pid)); r.Exit != abi.ExitDone {
			t.Errorf("process %d: %+v", pid, r)
		}
		for _, r := range w.records(pid) {
			if r.Kind == abi.KindBegan {
				begun[pid] = r.Time
			}
		}
	}
	if begun[1] == 0 || begun[1] > begun[3] || begun[3] > begun[2] {
		t.Errorf("they began at %v", begun)
	}
}

// TestScenario19 runs fifty processes at once, with tools of the same name and
// different behaviour.
func TestScenario19FiftyAtOnce(t *testing.T) {
	t.Parallel()
	const n = 50
	files := map[string]string{"replies.yaml": `
replies:
  - calls: [{tool: who, args: {}}]
  - text: done
`}
	for i := range n {
		files[fmt.Sprintf("agent%d.yaml", i)] = fmt.Sprintf("name: a%d\nmodel: script:replies.yaml\ntools: [{name: who, command: [echo, i am %d]}]\n", i, i)
	}
	w := newWorld(t, files)
	w.ok("ps")
	pids := make([]abi.Pid, n)
	var all sync.WaitGroup
	gate := make(chan struct{}, 8)
	for i := range n {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			var s api.Started
			out, errs, _ := w.kern("run", "--detach", "--json", "-f", fmt.Sprintf("agent%d.yaml", i), "go")
			if err := json.Unmarshal([]byte(out), &s); err != nil {
				t.Errorf("%v: %s", err, errs)
			}
			pids[i] = s.Pid
		})
	}
	all.Wait()
	c := w.client()
	for i, pid := range pids {
		var r result
		if err := c.Result(t.Context(), pid, true, &r); err != nil || r.Exit != abi.ExitDone {
			t.Fatalf("process %d: %+v, %v", pid, r, err)
		}
		said := ""
		for _, rec := range w.records(pid) {
			if rec.Pid != pid {
				t.Errorf("process %d has a record of process %d", pid, rec.Pid)
			}
			if rec.Answer != nil && rec.Answer.Page != nil && rec.Answer.Page.Role == "tool" {
				said += string(rec.Answer.Value.Bytes)
			}
		}
		if want := strconv.Quote(fmt.Sprintf("i am %d", i)); said != want {
			t.Errorf("process %d of agent %d heard %s, want %s", pid, i, said, want)
		}
	}
}

// TestScenario22 lets one reader of records block for ever and another go away
// in the middle. The process does not notice, and a third reads all of it.
func TestScenario22SlowReader(t *testing.T) {
	t.Parallel()
	var replies strings.Builder
	for i := range 30 {
		fmt.Fprintf(&replies, "  - calls: [{tool: big, args: {n: %d}}]\n", i)
	}
	w := newWorld(t, map[string]string{
		"agent.yaml": "model: script:replies.yaml\ntools: [{name: big, effect: pure, command: [sh, -c, 'cat; seq 1 4000']}]\n",
		// the reader is there before the tools begin
		"replies.yaml": "latency: 20ms\nreplies:\n" + replies.String() + "  - text: done\n",
	})
	w.ok("run", "--detach", "-f", "agent.yaml", "go")

	stuck, err := net.Dial("unix", api.SocketOf(w.data()))
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	fmt.Fprintf(stuck, "GET /v1/processes/1/records?follow=1 HTTP/1.1\r\nHost: kern\r\n\r\n") // and nothing is ever read

	c := w.client()
	short, cancel := context.WithCancel(t.Context())
	err = c.Records(short, 1, 0, true, func(r *abi.Record, _ []byte) error {
		if r.N == 5 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the reader that leaves: %v", err)
	}

	ends, last := 0, uint64(0)
	err = c.Records(t.Context(), 1, 0, true, func(r *abi.Record, _ []byte) error {
		if last++; r.N != last {
			t.Errorf("record %d comes at place %d", r.N, last)
		}
		if r.Kind == abi.KindExited {
			ends++
		}
		return nil
	})
	if err != nil || ends != 1 {
		t.Errorf("%d terminal records, %v", ends, err)
	}
	if r := w.wait("1"); r.Exit != abi.ExitDone || r.Usage.Tool != 30 {
		t.Errorf("%+v", r)
	}
	begun := time.Now()
	w.ok("stop-daemon") // nor does the reader hold up the end
	if took := time.Since(begun); took > daemon.ShutdownTime-time.Second {
		t.Errorf("the daemon took %s to end", took)
	}
}

// TestScenario23 kills the daemon with SIGKILL after the n-th record, for every
// n, and lets whoever asks next start it again. Outside of Kern each effect
// notes that it happened.
func TestScenario23KillNine(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"agent.yaml": `
model: script:replies.yaml
limits: {money: 0.05}
tools:
  - {name: once, command: [tick, $WORK/ran], cost: 0.001}
  - {name: again, command: [tick, $WORK/again], effect: idempotent, attempts: 3}
`,
		"replies.yaml": `
price: {input: 10.00}
replies:
  - {calls: [{tool: once, args: {n: 1}}, {tool: again, args: {n: 1}}], usage: {input: 100, output: 1}}
  - {calls: [{tool: once, args: {n: 2}}, {tool: once, args: {n: 3}}], usage: {input: 100, output: 1}}
  - {calls: [{tool: again, args: {n: 2}}], usage: {input: 100, output: 1}}
  - {text: done, usage: {input: 100, output: 1}}
`}
	calm := newWorld(t, files)
	calm.ok("run", "-f", "agent.yaml", "go")
	total := uint64(len(calm.records(1)))
	step := uint64(2)
	if os.Getenv("KERN_SOAK") != "" {
		step = 1
	}
	for n := uint64(1); n <= total; n += step {
		t.Run(fmt.Sprintf("record%02d", n), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, files)
			w.ok("ps")
			c := w.client()
			w.ok("run", "--detach", "-f", "agent.yaml", "go")
			err := c.Records(t.Context(), 1, 0, true, func(r *abi.Record, _ []byte) error {
				if r.N == n {
					w.crash()
				}
				return nil
			})
			if n < total && err == nil {
				t.Logf("the process was faster than the kill")
			}
			r := w.wait("1")
			if r.Exit != abi.ExitDone || r.Output != "done" {
				t.Errorf("%+v", r)
			}
			w.checkEffects(w.records(1))
			w.checkBooks(1, "0.05")
			if out := w.ok("log", "1", "--verify"); !strings.Contains(out, "all intact") {
				t.Errorf("verify: %s", out)
			}
			if out := w.ok("replay", "1", "--json"); !strings.Contains(out, `"same":true`) {
				t.Errorf("replay: %s", out)
			}
		})
	}
}

// checkEffects holds what happened outside against what the journal says.
func (w *world) checkEffects(records []*abi.Record) {
	w.t.Helper()
	ran := w.lines("ran")
	names := make(map[uint64]string)
	for i, r := range records {
		if r.N != uint64(i+1) {
			w.t.Errorf("record %d stands at place %d", r.N, i+1)
		}
		if r.Intent != nil && r.Intent.Tool != "" {
			names[r.Call] = r.Intent.Tool
		}
		if r.Answer != nil && names[r.Call] == "once" && r.Answer.Outcome == abi.Unknown && r.Answer.Again {
			w.t.Errorf("record %d: a doubtful effect is to be run again", r.N)
		}
	}
	outcome := make(map[string]abi.Outcome) // of the calls of once, by what they were given
	for _, r := range records {
		if names[r.Call] == "once" && r.Answer != nil && r.Answer.Outcome == abi.OK {
			outcome[strings.TrimSpace(string(r.Answer.Value.Bytes))] = abi.OK
		}
	}
	for line, times := range ran {
		if times != 1 {
			w.t.Errorf("the effect %s happened %d times", line, times)
		}
	}
	for value, o := range outcome {
		if o == abi.OK && ran[value] != 1 {
			w.t.Errorf("the effect %s was answered and happened %d times", value, ran[value])
		}
	}
	for _, n := range []string{`{"n":1}`, `{"n":2}`} {
		if w.lines("again")[n] < 1 {
			w.t.Errorf("the idempotent effect %s did not happen", n)
		}
	}
}

// checkBooks holds the account of a process against its limit, and its sums
// against the records.
func (w *world) checkBooks(pid abi.Pid, limit string) {
	w.t.Helper()
	p, err := w.client().Show(context.Background(), pid)
	if err != nil {
		w.t.Fatal(err)
	}
	money := func(s string) int64 {
		n, err := abi.ParseMoney(s)
		if err != nil {
			w.t.Error(err)
		}
		return n
	}
	if used, held := money(p.Usage.Money), money(p.Reserved.Money); used+held > money(limit) {
		w.t.Errorf("%d used and %d reserved of %s", used, held, limit)
	}
	var sum, doubt abi.Usage
	begun := make(map[uint64]*abi.Intent)
	for _, r := range w.records(pid) {
		if r.Kind == abi.KindBegan {
			begun[r.Call] = r.Intent
		}
		if r.Answer == nil {
			continue
		}
		sum.Add(&r.Answer.Usage)
		if in := begun[r.Call]; in != nil && r.Answer.Outcome == abi.Unknown {
			doubt.Add(&in.Reserve)
		}
	}
	if got := money(p.Usage.Money); got != sum[abi.Money] {
		w.t.Errorf("%d is booked, and the records say %d", got, sum[abi.Money])
	}
	if got := money(p.Reserved.Money); got != doubt[abi.Money] {
		w.t.Errorf("%d is reserved, and the doubtful calls took %d", got, doubt[abi.Money])
	}
}

// TestScenario34 looks for the provider's key wherever anybody could find it.
func TestScenario34Secrets(t *testing.T) {
	t.Parallel()
	const secret = "sk-do-not-tell-0123456789abcdef"
	p := newProvider(t, nil)
	p.fail = "wrong key: "
	w := newWorld(t, map[string]string{
		"agent.yaml": `
model: script:replies.yaml
tools:
  - {name: env, command: [sh, -c, 'env; cat /proc/$PPID/environ 2>/dev/null | tr "\0" "\n"; echo; echo the key is ` + secret + `']}
  - {name: fails, command: [sh, -c, 'echo ` + secret + ` >&2; exit 1']}
`,
		"replies.yaml": `
replies:
  - calls: [{tool: env, args: {}}, {tool: fails, args: {}}]
  - text: done
`})
	w.env = append(w.env, "OPENAI_API_KEY="+secret, "OPENAI_BASE_URL="+p.URL+"/v1")
	seen := w.ok("run", "-f", "agent.yaml", "--events", "go")
	if strings.Contains(seen, "OPENAI_API_KEY") {
		t.Error("the tool has the variable of the key")
	}
	out, errs, code := w.kern("run", "--model", "openai:some", "go")
	if code != exitFailed || !strings.Contains(errs, "MODEL_AUTH") || p.asked.Load() == 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
	seen += out + errs
	for _, args := range [][]string{{"log", "1"}, {"log", "2"}, {"log", "2", "--json"}, {"show", "1"}, {"show", "1", "--json"}, {"show", "2"},
		{"show", "2", "--json"}, {"ps", "--json"}, {"doctor"}, {"doctor", "--json"}, {"wait", "1", "--json"}} {
		out, errs, _ := w.kern(args...)
		seen += out + errs
	}
	// The agent file names the key itself, so the definition has it: only its
	// tools' words are held against it.
	for _, line := range strings.Split(seen, "\n") {
		if strings.Contains(line, secret) && !strings.Contains(line, `"program"`) {
			t.Errorf("the key is in %.300s", line)
		}
	}
	w.ok("stop-daemon")
	if err := os.Remove(w.file("agent.yaml")); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(w.data(), daemon.LogFile))
	if err != nil || bytes.Contains(log, []byte(secret)) {
		t.Errorf("the daemon's log: %s, %v", log, err)
	}
}

// TestScenario36 has a long conversation, and looks at what it takes on disk.
// It is sent whole with every step, and stored once.
func TestScenario36JournalSize(t *testing.T) {
	t.Parallel()
	steps, per := 10, 10
	if os.Getenv("KERN_SOAK") != "" {
		steps = 100
	}
	var replies strings.Builder
	unique, n := 0, 0
	for range steps {
		replies.WriteString("  - calls:\n")
		for range per {
			text := prose(n, 820)
			n++
			unique += 2 * len(text) // what the model writes, and what the tool gives back
			fmt.Fprintf(&replies, "      - {tool: look, args: {text: %q}}\n", text)
		}
	}
	w := newWorld(t, map[string]string{
		"agent.yaml":   "model: script:replies.yaml\ntools: [{name: look, effect: pure, command: [cat]}]\n",
		"replies.yaml": "replies:\n" + replies.String() + "  - text: done\n",
	})
	out, errs, code := w.kern("run", "-f", "agent.yaml", "--json", "go")
	var r result
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Usage.Tool != int64(n) {
		t.Fatalf("%+v, %v: %s", r, err, errs)
	}
	w.ok("stop-daemon")
	size := int64(0)
	files, err := filepath.Glob(filepath.Join(w.data(), "*.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no journal: %v, %v", files, err)
	}
	for _, f := range files {
		i, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += i.Size()
	}
	script, err := os.Stat(w.file("replies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	unique += int(script.Size()) // it is recorded with the process
	ratio := float64(size) / float64(unique)
	t.Logf("%d calls: %d bytes in the journal, %d unique ones: %.2f", n, size, unique, ratio)
	if ratio > 1.2 {
		t.Errorf("the journal has %.2f times the unique bytes, want at most 1.2", ratio)
	}
}

// prose is a text of n bytes that is like no other.
func prose(seed, n int) string {
	words := strings.Fields("the agent reads writes a file and asks whether each of these numbers is what it was before " +
		"because nobody told it so while others wait for their turn at the provider of models")
	var b strings.Builder
	x := uint64(seed)*2654435761 + 1
	for b.Len() < n {
		x = x*6364136223846793005 + 1442695040888963407
		fmt.Fprintf(&b, "%s%d ", words[int(x>>33)%len(words)], x>>44)
	}
	return b.String()[:n]
}
