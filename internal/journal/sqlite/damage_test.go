package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	the check behind a body is not compared              TestDamage (the number is that of the run's end)
//	a run is not compared with its records               TestDamage (a run's sum, a run's end, a run hides a call)
//	the end of a process is not compared with its run    TestDamage (all records of a process are gone)
//	a record is not compared with its pid                TestDamage (copied to another process)
//	a blob is not compared with its name                 TestDamagedBlobs, TestSameKey
//	who reads from the middle trusts what is before it   TestDamageBefore
//	what waits in the tail is taken for all there is     TestDamagedWhileOpen
//	only the blobs of payloads are looked at             TestDamagedParts

// sample fills a directory with a closed journal: processes 0 (2 records), 1
// (200), 2 (3) and 5 (64, one whole run).
func sample(t *testing.T) string {
	dir := t.TempDir()
	s, l := opened(t, dir)
	for pid, last := range map[abi.Pid]uint64{0: 2, 1: 200, 2: 3, 5: 64} {
		var batch []abi.Record
		for n := uint64(1); n <= last; n += 2 {
			batch = append(batch, storetest.Began(pid, n, n))
			if n < last {
				batch = append(batch, storetest.Ended(pid, n+1, n, fmt.Appendf(nil, "%0*d", 2*n, n)))
			}
		}
		mustAppend(t, s, l, batch...)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyDir copies the files of a journal to a directory of its own.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name()), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDamage(t *testing.T) {
	base := sample(t)
	at := func(pid, n int) string { return fmt.Sprintf("(%d<<32|%d)", pid, n) }
	for _, c := range []struct {
		name string
		sql  string
		pid  abi.Pid
		n    uint64
	}{
		{"a body", "UPDATE records SET body = zeroblob(length(body)) WHERE id = " + at(1, 100), 1, 100},
		{"a byte of a body", "UPDATE records SET body = CAST(substr(body, 1, 9) || x'ff' || substr(body, 11) AS BLOB) WHERE id = " + at(1, 101), 1, 101},
		{"a shorter body", "UPDATE records SET body = x'00' WHERE id = " + at(1, 7), 1, 7},
		{"a body that is a text", "UPDATE records SET body = 'abcdefgh' WHERE id = " + at(1, 8), 1, 8},
		{"a time", "UPDATE records SET time = time + 1 WHERE id = " + at(1, 64), 1, 64},
		{"a kind", "UPDATE records SET kind = 4 WHERE id = " + at(1, 2), 1, 2},
		{"a kind out of range", "UPDATE records SET kind = 259 WHERE id = " + at(1, 2), 1, 2},
		{"a call", "UPDATE records SET call = call + 2 WHERE id = " + at(1, 65), 1, 65},
		{"a row", "UPDATE records SET row = 'code' WHERE id = " + at(1, 199), 1, 199},
		{"a row that is a number", "UPDATE records SET row = x'01' WHERE id = " + at(1, 199), 1, 199},
		{"a tool", "UPDATE records SET tool = NULL WHERE id = " + at(2, 1), 2, 1},
		{"columns exchanged", "UPDATE records SET row = tool, tool = row WHERE id = " + at(1, 33), 1, 33},
		{"time and call exchanged", "UPDATE records SET time = call, call = time WHERE id = " + at(1, 34), 1, 34},
		{"a column of another type", "UPDATE records SET time = 'noon' WHERE id = " + at(1, 34), 1, 34},
		{"the first record is gone", "DELETE FROM records WHERE id = " + at(1, 1), 1, 1},
		{"a record in the middle is gone", "DELETE FROM records WHERE id = " + at(1, 150), 1, 150},
		{"the first of a run is gone", "DELETE FROM records WHERE id = " + at(1, 129), 1, 129},
		{"the last of a run is gone", "DELETE FROM records WHERE id = " + at(1, 128), 1, 128},
		{"the last record is gone", "DELETE FROM records WHERE id = " + at(1, 200), 1, 200},
		{"the last record of a whole run is gone", "DELETE FROM records WHERE id = " + at(5, 64), 5, 64},
		{"the last run's records are gone", "DELETE FROM records WHERE id >= " + at(1, 193) + " AND id <= " + at(1, 300), 1, 193},
		{"all records of a process are gone", "DELETE FROM records WHERE pid = 2", 2, 1},
		{"moved to another process", "UPDATE records SET id = " + at(2, 4) + " WHERE id = " + at(1, 200), 1, 200},
		{"copied to another process", "INSERT INTO records(id, time, kind, call, row, tool, body) SELECT " + at(2, 4) +
			", time, kind, call, row, tool, body FROM records WHERE id = " + at(1, 4), 2, 4},
		{"one too many", "INSERT INTO records(id, time, kind, call, row, tool, body) SELECT id + 1, time, kind, call, row, tool, body " +
			"FROM records WHERE id = " + at(5, 64), 5, 65},
		{"of a process that never was", "INSERT INTO records(id, time, kind, call, row, tool, body) SELECT " + at(3, 1) +
			", time, kind, call, row, tool, body FROM records WHERE id = " + at(2, 1), 3, 1},
		{"two exchanged", "UPDATE records SET id = -1 WHERE id = " + at(1, 70) + "; UPDATE records SET id = " + at(1, 70) + " WHERE id = " + at(1, 72) +
			"; UPDATE records SET id = " + at(1, 72) + " WHERE id = -1", 1, 70},
		{"all of a process moved to another", "UPDATE records SET id = id + (4<<32) WHERE pid = 2; UPDATE runs SET id = id + (4<<32) WHERE pid = 2", 6, 1},
		{"a run's sum", "UPDATE runs SET sum = zeroblob(32) WHERE id = " + at(1, 65), 1, 128},
		{"a run's end", "UPDATE runs SET n = n - 1 WHERE id = " + at(1, 65), 1, 127},
		{"the last run's end", "UPDATE runs SET n = n + 1 WHERE id = " + at(1, 193), 1, 201},
		{"a run in the middle is gone", "DELETE FROM runs WHERE id = " + at(1, 65), 1, 65},
		{"the last run is gone", "DELETE FROM runs WHERE id = " + at(1, 193), 1, 193},
		{"all runs of a process are gone", "DELETE FROM runs WHERE pid = 2", 2, 1},
		{"a run hides a call", "UPDATE runs SET low = high WHERE id = " + at(1, 1), 1, 64},
		{"a run that begins elsewhere", "UPDATE runs SET id = " + at(1, 66) + " WHERE id = " + at(1, 65), 1, 66},
		{"a run longer than a run", "UPDATE runs SET n = 257 WHERE id = " + at(1, 193), 1, 193},
		{"a run that ends before it begins", "UPDATE runs SET n = 192 WHERE id = " + at(1, 193), 1, 193},
		{"a run's end is no number", "UPDATE runs SET n = 'x' WHERE id = " + at(1, 193), 1, 193},
		{"a run's sum is cut", "UPDATE runs SET sum = x'00' WHERE id = " + at(1, 193), 1, 193},
		{"a run that is none", "UPDATE runs SET sum = 'x' WHERE id = " + at(5, 1), 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, base)
			edit(t, dir, c.sql)
			s, _ := opened(t, dir)
			var d *journal.Damage
			err := s.Scan(func(*abi.Record) error { return nil })
			if !errors.As(err, &d) || d.Pid != c.pid || d.N != c.n {
				t.Errorf("scan: %v; want record %d of process %d", err, c.n, c.pid)
			}
			n, err := journal.Verify(s, c.pid)
			if c.sql[:len("DELETE FROM runs")] == "DELETE FROM runs" && c.n != 65 || c.name == "of a process that never was" {
				return // to one process alone this looks like an end
			}
			if !errors.As(err, &d) || d.Pid != c.pid || d.N != c.n || uint64(n) > c.n {
				t.Errorf("verify: %d records, %v; want record %d of process %d", n, err, c.n, c.pid)
			}
			// Nobody else is concerned.
			if n, err := journal.Verify(s, 0); n != 2 || err != nil {
				t.Errorf("verify of process 0: %d, %v", n, err)
			}
		})
	}
}

