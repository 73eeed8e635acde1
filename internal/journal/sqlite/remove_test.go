package sqlite_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// secret is a text of a process that stands in the files as it is: it does not
// compress, and no other process has it.
func secret(pid abi.Pid, n uint64) string {
	rnd := rand.New(rand.NewPCG(uint64(pid), n))
	b := make([]byte, 40+rnd.IntN(600))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return fmt.Sprintf("secret-%d-%d-%s", pid, n, b)
}

// talkative writes records of many processes in turns, so that pages are split, rows
// move and the tail fills, and returns the last number of each process.
func talkative(t *testing.T, s journal.Store, l journal.Lease, batches int) map[abi.Pid]uint64 {
	last := map[abi.Pid]uint64{}
	rnd := rand.New(rand.NewPCG(9, 9))
	for i := range batches {
		var batch []abi.Record
		for range 1 + i%7 {
			pid := abi.Pid(1 + rnd.IntN(20))
			last[pid]++
			text := []byte(secret(pid, last[pid]))
			r := storetest.Ended(pid, last[pid], last[pid], text)
			if len(text) > 300 { // a blob of its own, and one that all share
				h, all := abi.HashOf(text), []byte(strings.Repeat("everybody says this ", 30))
				r.Answer.Value = abi.Data{Hash: h, Size: int64(len(text))}
				r.Blobs = []abi.Blob{{Hash: h, Bytes: text}, {Hash: abi.HashOf(all), Bytes: all}}
				r.Intent = &abi.Intent{Row: "model", Parts: []abi.Hash{abi.HashOf(all)}}
			}
			batch = append(batch, r)
		}
		mustAppend(t, s, l, batch...)
	}
	return last
}

// wantGone looks into every file of a directory for texts of processes.
func wantGone(t *testing.T, dir string, last map[abi.Pid]uint64, gone func(abi.Pid) bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	for pid, n := range last {
		for i := uint64(1); i <= n; i++ {
			prefix := fmt.Sprintf("secret-%d-%d-", pid, i)
			found := bytes.Contains(all, []byte(prefix)) || bytes.Contains(all, []byte(secret(pid, i)[len(prefix):len(prefix)+20]))
			if found == gone(pid) {
				t.Fatalf("the files have text %d of process %d: %v", i, pid, found)
			}
		}
	}
}

func verifyAll(t *testing.T, s journal.Store, last map[abi.Pid]uint64, gone func(abi.Pid) bool) {
	t.Helper()
	if err := s.Scan(func(*abi.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for pid, want := range last {
		if gone(pid) {
			want = 0
		}
		if n, err := journal.Verify(s, pid); err != nil || uint64(n) != want {
			t.Errorf("process %d has %d records, %v; want %d", pid, n, err, want)
		}
	}
}

// TestRemovedFromDisk: what was removed is in no file, also in pages that SQLite
// split, moved or freed before. All else verifies.
func TestRemovedFromDisk(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	last := talkative(t, s, l, 400)
	none := func(abi.Pid) bool { return false }
	gone := func(pid abi.Pid) bool { return pid%3 == 1 }
	wantGone(t, dir, last, none)
	var pids []abi.Pid
	for pid := range last {
		if gone(pid) {
			pids = append(pids, pid)
		}
	}
	mustAppend(t, s, l, storetest.Removal(1, pids...))
	if err := s.(journal.Sweeper).Sweep(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, dir, last, gone)
	verifyAll(t, s, last, gone)
	mustAppend(t, s, l, storetest.Ended(2, last[2]+1, last[2]+1, []byte(secret(2, last[2]+1))))
	last[2]++
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = opened(t, dir)
	verifyAll(t, s, last, gone)
	wantGone(t, dir, last, gone)
}

// TestRemovalIsWhole cuts a removal short after each of its steps, and with the mark of
// the moment before: it happened whole or not at all, and the next open completes it.
func TestRemovalIsWhole(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	last := talkative(t, s, l, 60)
	none := func(abi.Pid) bool { return false }
	gone := func(pid abi.Pid) bool { return pid <= 3 }
	before := readFiles(t, dir)
	mustAppend(t, s, l, storetest.Removal(1, 1, 2, 3))
	removed := readFiles(t, dir)
	if err := s.(journal.Sweeper).Sweep(); err != nil {
		t.Fatal(err)
	}
	swept := readFiles(t, dir)
	log := removed["journal.db-wal"]
	images := map[string]files{
		"before":                     before,
		"in the middle of the group": removed.with("journal.db-wal", log[:len(log)-5000]).with("journal.mark", before["journal.mark"]),
		"before the mark":            removed.with("journal.mark", before["journal.mark"]),
		"before the sweep":           removed,
		"after the sweep":            swept,
	}
	for name, f := range images {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, b := range f {
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, _ := opened(t, dir)
			want := gone
			if name == "before" || name == "in the middle of the group" {
				want = none
			}
			verifyAll(t, s, last, want)
			wantGone(t, dir, last, want)
			if n, err := sqlite.Pragma(s, "freelist_count"); err != nil || n != 0 && name != "before" && name != "in the middle of the group" {
				t.Errorf("%d free pages, %v", n, err)
			}
		})
	}
}
