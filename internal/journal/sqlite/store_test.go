package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
	"github.com/kern-run/kern/internal/leaktest"
	_ "modernc.org/sqlite"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	commits stay unsynced after the journal is opened, or the tail settled    TestSettings
//	the epoch in the file is not looked at                                    TestOvertaken
//	the lease is not looked at                                                TestConformance
//	a number may be above the next                                            TestConformance
//	a run that ended in the tail is forgotten                                 TestConformance
//	statements are left open, and with them the files                         TestModes
//	the tail is forgotten, or not, by a small batch that settles it           TestCalm
//	the ends of processes are forgotten while their records wait              TestCalm
//	a number above what a row's id can hold                                   TestBounds

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	leaktest.Main(m)
}

func TestConformance(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		storetest.Conformance(t, func(t *testing.T) func() (journal.Store, journal.Lease, error) {
			dir := t.TempDir()
			return func() (journal.Store, journal.Lease, error) { return sqlite.Open(dir) }
		})
	})
	t.Run("memory", func(t *testing.T) {
		storetest.Conformance(t, func(*testing.T) func() (journal.Store, journal.Lease, error) {
			return storetest.NewMemory().Open
		})
	})
}

// opened is a store that the test closes at its end, if it still is open.
func opened(t *testing.T, dir string) (journal.Store, journal.Lease) {
	t.Helper()
	s, l, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, l
}

func mustAppend(t *testing.T, s journal.Store, l journal.Lease, batch ...abi.Record) {
	t.Helper()
	if err := s.Append(l, batch); err != nil {
		t.Fatal(err)
	}
}

// edit runs SQL on the journal in dir, as somebody with sqlite3 would.
func edit(t *testing.T, dir, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	// Whoever had it before had a longer number.
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("123456789012345\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := opened(t, dir)
	_, _, err := sqlite.Open(dir)
	if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("got %v, want an error that names process %d", err, os.Getpid())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opened(t, dir)
}

// TestOvertaken takes the locks away from under an open store, as an administrator
// could who removes files. The other lock and the mark protect the journal; against
// the administrator who also puts the mark back, the epoch in the file does.
func TestOvertaken(t *testing.T) {
	dir := t.TempDir()
	old, l := opened(t, dir)
	mustAppend(t, old, l, storetest.Began(1, 1, 1))
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	remove("lock")
	if _, _, err := sqlite.Open(dir); !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), "removed or replaced the file lock") {
		t.Errorf("without the file lock: %v", err)
	}
	mark, err := os.ReadFile(filepath.Join(dir, "journal.mark"))
	if err != nil {
		t.Fatal(err)
	}
	remove("journal.mark")
	if _, _, err := sqlite.Open(dir); err == nil || !strings.Contains(err.Error(), "journal.mark is missing") {
		t.Errorf("without the mark: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "journal.mark"), mark, 0o600); err != nil {
		t.Fatal(err)
	}
	s, l2 := opened(t, dir)
	if err := old.Append(l, []abi.Record{storetest.Began(1, 2, 2)}); !errors.Is(err, journal.ErrStale) {
		t.Errorf("the old owner: %v", err)
	}
	mustAppend(t, s, l2, storetest.Began(1, 2, 2))
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s, l := opened(t, dir)
	mustAppend(t, s, l, storetest.Began(1, 1, 1))
	want := map[string]os.FileMode{".": 0o700, "journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600, "journal.mark": 0o600, "lock": 0o600}
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", name, info.Mode().Perm(), mode)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if err != nil || !slices.Equal(left, []string{"journal.db", "journal.mark", "lock"}) {
		t.Errorf("a closed journal leaves %v, %v", left, err)
	}
}

