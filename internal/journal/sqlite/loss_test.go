package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	the log is not walked before SQLite opens it       TestEveryLoss, TestLogLoss
//	the log is not compared with the mark              TestEveryLoss (the last group), TestLogLoss
//	the records are not compared with the mark         TestLostFiles (an older journal.db)
//	the mark is not compared with its own check        TestEveryLoss
//	a journal.db that was in use opens without a mark  TestLostFiles
//	an empty directory is not looked at                TestLostFiles

// files are the files of a data directory.
type files map[string][]byte

func readFiles(t *testing.T, dir string) files {
	t.Helper()
	f := files{}
	for _, name := range []string{"journal.db", "journal.db-wal", "journal.mark"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f[name] = b
	}
	return f
}

// with returns the files with one of them replaced; nil removes it.
func (f files) with(name string, b []byte) files {
	c := maps.Clone(f)
	if c[name] = b; b == nil {
		delete(c, name)
	}
	return c
}

// crashed returns the files of a journal whose owner was killed, and the files as they
// were in the middle of its last life.
func crashed(t *testing.T, seed uint64, lives, batches int) (end, middle files) {
	dir := t.TempDir()
	last := map[abi.Pid]uint64{}
	rnd := rand.New(rand.NewPCG(seed, 7))
	for life := range lives {
		s, l := opened(t, dir)
		for i := range batches {
			var batch []abi.Record
			pids := []abi.Pid{abi.Pid(1 + rnd.IntN(3))}
			if i == batches/2 {
				pids = []abi.Pid{1, 2, 3, 4, 5, 6}
			}
			for _, pid := range pids {
				last[pid]++
				n := last[pid]
				batch = append(batch, storetest.Ended(pid, n, n, fmt.Appendf(nil, "%0*d", 10+rnd.IntN(200), n)))
			}
			mustAppend(t, s, l, batch...)
			if life == lives-1 && i == batches/2 {
				middle = readFiles(t, dir)
			}
		}
		if life == lives-1 {
			end = readFiles(t, dir) // the store is closed only when the test ends
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return end, middle
}

// shown is everything that a journal of these files shows.
func shown(dir string, f files) (list []string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, b := range f {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return nil, err
		}
	}
	s, _, err := sqlite.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	last := map[abi.Pid]uint64{}
	err = s.Scan(func(r *abi.Record) error {
		text, err := json.Marshal(r)
		list = append(list, string(text))
		last[r.Pid] = r.N
		return err
	})
	if err != nil {
		return nil, err
	}
	for pid, n := range last {
		if got, err := journal.Verify(s, pid); err != nil || uint64(got) != n {
			return nil, fmt.Errorf("verify %d: %d records, %w", pid, got, err)
		}
	}
	for f := s.Feed(0); ; {
		entries, err := f.Next(nil)
		if err != nil || len(entries) == 0 {
			return list, err
		}
		for _, e := range entries {
			list = append(list, fmt.Sprint(e.Cursor, e.Pid, e.N))
		}
	}
}

// A trial tries losses: each must be found, or change nothing that is shown.
type trial struct {
	*testing.T
	dir   string
	want  []string
	tried atomic.Int64
	found atomic.Int64
}

func newTrial(t *testing.T, f files) *trial {
	tr := &trial{T: t, dir: t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "kern"); err == nil { // memory, because each try syncs
		t.Cleanup(func() { os.RemoveAll(dir) })
		tr.dir = dir
	}
	want, err := shown(filepath.Join(tr.dir, "whole"), f)
	if err != nil || len(want) == 0 {
		t.Fatal(len(want), err)
	}
	tr.want = want
	return tr
}

// loss tries one loss.
func (tr *trial) loss(f files, what string, args ...any) {
	n := tr.tried.Add(1)
	if log, mark := f["journal.db-wal"], f["journal.mark"]; len(mark) > 0 && sqlite.CheckLog(log, mark) != nil {
		tr.found.Add(1) // by the check that Open begins with
		return
	}
	got, err := shown(filepath.Join(tr.dir, fmt.Sprint(n)), f)
	if err != nil {
		tr.found.Add(1)
	} else if !slices.Equal(got, tr.want) {
		tr.Errorf("silent: %s: %d lines of %d", fmt.Sprintf(what, args...), len(got), len(tr.want))
	}
}

// each calls try with 0, step, 2*step ... below n, on all processors.
func each(n, step int, try func(i int)) {
	var wg sync.WaitGroup
	var at atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(at.Add(int64(step))) - step
				if i >= n {
					return
				}
				try(i)
			}
		})
	}
	wg.Wait()
}

func flipped(b []byte, bit int) []byte {
	c := slices.Clone(b)
	c[bit/8] ^= 1 << (bit % 8)
	return c
}

func zeroed(b []byte, from, n int) []byte {
	c := slices.Clone(b)
	clear(c[from:min(from+n, len(c))])
	return c
}

