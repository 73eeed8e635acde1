package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/journal/sqlite"
)

// checkLimits checks that settled + reserved is within the limit everywhere. A limit
// may have been lowered below the usage, so the highest one ever set counts.
func (w *world) checkLimits(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c := w.control()
	list, err := c.List(ctx)
	if err != nil {
		return
	}
	accounts, err := c.Accounts.List(ctx)
	if err != nil {
		return
	}
	w.lock.Lock()
	caps, purses := make(map[abi.Pid]abi.Limits), make(map[string]abi.Limits)
	for pid, l := range w.caps {
		caps[pid] = l
	}
	for name, l := range w.purses {
		purses[name] = l
	}
	w.lock.Unlock()
	for i := range list {
		p := &list[i]
		w.within(fmt.Sprintf("process %d", p.Pid), p.Usage, p.Reserved, higher(p.Limits, caps[p.Pid]))
	}
	for _, a := range accounts {
		w.within("account "+a.Name, a.Usage, a.Reserved, higher(a.Limits, purses[a.Name]))
	}
}

func (w *notes) within(who string, used, reserved api.Usage, l abi.Limits) {
	for _, m := range []struct {
		unit abi.Unit
		n    int64
	}{{abi.Money, money(used.Money) + money(reserved.Money)}, {abi.Tokens, used.Tokens + reserved.Tokens}, {abi.Steps, used.Steps + reserved.Steps},
		{abi.ModelCalls, used.ModelCalls + reserved.ModelCalls}, {abi.ToolCalls, used.ToolCalls + reserved.ToolCalls}, {abi.Children, used.Children + reserved.Children}} {
		if limit, set := l.Get(m.unit); set && m.n > limit {
			w.fault("%s: %s settled and reserved %s are over the limit %s", who, m.unit, abi.FormatUnit(m.unit, m.n), abi.FormatUnit(m.unit, limit))
		}
	}
}

func money(s string) int64 {
	n, err := abi.ParseMoney(s)
	if err != nil {
		panic(err) // the daemon's own spelling
	}
	return n
}

// finish ends all processes and the daemon, and compares the three bills.
func (w *world) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	list, err := w.control().List(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if p := &list[i]; p.State != abi.Exited {
			w.countOrder("kern kill at the end", w.control().Signal(ctx, p.Pid, api.Signal{Signal: abi.Kill, By: "the soak"}))
		}
	}
	for i := range list {
		var out any
		if err := w.control().Result(ctx, list[i].Pid, true, &out); err != nil {
			w.fault("process %d does not end: %v", list[i].Pid, err)
		}
	}
	if list, err = w.control().List(ctx); err != nil {
		return err
	}
	accounts, err := w.control().Accounts.List(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if _, err := w.control().Verify(ctx, list[i].Pid); err != nil {
			w.fault("process %d does not verify: %v", list[i].Pid, err)
		}
	}
	w.checkLimits(ctx)
	w.replayAll(ctx, list)
	w.printSample("after the end of all processes")
	for _, p := range findMarked(w.mark, w.pid) {
		w.fault("a process is left: %s", p)
	}
	books, err := w.providerBill(ctx, true)
	if err != nil {
		return err
	}
	if w.o.kills > 0 {
		err = w.stopCrashed(ctx)
	} else {
		err = w.dumpAndStop()
	}
	if err != nil {
		return err
	}
	a, err := w.audit(ctx)
	if err != nil {
		return err
	}
	a.compare(w, list, accounts)
	a.effects.compare(w)
	w.checkRemoved()
	for name, t := range books.Models {
		if most := a.models[name]; t.Nano > most {
			w.fault("model %s: the provider billed %s, and the daemon has booked and reserved %s", name, abi.FormatMoney(t.Nano), abi.FormatMoney(most))
		}
	}
	fmt.Printf("    provider: %d requests, %d ok, %d refused, %d errors, %d aborted, billed $%s; %d crashes; %d records, %d processes, %.1f KB of journal a request\n",
		books.Requests, books.OK, books.Refused, books.Errors, books.Aborted, books.Dollars, w.crashes, a.records, len(list), float64(journalSize(w.daemon.Dir))/1024/float64(max(1, books.Requests)))
	return nil
}

