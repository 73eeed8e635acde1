package kernel

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// P2: an effect happens at most once, and is on disk before it starts. The test
// plays one life of a few processes, with the n-th write failing or tearing,
// for every n, and lets them go on after the crash until they are at their end.

// story is a life, as the programs and the world outside remember it.
type story struct {
	*rig
	told map[callID]abi.Result // answers that programs were given
	born []abi.Pid             // processes whose spawn was acknowledged
	errs []error
}

func (l *story) wrong(format string, a ...any) { l.errs = append(l.errs, fmt.Errorf(format, a...)) }

// ask makes a call. It reports false when the machine has stopped.
func (l *story) ask(c abi.Call) bool {
	r := l.Do(context.Background(), c)
	return l.heard(c, r)
}

func (l *story) heard(c abi.Call, r abi.Result) bool {
	id := callID{c.Pid, c.N}
	if r.Outcome == abi.Unknown && code(r) != abi.OutcomeUnknown || r.Err != nil && r.Err.Code.Momentary() {
		return false
	}
	if was, ok := l.told[id]; ok && !reflect.DeepEqual(was, r) {
		l.wrong("call %v was answered %+v, and after the crash %+v", id, was, r)
	}
	l.told[id] = r
	return true
}

func call(pid abi.Pid, n uint64, row string, d deed) abi.Call {
	return abi.Call{Pid: pid, N: n, Row: row, Args: d.json()}
}

// live plays the life from its beginning: what was answered is answered again.
// It reports false when the machine has stopped.
func (l *story) live() bool {
	ctx := context.Background()
	if len(l.Accounts()) == 0 && l.SetAccount(ctx, "team", abi.Edit{Limits: limits(abi.Money, 40, abi.ToolCalls, 60), By: "test"}) != nil {
		return false
	}
	for len(l.born) < 2 {
		s := under(limits(abi.Money, 20, abi.Children, 1))
		s.Account, s.Rows, s.Task = "team", everyRow, []byte("task")
		pid, err := l.Spawn(ctx, s)
		if err != nil {
			return false
		}
		l.born = append(l.born, pid)
	}
	one, two := l.born[0], l.born[1]
	tool := func(n int64) abi.Usage { return abi.Usage{abi.Money: n, abi.ToolCalls: 1} }
	steps := []abi.Call{
		call(one, 1, "act", deed{Reserve: tool(3), Give: "first"}),
		call(one, 2, "act", deed{Reserve: tool(1), Effect: abi.Idempotent, Attempts: 3, Fail: abi.ToolFailed, Times: 2}),
		call(one, 3, "model", deed{Reserve: abi.Usage{abi.Money: 2, abi.ModelCalls: 1, abi.Steps: 1}, Say: "hello", Give: string(make([]byte, 300))}),
		call(one, 4, "act", deed{Reserve: tool(0), Quiet: true, Give: "seen"}),
		call(one, 21, "act", deed{Effect: abi.Transactional, Publish: true, State: 1}),
		call(one, 22, "act", deed{Publish: true, State: 2}),
		call(one, 5, "spawn", deed{Child: &abi.Spawn{Limits: limits(abi.Money, 5)}}),
	}
	for _, c := range steps {
		if !l.ask(c) {
			return false
		}
	}
	kid := abi.Pid(0)
	if _, err := fmt.Sscan(string(l.told[callID{one, 5}].Value), &kid); err != nil {
		l.wrong("no child: %+v", l.told[callID{one, 5}])
		return true
	}
	for _, c := range []abi.Call{
		call(kid, 1, "act", deed{Reserve: tool(1), Give: "of the child"}),
		call(kid, 2, "send", deed{Pid: one, Give: "dear parent"}),
		call(kid, 3, "exit", deed{Give: "bye"}),
		call(one, 6, "recv", deed{}),
		call(one, 7, "wait", deed{}),
	} {
		if _, heard := l.told[callID{c.Pid, c.N}]; heard && c.Pid == kid {
			continue // a program that exited asks nothing
		}
		if i, err := l.Info(c.Pid); err == nil && i.Exit != nil {
			continue
		}
		if !l.ask(c) {
			return false
		}
	}
	batch := make([]abi.Call, 6)
	for i := range batch {
		batch[i] = call(two, uint64(i+1), "act", deed{Reserve: tool(2), Nonce: i})
	}
	ok := true
	for i, r := range l.Batch(ctx, batch, 3) {
		ok = l.heard(batch[i], r) && ok
	}
	if !ok {
		return false
	}
	asked := l.startCall(call(two, 7, "act", deed{Reserve: tool(1), Ask: "may it?"}))
	synctest.Wait()
	if i, err := l.Info(two); err == nil && len(i.Asks) > 0 {
		if l.Decide(ctx, two, 7, true, "a person", "go on") != nil {
			return false
		}
	}
	select {
	case r := <-asked:
		if !l.heard(call(two, 7, "act", deed{}), r) {
			return false
		}
	case <-time.After(time.Hour): // the disk broke under the question
		return false
	}
	for _, c := range []abi.Call{
		call(two, 8, "sleep", deed{For: "1m"}),
		call(two, 9, "act", deed{Reserve: tool(100)}),
		call(two, 10, "exit", deed{Give: "bye"}),
	} {
		if i, err := l.Info(two); err == nil && i.Exit != nil {
			continue
		}
		if !l.ask(c) {
			return false
		}
	}
	l.Signal(ctx, one, abi.Kill, "test")
	return l.log.Flush(ctx) == nil
}