// TestDamageBefore: who reads from the middle, or looks for one answer, sees
// that what comes before it is damaged.
func TestDamageBefore(t *testing.T) {
	base := sample(t)
	for _, c := range []struct {
		name, sql    string
		after        uint64
		n            uint64 // where the damage is
		call, answer uint64 // and where for who looks for the answer
	}{
		{"nothing", "SELECT 1", 130, 0, 131, 0},
		{"the run before is gone", "DELETE FROM runs WHERE id = 1<<32|65", 130, 128, 131, 128},
		{"the run before ends early", "UPDATE runs SET n = n - 1 WHERE id = 1<<32|65", 130, 128, 131, 128},
		{"the run before cannot be read", "UPDATE runs SET n = 'x' WHERE id = 1<<32|65", 130, 65, 131, 65},
		{"a record before it in the run", "UPDATE records SET time = 1 WHERE id = 1<<32|129", 130, 129, 131, 129},
		{"a record after it in the run", "UPDATE records SET time = 1 WHERE id = 1<<32|140", 130, 140, 131, 140},
		{"a run's first record", "UPDATE records SET time = 1 WHERE id = 1<<32|1", 130, 0, 131, 0}, // not in the way
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, base)
			edit(t, dir, c.sql)
			s, _ := opened(t, dir)
			n := c.after
			var err error
			for r, e := range s.Records(1, c.after) {
				if err = e; e == nil {
					if n++; r.N != n {
						t.Fatalf("record %d, want %d", r.N, n)
					}
				}
			}
			wantDamage(t, "records", err, c.n)
			if c.n == 0 && n != 200 {
				t.Errorf("the last record is %d", n)
			}
			r, err := s.Answer(1, c.call)
			wantDamage(t, "answer", err, c.answer)
			if err == nil && (r == nil || r.Call != c.call) {
				t.Errorf("the answer is %+v", r)
			}
		})
	}
}

