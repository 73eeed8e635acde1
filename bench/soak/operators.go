package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// startStubborn starts a descendant in a session of its own that ignores every signal
// but SIGKILL.
func startStubborn() {
	c := exec.Command("sh", "-c", "trap '' TERM HUP INT; (sleep 600; true) & wait")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = c.Start() // where there is no shell there is one less to be found
}

func (w *world) anyTenant(rnd *rand.Rand) *tenant {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tenants) == 0 {
		return nil
	}
	return w.tenants[rnd.IntN(len(w.tenants))]
}

func (w *world) forget(t *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenants = slices.DeleteFunc(w.tenants, func(u *tenant) bool { return u == t })
}

// rememberLimits remembers the highest limits that a process ever had.
func (n *notes) rememberLimits(pid abi.Pid, l abi.Limits) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.caps[pid] = higher(n.caps[pid], l)
}

// higher returns the higher limit of a and b for each unit.
func higher(a, b abi.Limits) abi.Limits {
	b.Each(func(u abi.Unit, n int64) {
		if was, set := a.Get(u); !set || n > was {
			a.Set(u, n)
		}
	})
	return a
}

// makeKeys makes keys whenever there are too few.
func (w *world) makeKeys(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		w.mu.Lock()
		n, made := len(w.tenants), w.made
		w.mu.Unlock()
		if n >= w.o.tenants {
			w.pause(ctx, 100*time.Millisecond)
			continue
		}
		l := limits(map[abi.Unit]int64{abi.Money: 1_000_000 + rnd.Int64N(40_000_000), abi.Wall: int64(10*time.Second) + rnd.Int64N(int64(4*time.Minute))})
		for u, n := range map[abi.Unit]int64{abi.Tokens: 2000 + rnd.Int64N(200_000), abi.Steps: 5 + rnd.Int64N(300), abi.ModelCalls: 5 + rnd.Int64N(300), abi.ToolCalls: 3 + rnd.Int64N(40), abi.Children: 1 + rnd.Int64N(3)} {
			if rnd.IntN(3) == 0 {
				l.Set(u, n)
			}
		}
		k := api.Key{Name: fmt.Sprintf("tenant%d", made), Limits: l, Priority: rnd.IntN(20)}
		t := &tenant{model: fmt.Sprintf("m%03d", made%models)}
		parent := w.anyTenant(rnd)
		if parent != nil && rnd.IntN(6) == 0 {
			k.Parent, t.model = parent.pid, parent.model
		} else if rnd.IntN(2) == 0 {
			k.Account = payers[rnd.IntN(len(payers))]
		}
		i, err := w.control().Keys.New(ctx, k)
		if err != nil {
			w.countOrder("new key", err)
			w.pause(ctx, 50*time.Millisecond)
			continue
		}
		t.pid, t.key, t.base = i.Pid, i.Key, i.Anthropic
		w.rememberLimits(i.Pid, l)
		w.mu.Lock()
		w.made++
		w.tenants = append(w.tenants, t)
		w.mu.Unlock()
		w.lock.Lock()
		w.names[i.Pid] = t.model
		w.lock.Unlock()
	}
}

// countOrder counts the result of an order. An absent daemon or an ended process is
// no fault.
func (n *notes) countOrder(what string, err error) {
	var e *abi.Error
	switch {
	case err == nil:
		n.count(what)
	case errors.As(err, &e):
		n.count(what + ": " + string(e.Code))
		if e.Code == abi.Internal {
			n.fault("%s: %v", what, err)
		}
	default:
		n.count(what + ": no daemon")
	}
}

// sendOrders sends random signals and changes limits, as people do.
func (w *world) sendOrders(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		w.pause(ctx, time.Duration(50+rnd.IntN(300))*time.Millisecond)
		c := w.control()
		list, err := c.List(ctx)
		if err != nil {
			continue
		}
		list = slices.DeleteFunc(list, func(p api.Process) bool { return p.State == abi.Exited })
		if len(list) == 0 {
			continue
		}
		p := list[rnd.IntN(len(list))]
		signal := func(s abi.Signal) {
			w.countOrder("kern "+string(s), c.Signal(ctx, p.Pid, api.Signal{Signal: s, By: "the soak"}))
		}
		switch rnd.IntN(12) {
		case 0:
			signal(abi.Kill)
		case 1:
			signal(abi.Term)
		case 2, 3, 4:
			signal(abi.Stop)
			w.pause(ctx, time.Duration(rnd.IntN(1500))*time.Millisecond)
			c = w.control()
			signal(abi.Cont)
		case 5, 6:
			n := rnd.IntN(30)
			_, err := c.Change(ctx, p.Pid, api.Change{Priority: &n})
			w.countOrder("kern nice", err)
		case 7:
			name := payers[rnd.IntN(len(payers))]
			w.lock.Lock()
			was := w.purses[name]
			now, _ := was.Get(abi.Money)
			l := limits(map[abi.Unit]int64{abi.Money: now + rnd.Int64N(100_000_000)})
			w.purses[name] = l
			w.lock.Unlock()
			_, err := c.Accounts.Set(ctx, name, api.Change{Limits: l})
			w.countOrder("kern account set", err)
		default:
			l := limits(map[abi.Unit]int64{abi.Money: 1_000_000 + rnd.Int64N(60_000_000)})
			if _, set := p.Limits.Get(abi.Steps); set { // one that was not there may stand below what was used
				l.Set(abi.Steps, rnd.Int64N(400))
			}
			w.rememberLimits(p.Pid, p.Limits)
			w.rememberLimits(p.Pid, l) // before, for it may stand although nobody hears so
			_, err := c.Change(ctx, p.Pid, api.Change{Limits: l})
			w.countOrder("kern limit", err)
		}
	}
}