// TestEveryLoss tries every single bit, every cut and every zeroed sector of the files
// that a killed owner left. It opens journal.db only for one bit and one cut of many,
// unless KERN_SOAK is set.
func TestEveryLoss(t *testing.T) {
	f, _ := crashed(t, 1, 2, 3)
	tr := newTrial(t, f)
	for name, b := range f {
		bits, cuts := 1, 1
		if name == "journal.db" && os.Getenv("KERN_SOAK") == "" {
			bits, cuts = 1009, 251 // primes, so that all bits of a byte get their turn
		}
		each(len(b)*8, bits, func(i int) { tr.loss(f.with(name, flipped(b, i)), "bit %d of byte %d of %s", i%8, i/8, name) })
		each(len(b), cuts, func(i int) { tr.loss(f.with(name, b[:i]), "%s cut after %d bytes", name, i) })
		each(len(b), 512, func(i int) { tr.loss(f.with(name, zeroed(b, i, 512)), "%s zeroed at %d", name, i) })
		each(len(b), 512, func(i int) { tr.loss(f.with(name, zeroed(b, i/4096*4096, 4096)), "page of %s zeroed at %d", name, i) })
	}
	t.Logf("%d losses: %d found, the others changed nothing", tr.tried.Load(), tr.found.Load())
}

// TestRandomLoss tries random losses over a larger directory.
func TestRandomLoss(t *testing.T) {
	f, _ := crashed(t, 2, 4, 150)
	tr := newTrial(t, f)
	n := 150
	if os.Getenv("KERN_SOAK") != "" {
		n = 20_000
	}
	names := slices.Sorted(maps.Keys(f))
	each(n, 1, func(i int) {
		rnd := rand.New(rand.NewPCG(3, uint64(i)))
		name := names[rnd.IntN(2)] // the mark has its turn in TestEveryLoss
		b := f[name]
		at := rnd.IntN(len(b))
		switch i % 4 {
		case 0, 1:
			tr.loss(f.with(name, flipped(b, at*8+i%8)), "byte %d of %s", at, name)
		case 2:
			tr.loss(f.with(name, b[:at]), "%s cut after %d bytes", name, at)
		case 3:
			tr.loss(f.with(name, zeroed(b, at/4096*4096, 4096)), "%s zeroed at %d", name, at)
		}
	})
	t.Logf("%d losses: %d found, the others changed nothing", tr.tried.Load(), tr.found.Load())
}

// TestLostFiles loses files, and exchanges them for older ones.
func TestLostFiles(t *testing.T) {
	f, old := crashed(t, 3, 2, 12)
	stranger, _ := crashed(t, 4, 1, 12)
	tr := newTrial(t, f)
	f["gateway.addr"] = []byte("127.0.0.1:4321\n")
	names := []string{"journal.db", "journal.db-wal", "journal.mark"}
	for set := range 1 << len(names) {
		lost := maps.Clone(f)
		var what []string
		for i, name := range names {
			if set>>i&1 != 0 {
				delete(lost, name)
				what = append(what, name)
			}
		}
		tr.loss(lost, "%v lost", what)
		for _, name := range what {
			lost[name] = nil
		}
		tr.loss(lost, "%v emptied", what)
		for i := range names {
			for from, other := range map[string]files{"an older time": old, "another journal": stranger} {
				mixed := lost.with(names[i], other[names[i]])
				if from == "an older time" && names[i] == "journal.mark" && set == 0 {
					continue // it is true: the journal has at least as many records
				}
				tr.loss(mixed, "%v lost and %s of %s", what, names[i], from)
			}
		}
	}
	// A loss that is found says where it is and what to do.
	for name, want := range map[string]string{"journal.db": "journal.db is missing or empty", "journal.db-wal": "were acknowledged; journal.db-wal, which may have the others, is missing", "journal.mark": "journal.mark is missing"} {
		_, err := shown(filepath.Join(tr.dir, "named"), f.with(name, nil))
		var d *journal.Damage
		if !errors.As(err, &d) || !strings.Contains(err.Error(), want) || d.Hint() == "" {
			t.Errorf("%s lost: %v", name, err)
		}
	}
}

// TestLogLoss damages each group of a log in turn, and names what Open says.
func TestLogLoss(t *testing.T) {
	f, _ := crashed(t, 5, 1, 10)
	log := f["journal.db-wal"]
	const frame = 24 + 4096
	for n := 0; 32+n*frame < len(log); n++ {
		at := 32 + n*frame
		err := sqlite.CheckLog(flipped(log, 8*(at+frame/2)), f["journal.mark"])
		if want := fmt.Sprintf("frame %d at byte %d is not what was written", n+1, at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("frame %d: %v", n+1, err)
		}
		err = sqlite.CheckLog(log[:at], f["journal.mark"])
		if want := fmt.Sprintf("it ends before frame %d at byte %d", n+1, at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("cut before frame %d: %v", n+1, err)
		}
	}
}

// TestLossHasACode: damage that is found on reading has the code and the advice of
// damage that is found at the start.
func TestLossHasACode(t *testing.T) {
	dir := sample(t)
	s, l := opened(t, dir)
	mustAppend(t, s, l, storetest.Began(9, 1, 1))
	f, err := os.OpenFile(filepath.Join(dir, "journal.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 400<<10), 4096); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func() error{
		"records": func() error { _, err := journal.Verify(s, 1); return err },
		"answer":  func() error { _, err := s.Answer(1, 99); return err },
		"feed":    func() error { _, err := s.Feed(0).Next(nil); return err },
		"blob":    func() error { _, err := s.Blob(abi.HashOf(fmt.Appendf(nil, "%0*d", 2*81, 81))); return err },
	} {
		var e *abi.Error
		if err := read(); !errors.As(err, &e) || e.Code != abi.StorageBroken || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTooLong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 100))
	_, _, err := sqlite.Open(dir)
	if err == nil || !strings.Contains(err.Error(), "its path is too long: it has") {
		t.Errorf("a long path: %v", err)
	}
}