// once looks at what the world saw, and at the accounts.
func (l *story) once() {
	for id, n := range l.ran {
		if n < 2 || id == (callID{l.born[0], 2}) || id == (callID{l.born[0], 4}) || id == (callID{l.born[0], 21}) { // idempotent; pure; taken back
			continue
		}
		l.wrong("the effect of call %v happened %d times", id, n)
	}
	doubt := map[abi.Pid]int64{} // as the records have it
	for _, i := range l.List() {
		for _, r := range l.records(i.Pid) {
			if r.Kind == abi.KindEnded && r.Answer.Outcome == abi.Unknown {
				for p := i.Pid; p != 0; {
					q, _ := l.Info(p)
					doubt[p] += l.intent(i.Pid, r)
					p = q.Parent
				}
			}
		}
	}
	for _, i := range l.List() {
		if i.Doubt[abi.Money] != doubt[i.Pid] || i.Reserved != i.Doubt {
			l.wrong("process %d: in doubt %v, records %d; reserved %v", i.Pid, i.Doubt, doubt[i.Pid], i.Reserved)
		}
		if i.Exit == nil {
			l.wrong("process %d did not end", i.Pid)
		}
	}
	if err := l.checks(nil); err != nil {
		l.errs = append(l.errs, err)
	}
}

// intent is what the attempt had reserved whose end r is.
func (l *story) intent(pid abi.Pid, r *abi.Record) (money int64) {
	for _, b := range l.records(pid) {
		if b.N >= r.N {
			break
		}
		if b.Kind == abi.KindBegan && b.Call == r.Call {
			money = b.Intent.Reserve[abi.Money]
		}
	}
	return money
}

// onDisk holds that the intent of an effect is in the store when it starts.
func (l *story) onDisk(j *Job) {
	if !j.Plan.Intent {
		return
	}
	began := 0
	for r, err := range l.store.Records(j.Call.Pid, 0) {
		if err != nil {
			l.wrong("%v", err)
			return
		}
		if r.Call == j.Call.N && r.Kind == abi.KindBegan && r.Intent.Attempt == j.Attempt {
			began++
		}
	}
	if began != 1 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wrong("attempt %d of call %d of process %d starts with %d intents on disk", j.Attempt, j.Call.N, j.Call.Pid, began)
	}
}

// crashAt lives a life whose n-th write fails. It reports false when there was
// no such write.
func crashAt(t *testing.T, n int, mode storetest.Mode, disk func() (journal.Store, journal.Lease, error)) (more bool) {
	synctest.Test(t, func(t *testing.T) {
		l := &story{told: map[callID]abi.Result{}}
		first := true
		l.rig = &rig{t: t, disk: disk, gates: map[string]chan struct{}{}, ran: map[callID]int{}}
		l.cfg.Rows, l.onRun = l.rows(), l.onDisk
		l.wrap = func(s journal.Store) journal.Store {
			if !first {
				return s
			}
			first = false
			return storetest.Faulty(s, n, mode)
		}
		l.open()
		defer func() { l.halt() }()
		whole := l.live()
		more = !whole
		for range 4 {
			if whole {
				break
			}
			l.crash()
			synctest.Wait()
			if err := l.checks(nil); err != nil {
				l.wrong("after the crash: %v", err)
			}
			whole = l.live()
		}
		if !whole {
			l.wrong("it does not come to its end")
		} else {
			for _, i := range l.List() { // a process that was on disk when its caller was told that it is not
				if i.Exit == nil && !slices.Contains(l.born, i.Pid) {
					l.Signal(t.Context(), i.Pid, abi.Kill, "test")
				}
			}
			l.once()
		}
		for _, err := range l.errs {
			t.Errorf("write %d, mode %d: %v", n, mode, err)
		}
	})
	return more
}

func TestCrashAtEveryWrite(t *testing.T) {
	writes := 0
	for _, mode := range []storetest.Mode{storetest.Before, storetest.After} {
		for n := 1; crashAt(t, n, mode, storetest.NewMemory().Open) && !t.Failed(); n++ {
			writes = n
		}
	}
	if writes < 30 {
		t.Errorf("only %d writes: this life is too short to prove anything", writes)
	}
}

// TestCrashAtEveryWriteOfSQLite is the same on the store that is shipped. It
// takes every third write, and all of them in the long form.
func TestCrashAtEveryWriteOfSQLite(t *testing.T) {
	step := 3
	if soak {
		step = 1
	}
	for _, mode := range []storetest.Mode{storetest.Before, storetest.After} {
		for n := 1; !t.Failed(); n += step {
			dir := t.TempDir()
			if !crashAt(t, n, mode, func() (journal.Store, journal.Lease, error) { return sqlite.Open(dir) }) {
				break
			}
		}
	}
}