func wantDamage(t *testing.T, what string, err error, n uint64) {
	t.Helper()
	var d *journal.Damage
	if n == 0 && err != nil || n != 0 && (!errors.As(err, &d) || d.Pid != 1 || d.N != n) {
		t.Errorf("%s: %v, want damage at record %d", what, err, n)
	}
}

// TestDamagedWhileOpen takes records away, and puts one where none was, under an
// open journal.
func TestDamagedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	var wide []abi.Record
	for pid := abi.Pid(1); pid <= 10; pid++ {
		mustAppend(t, s, l, storetest.Began(pid, 1, 1), storetest.Began(pid, 2, 2))
		wide = append(wide, storetest.Began(pid, 3, 3))
	}
	mustAppend(t, s, l, wide...)
	if sqlite.Waiting(s) != 10 {
		t.Fatalf("%d records in the tail", sqlite.Waiting(s))
	}
	// What waits in the tail is no end of what is gone before it.
	edit(t, dir, "DELETE FROM records WHERE pid = 1; DELETE FROM runs WHERE pid = 1")
	_, err := journal.Verify(s, 1)
	wantDamage(t, "what waits", err, 1)
	edit(t, dir, "INSERT INTO records(id, time, kind, call, row, tool, body) SELECT 1<<32|1, time, kind, call, row, tool, body FROM records WHERE id = 2<<32|1")
	var d *journal.Damage
	if err := s.Scan(func(*abi.Record) error { return nil }); !errors.As(err, &d) || d.Pid != 1 || d.N != 1 {
		t.Errorf("a record that nobody wrote: %v", err)
	}
	dir = t.TempDir()
	s, l = opened(t, dir)
	mustAppend(t, s, l, storetest.Began(1, 1, 1))
	edit(t, dir, "INSERT INTO records(id, time, kind, call, row, tool, body) SELECT id + 1, time, kind, call, row, tool, body FROM records")
	wantDamage(t, "a record in the place of the next", s.Append(l, []abi.Record{storetest.Began(1, 2, 2)}), 2)
}

// TestDamagedParts: what a request said is in blobs that only its parts name.
func TestDamagedParts(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	r := storetest.Began(1, 1, 1)
	for _, part := range []string{"the first part", "the second"} {
		h := abi.HashOf([]byte(part))
		r.Intent.Parts = append(r.Intent.Parts, h)
		r.Blobs = append(r.Blobs, abi.Blob{Hash: h, Bytes: []byte(part)})
	}
	mustAppend(t, s, l, r)
	if n, err := journal.Verify(s, 1); n != 1 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
	edit(t, dir, "DELETE FROM names WHERE blob = (SELECT max(id) FROM blobs)")
	_, err := journal.Verify(s, 1)
	wantDamage(t, "a part that is gone", err, 1)
}