// TestSettings: every commit is synced, and the log is a write-ahead log.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	for range 8 {
		s, l := opened(t, dir)
		wantSynced(t, s)
		// Settling turns the setting off and on again.
		var batch []abi.Record
		if err := s.Scan(func(r *abi.Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
		for pid := abi.Pid(1); pid <= 40; pid++ {
			n := uint64(0)
			for range s.Records(pid, 0) {
				n++
			}
			batch = append(batch, storetest.Began(pid, n+1, 1))
		}
		mustAppend(t, s, l, batch...)
		if sqlite.Waiting(s) != 40 {
			t.Errorf("%d records in the tail, want 40", sqlite.Waiting(s))
		}
		if err := s.Scan(func(r *abi.Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if sqlite.Waiting(s) != 0 {
			t.Errorf("%d records in the tail after a scan", sqlite.Waiting(s))
		}
		wantSynced(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "journal.db"))
	if err != nil || b[18] != 2 || b[19] != 2 {
		t.Errorf("the file is not in WAL mode: %d, %d, %v", b[18], b[19], err)
	}
}

func wantSynced(t *testing.T, s journal.Store) {
	t.Helper()
	if n, err := sqlite.Pragma(s, "synchronous"); n != 2 || err != nil {
		t.Errorf("synchronous is %d, %v; want 2, which is FULL", n, err)
	}
}

func TestForeignFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string)
		want string
	}{
		{"a text", func(t *testing.T, dir string) {
			text := strings.Repeat("this is no journal\n", 400)
			if err := os.WriteFile(filepath.Join(dir, "journal.db"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a database"},
		{"another program's database", func(t *testing.T, dir string) { edit(t, dir, "CREATE TABLE t(x)") }, "another program"},
		{"another program's empty database", func(t *testing.T, dir string) { edit(t, dir, "PRAGMA application_id=77") }, "another program"},
		{"a later version", func(t *testing.T, dir string) {
			s, _ := opened(t, dir)
			s.Close()
			edit(t, dir, "PRAGMA application_id=1265790466")
		}, "version 2, expected 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			before, err := os.ReadFile(filepath.Join(dir, "journal.db"))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := sqlite.Open(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "journal.db") {
				t.Errorf("got %v, want an error with %q and the file's name", err, c.want)
			}
			after, err := os.ReadFile(filepath.Join(dir, "journal.db"))
			if err != nil || string(before[100:]) != string(after[100:]) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

// TestBounds: what has no place in the file is refused before anything is stored.
func TestBounds(t *testing.T) {
	s, l := opened(t, t.TempDir())
	large := storetest.Began(2, 1, 1)
	large.Intent.Args = abi.Data{Bytes: make([]byte, 16<<20+1), Size: 16<<20 + 1}
	for _, r := range []abi.Record{storetest.Began(1<<31, 1, 1), large} {
		err := s.Append(l, []abi.Record{storetest.Began(1, 1, 1), r})
		var bad *journal.BadRecord
		if !errors.As(err, &bad) || bad.Pid != r.Pid || bad.N != 1 {
			t.Errorf("process %d: %v", r.Pid, err)
		}
	}
	mustAppend(t, s, l, storetest.Began(1<<31-1, 1, 1))
	if n, err := journal.Verify(s, 1<<31-1); n != 1 || err != nil {
		t.Errorf("the last process there can be: %d records, %v", n, err)
	}
	if err := s.Scan(func(r *abi.Record) error {
		if r.Pid != 1<<31-1 {
			t.Errorf("record %d of process %d is there", r.N, r.Pid)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestCalm: batches of few processes bring the tail to its place when enough of
// them came, and what is kept in memory of more processes than it holds is
// forgotten only when nothing waits.
func TestCalm(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	last := map[abi.Pid]uint64{}
	add := func(from, to abi.Pid) {
		t.Helper()
		var batch []abi.Record
		for pid := from; pid <= to; pid++ {
			last[pid]++
			batch = append(batch, storetest.Ended(pid, last[pid], last[pid], nil))
		}
		mustAppend(t, s, l, batch...)
	}
	waiting := func(want int) {
		t.Helper()
		if n := sqlite.Waiting(s); n != want {
			t.Errorf("%d records in the tail, want %d", n, want)
		}
	}
	add(1, 10)
	for n := range 16 {
		waiting(10 + n)
		add(3, 3)
	}
	waiting(26)
	add(3, 3)
	waiting(0)
	add(11, 11)
	waiting(0)
	defer sqlite.KeepEnds(12)()
	for range 3 {
		add(1, 5) // to the tail
		add(2, 3)
	}
	waiting(21)
	for range 20 {
		add(3, 4)
	}
	waiting(0)
	add(1, 5)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = opened(t, dir)
	got := map[abi.Pid]uint64{}
	if err := s.Scan(func(r *abi.Record) error { got[r.Pid]++; return nil }); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, last) {
		t.Errorf("%d processes, want %d; of the third %d records, want %d", len(got), len(last), got[3], last[3])
	}
}

// TestView: a person with sqlite3 sees what happened.
func TestView(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	mustAppend(t, s, l, storetest.Began(3, 1, 7), storetest.Ended(3, 2, 7, []byte("x")))
	db, err := sql.Open("sqlite", filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT pid, n, time, kind, call, row, tool FROM log ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var pid, n, call int
		var at, kind string
		var row, tool sql.NullString
		if err := rows.Scan(&pid, &n, &at, &kind, &call, &row, &tool); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(pid, n, " ", at, " ", kind, " ", call, " ", row.String, " ", tool.String))
	}
	want := []string{"3 1 2026-09-21T14:13:20.000000001Z began 7 tool echo", "3 2 2026-09-21T14:13:20.000000002Z ended 7  "}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	// And the kinds have the names that they have in the contract.
	for k := abi.Kind(1); k.String() != "unknown"; k++ {
		var name string
		err := db.QueryRow("SELECT replace(sql, char(10), ' ') FROM sqlite_schema WHERE name = 'log'").Scan(&name)
		if err != nil || !strings.Contains(name, fmt.Sprintf("WHEN %d THEN '%s'", k, k)) {
			t.Errorf("the view does not know kind %d, %s (%v)", k, k, err)
		}
	}
}

// TestStoredOnce: a payload that is sent again costs nothing again.
func TestStoredOnce(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	value := []byte(strings.Repeat("the same message, sent again and again; ", 100))
	for n := uint64(1); n <= 200; n++ {
		mustAppend(t, s, l, storetest.Ended(1, n, n, value))
		if n == 100 { // what is only known in memory is forgotten
			s.Close()
			s, l = opened(t, dir)
		}
	}
	s.Close()
	db, err := sql.Open("sqlite", filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var blobs, names, bytes int
	if err := db.QueryRow("SELECT count(*), sum(length(body)), (SELECT count(*) FROM names) FROM blobs").Scan(&blobs, &bytes, &names); err != nil {
		t.Fatal(err)
	}
	if blobs != 1 || names != 1 || bytes > 200 {
		t.Errorf("%d blobs of %d bytes, %d names; want one blob, packed", blobs, bytes, names)
	}
}

// TestSameKey: blobs are looked up by four bytes of their hash, and many can
// share them.
func TestSameKey(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	var values [][]byte
	for n := uint64(1); n <= 5; n++ {
		values = append(values, fmt.Appendf(nil, "%0*d", 200, n))
		mustAppend(t, s, l, storetest.Ended(1, n, n, values[n-1]))
	}
	s.Close()
	edit(t, dir, "UPDATE names SET key = 1")
	edit(t, dir, fmt.Sprintf("UPDATE names SET key = %d", int32(keyOf(values[2]))))
	s, _ = opened(t, dir)
	if b, err := s.Blob(abi.HashOf(values[2])); err != nil || string(b) != string(values[2]) {
		t.Errorf("one of five with the same key: %d bytes, %v", len(b), err)
	}
}

func keyOf(b []byte) uint32 {
	h := abi.HashOf(b)
	return uint32(h[0])<<24 | uint32(h[1])<<16 | uint32(h[2])<<8 | uint32(h[3])
}

// TestManyCallers puts from many goroutines into the real store, closes in the
// middle of it, and compares what was promised with what is there.
func TestManyCallers(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	log := journal.NewLog(s, l)
	const procs = 50
	kept := make([]uint64, procs)
	var wg sync.WaitGroup
	for pid := range abi.Pid(procs) {
		wg.Go(func() {
			for n := uint64(1); ; n++ {
				add, r := []func(*abi.Record) journal.Pending{log.Put, log.PutDeferred}[pid%2], storetest.Began(pid, n, n)
				err := add(&r).Wait(context.Background())
				if err != nil {
					if !errors.Is(err, journal.ErrClosed) {
						t.Error(err)
					}
					return
				}
				kept[pid] = n
			}
		})
	}
	for seen := 0; seen < 20; seen++ {
		<-log.Changed()
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	last := make([]uint64, procs)
	if err := s.Scan(func(r *abi.Record) error { last[r.Pid] = r.N; return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kept, last) {
		t.Errorf("promised %v\n    there %v", kept, last)
	}
}

// TestScenario36Journal: a conversation of 209,000 tokens with about a thousand
// tool calls takes less than 1.2 times the bytes of its messages.
func TestScenario36Journal(t *testing.T) {
	for _, words := range []string{storetest.Prose, storetest.Hex} {
		dir := t.TempDir()
		s, l := opened(t, dir)
		talk := storetest.Talk{Pid: 1, Words: words}
		for talk.Tokens < 209_000 {
			// As it is written live: record by record. The syncs are left out
			// by storing a round at once, which changes nothing of the file.
			mustAppend(t, s, l, talk.Round()...)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "journal.db"))
		if err != nil {
			t.Fatal(err)
		}
		ratio := float64(info.Size()) / float64(talk.Unique)
		t.Logf("%d calls of tools: %d bytes, %.2f of %d", talk.Calls, info.Size(), ratio, talk.Unique)
		if ratio >= 1.2 {
			t.Errorf("%.2f times the bytes of the messages, want less than 1.2", ratio)
		}
	}
}
