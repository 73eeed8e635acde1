package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	the batches of the tail are not in the feed            TestConformance, TestKilled
//	a settled tail is in the feed twice                    TestConformance
//	the blocks of a failed transaction stay                TestConformance
//	a block is not compared with the end of the last       TestFeedDamage
//	a record is not compared with its place in the feed    TestFeedDamage
//	an older version's records are not added               TestFeedOfOlderVersion

// feedOf is the feed behind a cursor, as pid:number.
func feedOf(t *testing.T, s journal.Store, after journal.Cursor) (list []string) {
	t.Helper()
	for f := s.Feed(after); ; {
		entries, err := f.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return list
		}
		for _, e := range entries {
			if after++; e.Cursor != after {
				t.Fatalf("record %d:%d is at %d, want %d", e.Pid, e.N, e.Cursor, after)
			}
			list = append(list, fmt.Sprint(e.Pid, ":", e.N))
		}
	}
}

// TestFeedDamage: a feed that is not what was written is noticed.
func TestFeedDamage(t *testing.T) {
	base := sample(t)
	dir := copyDir(t, base)
	s, l := opened(t, dir)
	var mixed []abi.Record
	for n := range uint64(400) {
		mixed = append(mixed, storetest.Began(6, n+1, n), storetest.Began(7, n+1, n), storetest.Began(8, n+1, n))
	}
	for batch := range slices.Chunk(mixed, 3) {
		mustAppend(t, s, l, batch...)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, sql string }{
		{"a block is gone", "DELETE FROM feed WHERE id = (SELECT min(id) FROM feed WHERE id > 1)"},
		{"the first block is gone", "DELETE FROM feed WHERE id = 1"},
		{"a block begins elsewhere", "UPDATE feed SET id = id + 1 WHERE id = (SELECT min(id) FROM feed WHERE id > 1)"},
		{"a block is cut", "UPDATE feed SET body = substr(body, 1, length(body) - 1) WHERE id = 1"},
		{"a block is a text", "UPDATE feed SET body = 'abc' WHERE id = 1"},
		{"a block is empty", "UPDATE feed SET body = x'' WHERE id = 1"},
		{"an empty span", "UPDATE feed SET body = x'010100' WHERE id = 1"},
		{"a process has other numbers", "UPDATE feed SET body = x'0102c801' WHERE id = 1"},
		{"a record is gone", fmt.Sprintf("DELETE FROM records WHERE id = %d", 6<<32|70)},
		{"a record is another", fmt.Sprintf("UPDATE records SET time = time + 1 WHERE id = %d", 6<<32|70)},
		{"a run is gone", fmt.Sprintf("DELETE FROM runs WHERE id = %d", 6<<32|65)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, dir)
			edit(t, dir, c.sql)
			s, _ := opened(t, dir)
			var d *journal.Damage
			var err error
			// From the beginning, or from the middle where a reader knows less.
			for _, after := range []journal.Cursor{0, 700} {
				for f := s.Feed(after); err == nil; {
					var list []journal.Entry
					if list, err = f.Next(nil); len(list) == 0 {
						break
					}
				}
			}
			if !errors.As(err, &d) {
				t.Errorf("read without a complaint: %v", err)
			}
		})
	}
}

// blocks reads the table feed, and writes it again when it is given.
func blocks(t *testing.T, dir string, put map[int64]any) map[int64]any {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if put != nil {
		if _, err := db.Exec("DELETE FROM feed"); err != nil {
			t.Fatal(err)
		}
	}
	for id, body := range put {
		if _, err := db.Exec("INSERT INTO feed VALUES(?, ?)", id, body); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := db.Query("SELECT id, body FROM feed")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := map[int64]any{}
	for rows.Next() {
		var id int64
		var body any
		if err := rows.Scan(&id, &body); err != nil {
			t.Fatal(err)
		}
		got[id] = body
	}
	return got
}

// TestFeedOfOlderVersion: records that a version without the table feed wrote
// stand at the end of the feed, process after process, and stay there.
func TestFeedOfOlderVersion(t *testing.T) {
	var sampled []string
	for _, p := range [][2]int{{0, 2}, {1, 200}, {2, 3}, {5, 64}} {
		for n := range p[1] {
			sampled = append(sampled, fmt.Sprint(p[0], ":", n+1))
		}
	}
	dir := sample(t)
	edit(t, dir, "DROP TABLE feed")
	s, l := opened(t, dir)
	if got := feedOf(t, s, 0); !slices.Equal(got, sampled) {
		t.Errorf("of a journal without a feed: %v", got)
	}
	mustAppend(t, s, l, storetest.Began(9, 1, 1), storetest.Began(1, 201, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	known := blocks(t, dir, nil)
	s, l = opened(t, dir)
	mustAppend(t, s, l, storetest.Began(9, 2, 1), storetest.Began(2, 4, 1), storetest.Began(2, 5, 1))
	mustAppend(t, s, l, storetest.Began(11, 1, 1), storetest.Began(9, 3, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	blocks(t, dir, known) // as if an older version had written the last batches
	want := append(sampled, "9:1", "1:201", "2:4", "2:5", "9:2", "9:3", "11:1")
	for range 2 {
		s, _ = opened(t, dir)
		if got := feedOf(t, s, 0); !slices.Equal(got, want) {
			t.Errorf("after an older version: %v\nwant %v", got[len(got)-10:], want[len(want)-10:])
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