func TestDamagedBlobs(t *testing.T) {
	base := sample(t)
	for _, c := range []struct{ name, sql string }{
		{"a blob's content", "UPDATE blobs SET body = CAST(substr(body, 1, 4) || x'ff' || substr(body, 6) AS BLOB)"},
		{"a blob's size", "UPDATE blobs SET body = CAST(x'7f' || substr(body, 2) AS BLOB)"},
		{"an empty blob", "UPDATE blobs SET body = x''"},
		{"blobs are gone", "DELETE FROM blobs"},
		{"names are gone", "DELETE FROM names"},
		{"a name of another blob", "UPDATE names SET blob = blob + 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, base)
			edit(t, dir, c.sql)
			s, l := opened(t, dir)
			var d *journal.Damage
			n, err := journal.Verify(s, 1)
			if !errors.As(err, &d) || d.Pid != 1 || d.N != 82 || n != 81 {
				t.Errorf("%d records, %v; want record 82 of process 1", n, err)
			}
			// Storing the payload again heals it.
			mustAppend(t, s, l, storetest.Ended(9, 1, 1, fmt.Appendf(nil, "%0*d", 2*81, 81)))
			if _, err := s.Blob(abi.HashOf(fmt.Appendf(nil, "%0*d", 2*81, 81))); err != nil {
				t.Errorf("a blob that was stored again: %v", err)
			}
		})
	}
}

// dump is everything that a journal says, or the error it says it with.
func dump(dir string) (list []string, err error) {
	s, _, err := sqlite.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Scan(func(r *abi.Record) error { list = append(list, fmt.Sprint(r.Pid, r.N)); return nil }); err != nil {
		return nil, err
	}
	for _, pid := range []abi.Pid{0, 1, 2, 5} {
		if _, err := journal.Verify(s, pid); err != nil {
			return nil, err
		}
		for r, err := range s.Records(pid, 0) {
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(r)
			if err != nil {
				return nil, err
			}
			list = append(list, string(text))
		}
	}
	for f := s.Feed(0); ; {
		entries, err := f.Next(nil)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			list = append(list, fmt.Sprint(e.Cursor, e.Pid, e.N))
		}
	}
	for call := range uint64(210) {
		r, err := s.Answer(1, call)
		if err != nil {
			return nil, err
		}
		list = append(list, fmt.Sprint(r != nil))
	}
	return list, nil
}

// TestFlippedBytes changes one byte of the file, anywhere. Either somebody
// complains, or the journal says what it said before.
func TestFlippedBytes(t *testing.T) {
	base := sample(t)
	want, err := dump(copyDir(t, base))
	if err != nil || len(want) < 200 {
		t.Fatal(len(want), err)
	}
	b, err := os.ReadFile(filepath.Join(base, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	flips := 60
	if os.Getenv("KERN_SOAK") != "" {
		flips = 5_000
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	noticed, dir := 0, t.TempDir()
	for range flips {
		i, mask := rnd.IntN(len(b)), byte(1+rnd.IntN(255))
		b[i] ^= mask
		err := os.WriteFile(filepath.Join(dir, "journal.db"), b, 0o600)
		b[i] ^= mask
		if err != nil {
			t.Fatal(err)
		}
		got, err := dump(dir)
		if err == nil && !slices.Equal(got, want) {
			n := 0
			for n < len(got) && n < len(want) && got[n] == want[n] {
				n++
			}
			t.Fatalf("byte %d changed by %#x, and without a complaint the journal says\n%q, want\n%q", i, mask, got[n:min(n+1, len(got))], want[n])
		}
		if err != nil {
			noticed++
		}
		for _, name := range []string{"journal.db-wal", "journal.db-shm"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	if noticed < flips/3 {
		t.Errorf("%d of %d were noticed", noticed, flips)
	}
	t.Logf("%d of %d were noticed; the others changed nothing that is read", noticed, flips)
}
