package wal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestZerosAreNoRecord(t *testing.T) {
	for i := range 100 {
		if _, n := readFrame[string](make([]byte, i)); n > 0 {
			t.Fatalf("%d zeros read as a record", i)
		}
	}
}

// An entry is a record of these tests.
type entry struct{ Text string }

// last is a state that remembers only the last record.
type last struct{ entry }

func (s *last) Apply(records ...entry) {
	for _, r := range records {
		s.entry = r
	}
}

func (s *last) Snapshot() []entry { return []entry{s.entry} }

// A log that was long before it was rewritten stays short, in the process that
// rewrites it and in one that follows. A record writes nothing beyond the room.
func TestRewriteForgetsOldEnd(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	open := func() *Log[entry] {
		l, err := Open(name, true, State[entry](new(last)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	a, b := open(), open()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []*Log[entry]{a, b} {
		_, err := l.Follow()
		do(err)
		do(l.Append(entry{strings.Repeat("x", 2*logFull)}))
	}
	_, err := a.Follow()
	do(err)
	do(a.Append(entry{"short"}))
	if !a.Full() {
		t.Fatal("the log is not full")
	}
	do(a.Rewrite())
	before, err := os.Stat(name)
	do(err)
	for _, l := range []*Log[entry]{a, b} {
		moved, err := l.Follow()
		if err != nil || moved != (l == b) {
			t.Fatalf("follow: %t %v", moved, err)
		}
		do(l.Append(entry{"short"}))
		if now, err := os.Stat(name); err != nil || now.Size() != before.Size() {
			t.Fatalf("a short record grew the log from %d to %d bytes (%v)", before.Size(), now.Size(), err)
		}
	}
}
