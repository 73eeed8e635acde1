package host_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/host"
)

// TestJournalRules: the daemon removes what is too old, and the oldest until the journal
// is small enough. A process that another one continues stays with it.
func TestJournalRules(t *testing.T) {
	w := newWorld(t, "replies: [{text: done}]\n")
	k := w.open()
	run := func(bytes int) abi.Pid {
		t.Helper()
		text := make([]byte, bytes)
		rand.Read(text)
		r, err := k.Run(t.Context(), host.Agent{Model: "script:" + w.script}, fmt.Sprintf("%x", text))
		if err != nil || r.Exit != abi.ExitDone {
			t.Fatal(r, err)
		}
		return r.Pid
	}
	left := func() (all []abi.Pid) {
		list, _ := k.Recent(1000)
		for i := range list {
			all = append(all, list[i].Pid)
		}
		return all
	}
	var pids []abi.Pid
	for range 12 {
		pids = append(pids, run(200<<10))
	}
	k.ApplyJournal(t.Context(), config.JournalRules{Age: time.Hour, Bytes: 1 << 30})
	if got := left(); !slices.Equal(got, pids) {
		t.Errorf("rules that allow everything leave %v", got)
	}
	fork, err := k.Fork(t.Context(), pids[0], abi.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Wait(t.Context(), fork.Pid); err != nil {
		t.Fatal(err)
	}
	size := k.ApplyJournal(t.Context(), config.JournalRules{Bytes: 1 << 20})
	if size > 1<<20 {
		t.Errorf("the journal has %d bytes, at most %d were allowed", size, 1<<20)
	}
	got := left()
	if len(got) < 2 || len(got) > 8 || !slices.Contains(got, pids[11]) || !slices.Contains(got, pids[0]) || !slices.Contains(got, fork.Pid) || slices.Contains(got, pids[1]) {
		t.Errorf("left are %v: the oldest go first, but the source of a fork stays with it", got)
	}
	for _, pid := range got {
		if _, err := k.Verify(t.Context(), pid); err != nil {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	k.ApplyJournal(t.Context(), config.JournalRules{Age: time.Nanosecond})
	if got := left(); len(got) != 0 {
		t.Errorf("after everything became too old, %v are left", got)
	}
}
