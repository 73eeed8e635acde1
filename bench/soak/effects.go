package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// An agent with effects calls an irreversible tool six times. The tool appends a line
// with the name of its agent and the number of the call to a file, and syncs it.
const effectScript = `price: {input: 1, output: 10}
replies:
  - calls: [{tool: hit, args: {k: 1}}]
  - calls: [{tool: hit, args: {k: 2}}, {tool: hit, args: {k: 3}}]
  - calls: [{tool: hit, args: {k: 4}}]
  - calls: [{tool: hit, args: {k: 5}}]
  - calls: [{tool: hit, args: {k: 6}}]
  - text: All of it is done.
`

const effectFile = `name: %[1]s
model: openai:effect
tools:
  - name: hit
    description: Append a line.
    command: [sh, -c, 'a=$(cat); echo "%[1]s $a" >> "$1"; sync "$1"; sleep 0.0%[3]d; echo ok', hit, %[2]q]
    effect: irreversible
    schema: {type: object, properties: {k: {type: integer}}}
`

const effectName = "effect-"

// hits is the file to which the tool appends.
func (w *world) hits() string { return filepath.Join(w.dir, "hits") }

// runEffects runs agents with effects, one after the other, most with a limit that ends
// them in the middle.
func (w *world) runEffects(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		name := effectName + strconv.FormatUint(rnd.Uint64(), 36)
		file := filepath.Join(w.dir, name+".yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, effectFile, name, w.hits(), rnd.IntN(10)), 0o600); err != nil {
			w.fault("%v", err)
			return
		}
		args := []string{"run", "-f", file, "--account", payers[rnd.IntN(len(payers))]}
		switch rnd.IntN(6) {
		case 0:
			args = append(args, "--tool-calls", strconv.Itoa(rnd.IntN(6)))
		case 1:
			args = append(args, "--steps", strconv.Itoa(1+rnd.IntN(6)))
		case 2:
			args = append(args, "--money", fmt.Sprintf("0.%04d", 1+rnd.IntN(60)))
		case 3:
			args = append(args, "--wall", fmt.Sprintf("%dms", 200+rnd.IntN(2000)))
		}
		code, out := w.command(ctx, nil, append(args, words(rnd, 10))...)
		w.count(fmt.Sprintf("kern run with effects: exit %d", code))
		if code == 2 || code == 6 {
			w.count(fmt.Sprintf("kern run said %s", tail(out)))
		}
	}
}

const goneScript = "replies: [{text: soon forgotten}]\n"

// removeProcesses runs processes that pay nobody, and removes each.
func (w *world) removeProcesses(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		w.pause(ctx, 200_000_000)
		name := strconv.FormatUint(rnd.Uint64(), 36)
		word := "secret-" + name // the name stays in the sums of what was spent
		if code, _ := w.command(ctx, nil, "run", "--model", "script:"+filepath.Join(w.dir, "gone.yaml"), "--name", "forget-"+name, word); code != 0 {
			continue
		}
		code, out := w.command(ctx, nil, "rm", "forget-"+name)
		w.count(fmt.Sprintf("kern rm: exit %d", code))
		if code == 0 {
			w.lock.Lock()
			w.removed = append(w.removed, word)
			w.lock.Unlock()
		} else {
			w.count(fmt.Sprintf("kern rm said %s", strings.ReplaceAll(tail(out), name, "NAME")))
		}
	}
}

// checkRemoved looks for the words of removed processes in the journal.
func (w *world) checkRemoved() {
	for _, name := range []string{"journal.db", "journal.db-wal"} {
		b, err := os.ReadFile(filepath.Join(w.daemon.Dir, name))
		if err != nil && !os.IsNotExist(err) {
			w.fault("%v", err)
		}
		text := string(b)
		for _, word := range w.removed {
			if strings.Contains(text, word) {
				w.fault("%s has the word %s of a removed process", name, word)
			}
		}
	}
	fmt.Printf("    %d processes were removed\n", len(w.removed))
}