// command runs a kern command, and returns its exit code and output.
func (w *world) command(ctx context.Context, more []string, args ...string) (code int, out []byte) {
	c := w.daemon.Command(args...)
	c.Env = append(append(c.Env, "GODEBUG="), more...)
	run := exec.CommandContext(ctx, c.Path, args...)
	run.Env, run.Dir = c.Env, w.dir
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
	run.WaitDelay = 20 * time.Second
	out, err := run.CombinedOutput()
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0, out
	case errors.As(err, &e):
		return e.ExitCode(), out
	}
	return -1, out
}

// tail returns the end of an output.
func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// typeCommands runs commands that show things, and some that change them.
func (w *world) typeCommands(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		w.pause(ctx, time.Duration(500+rnd.IntN(1500))*time.Millisecond)
		t := w.anyTenant(rnd)
		if t == nil {
			continue
		}
		pid := strconv.FormatInt(int64(t.pid), 10)
		lines := [][]string{{"ps"}, {"ps", "--json"}, {"log", pid}, {"show", pid}, {"traffic"}, {"key", "list"}, {"account", "list"}, {"replay", pid}, {"key", "revoke", pid}, {"key", "narrow", pid, "--money", "0.001"}}
		args := lines[rnd.IntN(len(lines))]
		code, out := w.command(ctx, nil, args...)
		w.count(fmt.Sprintf("kern %s: exit %d", args[0], code))
		if args[0] == "replay" && strings.Contains(string(out), "is not the fold") {
			w.fault("kern replay %s: %s", pid, out)
		}
	}
}

// execPrograms runs programs under kern exec, one after the other. It kills some.
func (w *world) execPrograms(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		w.pause(ctx, time.Duration(rnd.IntN(500))*time.Millisecond)
		args := []string{"exec", "--quiet", "--money", fmt.Sprintf("0.%03d", 1+rnd.IntN(8)), "--wall", fmt.Sprintf("%ds", 3+rnd.IntN(20)), "--grace", "1s", "--name", "program", "--account", payers[rnd.IntN(len(payers))]}
		if rnd.IntN(2) == 0 {
			args = append(args, "--steps", strconv.Itoa(1+rnd.IntN(20)))
		}
		if rnd.IntN(4) == 0 { // a program within a program
			args = append(args, "--", w.daemon.Command().Path, "exec", "--quiet", "--steps", "3")
		}
		args = append(args, "--", w.self, "agent")
		run, cancel := context.WithCancel(ctx)
		if rnd.IntN(5) == 0 {
			time.AfterFunc(time.Duration(rnd.IntN(4000))*time.Millisecond, cancel)
		}
		code, out := w.command(run, []string{"SOAK_MODEL=agent"}, args...)
		cancel()
		w.count(fmt.Sprintf("kern exec: exit %d", code))
		if code == 125 || code == 2 {
			w.count(fmt.Sprintf("kern exec said %s", tail(out)))
		}
	}
}

// runAgents runs agents of the built-in loop, one after the other.
func (w *world) runAgents(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		w.pause(ctx, time.Duration(rnd.IntN(400))*time.Millisecond)
		code, out := w.command(ctx, nil, "run", "-f", filepath.Join(w.dir, "agent.yaml"), "--account", payers[rnd.IntN(len(payers))], "--wall", fmt.Sprintf("%ds", 2+rnd.IntN(20)), words(rnd, 10))
		w.count(fmt.Sprintf("kern run: exit %d", code))
		if code == 2 || code == 6 {
			w.count(fmt.Sprintf("kern run said %s", tail(out)))
		}
	}
}

// followRecords follows the records of a process as kern log --follow does, and
// continues from its position after the daemon was away.
func (w *world) followRecords(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		t := w.anyTenant(rnd)
		if t == nil {
			w.pause(ctx, 100*time.Millisecond)
			continue
		}
		last := uint64(0)
		for ended := false; !ended && ctx.Err() == nil; {
			err := w.control().Records(ctx, t.pid, last, true, func(r *abi.Record, _ []byte) error {
				if r.N != last+1 {
					w.fault("process %d: record %d came after record %d", t.pid, r.N, last)
				}
				last, ended = r.N, r.Kind == abi.KindExited
				return nil
			})
			if err == nil && !ended {
				w.fault("process %d: its records ended at %d without the terminal one", t.pid, last)
			}
			if err != nil {
				w.pause(ctx, 100*time.Millisecond)
			}
		}
	}
}