// dumpAndStop stops the daemon, which prints its goroutines first.
func (w *world) dumpAndStop() error {
	if err := syscall.Kill(w.pid, syscall.SIGQUIT); err != nil {
		return err
	}
	if err := w.daemon.WaitForEnd(); err != nil {
		return err
	}
	_, procs, _ := w.hears.take()
	fmt.Printf("    %d goroutines at the end: %s\n", procs["all"], mostCommon(procs, 20))
	return nil
}

// An audit is the bill of the journal, read without the kernel.
type audit struct {
	records int
	doubt   map[abi.Pid]abi.Usage // reserved by attempts whose end nobody saw, with those below
	parent  map[abi.Pid]abi.Pid
	exits   map[abi.Pid]int
	last    map[abi.Pid]abi.Kind
	models  map[string]int64 // money booked or in doubt, by the model of the process on top
	effects *effects
}

type callName struct {
	pid abi.Pid
	n   uint64
}

// audit reads the whole journal.
func (w *world) audit(_ context.Context) (*audit, error) {
	s, _, err := sqlite.Open(w.daemon.Dir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	a := &audit{doubt: map[abi.Pid]abi.Usage{}, parent: map[abi.Pid]abi.Pid{}, exits: map[abi.Pid]int{}, last: map[abi.Pid]abi.Kind{}, models: map[string]int64{}, effects: newEffects()}
	open := map[callName]*abi.Intent{}
	answered := map[callName]bool{}
	err = s.Scan(func(r *abi.Record) error {
		a.records++
		a.effects.add(r)
		c := callName{r.Pid, r.Call}
		a.last[r.Pid] = r.Kind
		switch r.Kind {
		case abi.KindSpawned:
			a.parent[r.Pid] = r.Spawn.Parent
		case abi.KindBegan:
			if answered[c] {
				w.fault("process %d: call %d begins after its answer", r.Pid, r.Call)
			}
			open[c] = r.Intent
		case abi.KindEnded, abi.KindRefused:
			if answered[c] {
				w.fault("process %d: call %d is answered twice", r.Pid, r.Call)
			}
			answered[c] = !r.Answer.Again
			a.addAttempt(w, r, open[c])
			delete(open, c)
		case abi.KindExited:
			a.exits[r.Pid]++
		}
		return nil
	})
	for c := range open {
		w.fault("process %d: call %d began and has no end", c.pid, c.n)
	}
	return a, err
}

// addAttempt adds the usage of an attempt, or its doubt.
func (a *audit) addAttempt(w *world, r *abi.Record, in *abi.Intent) {
	top := r.Pid
	for a.parent[top] != 0 {
		top = a.parent[top]
	}
	name := cmp.Or(w.names[top], "agent")
	if strings.HasPrefix(a.effects.names[top], effectName) {
		name = "effect"
	}
	a.models[name] += r.Answer.Usage[abi.Money]
	if r.Answer.Outcome != abi.Unknown || in == nil {
		return
	}
	a.models[name] += in.Reserve[abi.Money]
	for pid := r.Pid; pid != 0; pid = a.parent[pid] {
		u := a.doubt[pid]
		u.Add(&in.Reserve)
		a.doubt[pid] = u
	}
}

// compare compares the daemon's bill with the journal's.
func (a *audit) compare(w *world, list []api.Process, accounts []api.Account) {
	sums := make(map[string]int64)
	for i := range list {
		p := &list[i]
		if a.exits[p.Pid] != 1 || a.last[p.Pid] != abi.KindExited {
			w.fault("process %d has %d terminal records, and ends with %v", p.Pid, a.exits[p.Pid], a.last[p.Pid])
		}
		d := a.doubt[p.Pid]
		if money(p.Reserved.Money) != d[abi.Money] || p.Reserved.ModelCalls != d[abi.ModelCalls] || p.Reserved.ToolCalls != d[abi.ToolCalls] || p.Reserved.Tokens != d[abi.Tokens] {
			w.fault("process %d keeps reserved %+v, and in doubt are %v", p.Pid, p.Reserved, d)
		}
		if p.Account != "" && p.Parent == 0 {
			sums[p.Account] += d[abi.Money]
		}
	}
	for _, b := range accounts {
		if money(b.Reserved.Money) != sums[b.Name] {
			w.fault("account %s keeps reserved %s, and in doubt are %s", b.Name, b.Reserved.Money, abi.FormatMoney(sums[b.Name]))
		}
	}
}