// replayAll replays every process.
func (w *world) replayAll(ctx context.Context, list []api.Process) {
	n := 0
	for i := range list {
		p := &list[i]
		who := fmt.Sprintf("process %d (%s, %+v)", p.Pid, p.Name, p.End)
		r, err := w.control().Replay(ctx, p.Pid, api.Replay{})
		switch {
		case err != nil:
			w.fault("%s: replay: %v", who, err)
		case !r.Same:
			w.fault("%s: its replay diverges: %+v", who, r.Divergence)
		default:
			n++
		}
	}
	fmt.Printf("    %d of %d replays are the same\n", n, len(list))
}

// effects counts the calls of the tool by agent, from records in the order of a scan.
// An intent has no arguments, because those are in the answer of the model.
type effects struct {
	names              map[abi.Pid]string
	begun, ok, unknown map[string]int
	open               map[callName]bool
}

func newEffects() *effects {
	return &effects{map[abi.Pid]string{}, map[string]int{}, map[string]int{}, map[string]int{}, map[callName]bool{}}
}

func (e *effects) add(r *abi.Record) {
	c := callName{r.Pid, r.Call}
	if r.Spawn != nil {
		e.names[r.Pid] = r.Spawn.Name
	}
	name := e.names[r.Pid]
	if in := r.Intent; in != nil && in.Tool == "hit" && r.Kind == abi.KindBegan {
		e.open[c] = true
		e.begun[name]++
	}
	if e.open[c] && r.Kind == abi.KindEnded {
		switch r.Answer.Outcome {
		case abi.OK:
			e.ok[name]++
		case abi.Unknown:
			e.unknown[name]++
		}
		delete(e.open, c)
	}
}

// compare compares the file of the tool with the journal.
func (e *effects) compare(w *world) {
	b, err := os.ReadFile(w.hits())
	if err != nil && !os.IsNotExist(err) {
		w.fault("%v", err)
	}
	seen, lines := map[string]bool{}, map[string]int{}
	for line := range strings.Lines(string(b)) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !json.Valid([]byte(args)) {
			w.fault("the tool wrote %q", line)
		}
		if seen[line] {
			w.fault("%s took effect twice", strings.TrimSpace(line))
		}
		seen[line] = true
		lines[name]++
	}
	begun, ok, unknown := 0, 0, 0
	for name, n := range lines {
		if n > e.begun[name] {
			w.fault("%s took effect %d times, and began %d times", name, n, e.begun[name])
		}
	}
	for name, n := range e.begun {
		begun, ok, unknown = begun+n, ok+e.ok[name], unknown+e.unknown[name]
		if lines[name] < e.ok[name] {
			w.fault("%s is answered %d times, and took effect %d times", name, e.ok[name], lines[name])
		}
	}
	fmt.Printf("    %d effects of %d calls: %d answered, %d unknown\n", len(seen), begun, ok, unknown)
}

// crash kills the daemon, and has a command start the next one, as people do.
func (w *world) crash(ctx context.Context) error {
	w.mu.Lock()
	pid := w.pid
	w.mu.Unlock()
	if syscall.Kill(pid, syscall.SIGKILL) != nil { // a command of a program started it, and it ended with the program
		w.count("daemons that ended before the kill")
	}
	if w.crashes == 0 { // the first one is a child of this program
		if err := w.daemon.WaitForEnd(); err != nil {
			return err
		}
	}
	w.crashes++
	if code, out := w.command(ctx, nil, "ps"); code != 0 && ctx.Err() == nil {
		w.fault("kern ps after a crash: exit %d, %s", code, tail(out))
	}
	if err := w.reconnect(ctx); err != nil {
		return err
	}
	if w.crashes%25 == 0 {
		w.checkLimits(ctx)
		w.printSample(fmt.Sprintf("after %d crashes", w.crashes))
	}
	return nil
}

// stopCrashed stops the last daemon, and looks at what all of them wrote.
func (w *world) stopCrashed(ctx context.Context) error {
	if code, out := w.command(ctx, nil, "stop-daemon"); code != 0 {
		return fmt.Errorf("kern stop-daemon: exit %d, %s", code, tail(out))
	}
	b, err := os.ReadFile(filepath.Join(w.daemon.Dir, "daemon.log"))
	if strings.Contains(string(b), "panic") || strings.Contains(string(b), "DATA RACE") {
		w.fault("a daemon said %q", tail(b))
	}
	return err
}
