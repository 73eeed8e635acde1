package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
)

// Mutants that were made on purpose, and the test that killed each:
//
//	records are committed before their runs are                   TestTornLog
//	a wide batch is acknowledged before its row is in the tail    TestTornLog, TestKilled
//	the tail is not read when the journal is opened               TestTornLog, TestKilled
//	a row of the tail is not compared with its sum                TestDamagedTail
//	a settled row stays in the tail                               TestConformance

// batchesToTear are batches of few processes, of many, and with blobs.
func batchesToTear() [][]abi.Record {
	var out [][]abi.Record
	last := map[abi.Pid]uint64{}
	add := func(pids ...abi.Pid) {
		var batch []abi.Record
		for _, pid := range pids {
			last[pid]++
			n := last[pid]
			if n%3 == 0 {
				batch = append(batch, storetest.Ended(pid, n, n, fmt.Appendf(nil, "%0*d", 100*pid, n)))
			} else {
				batch = append(batch, storetest.Began(pid, n, n))
			}
		}
		out = append(out, batch)
	}
	for range 3 {
		add(1)
		add(1, 1, 2)
		add(1, 2, 3, 4, 5, 6, 7, 8)
		add(8, 7, 6, 5, 4, 3, 2, 1, 1, 1)
		add(9)
		add(20, 21, 22, 23, 24)
	}
	return out
}

// after is what a journal holds after the first n batches.
func after(batches [][]abi.Record, n int) map[abi.Pid][]abi.Record {
	m := map[abi.Pid][]abi.Record{}
	for _, batch := range batches[:n] {
		for _, r := range batch {
			r.Blobs = nil
			m[r.Pid] = append(m[r.Pid], r)
		}
	}
	return m
}

// held is what a journal holds, every blob of it read.
func held(dir string) (m map[abi.Pid][]abi.Record, err error) {
	s, l, err := sqlite.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	m = map[abi.Pid][]abi.Record{}
	if err := s.Scan(func(r *abi.Record) error { m[r.Pid] = append(m[r.Pid], *r); return nil }); err != nil {
		return nil, err
	}
	for pid, list := range m {
		if n, err := journal.Verify(s, pid); err != nil || n != len(list) {
			return nil, fmt.Errorf("verify %d: %d records, %w", pid, n, err)
		}
		// It can be written to, too.
		if err := s.Append(l, []abi.Record{storetest.Began(pid, uint64(len(list))+1, 1)}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// TestTornLog cuts the write-ahead log within each group, and puts zeros, noise or a
// changed byte where the rest of the group was: a power failure tore the group, which
// was not acknowledged. Everything that was acknowledged is there, and nothing else.
func TestTornLog(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	batches := batchesToTear()
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "journal.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	acked := []int64{size()} // acked[n] is the length of the log after n batches
	marks := [][]byte{read("journal.mark")}
	for _, b := range batches {
		mustAppend(t, s, l, b...)
		acked, marks = append(acked, size()), append(marks, read("journal.mark"))
	}
	if sqlite.Waiting(s) == 0 {
		t.Error("nothing is in the tail: this test is to see it")
	}
	db, wal := read("journal.db"), read("journal.db-wal")
	tears := tearsOf(acked)
	for i, cut := range tears {
		n := 0
		for n+1 < len(acked) && acked[n+1] <= cut {
			n++
		}
		want := after(batches, n)
		group := wal[:acked[min(n+1, len(acked)-1)]] // up to the end of the torn group
		rest := make([]byte, int64(len(group))-cut)
		how := []string{"cut", "zeros", "noise", "one byte changed"}[i%4]
		switch how {
		case "cut":
			rest = nil
		case "noise":
			for i := range rest {
				rest[i] = byte(rand.Uint32())
			}
		case "one byte changed":
			if copy(rest, group[cut:]); len(rest) > 0 {
				rest[0] ^= 0x40
			}
		}
		torn := t.TempDir()
		for name, b := range map[string][]byte{"journal.db": db, "journal.db-wal": append(wal[:cut:cut], rest...), "journal.mark": marks[n]} {
			if err := os.WriteFile(filepath.Join(torn, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := held(torn)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s at %d of %d bytes, after %d batches: %v\n got %d processes\nwant %d", how, cut, len(wal), n, err, len(got), len(want))
		}
		if err := os.RemoveAll(torn); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d torn logs", len(tears))
}

// tearsOf are lengths at, just before, just after and between commits, after
// the first: before that the file itself is not complete.
func tearsOf(acked []int64) []int64 {
	var out []int64
	step := int64(3)
	if os.Getenv("KERN_SOAK") != "" {
		step = 29
	}
	for i := 1; i < len(acked); i++ {
		from, to := acked[i-1], acked[i]
		if i == 1 {
			from = to
		}
		for k := range step {
			out = append(out, from+(to-from)*k/step)
		}
		out = append(out, to-1, to, min(to+1, acked[len(acked)-1]))
	}
	return out
}

func TestDamagedTail(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	mustAppend(t, s, l, storetest.Began(1, 1, 1))
	for n := uint64(1); n <= 3; n++ {
		var batch []abi.Record
		for pid := abi.Pid(10); pid < 20; pid++ {
			batch = append(batch, storetest.Began(pid, n, n))
		}
		mustAppend(t, s, l, batch...)
	}
	for _, c := range []struct {
		name, sql string
		pid       abi.Pid
		n         uint64
	}{
		{"a byte of a record", "UPDATE tail SET body = CAST(substr(body, 1, 30) || x'ee' || substr(body, 32) AS BLOB) WHERE seq = 2", 10, 2},
		{"a row in the middle is gone", "DELETE FROM tail WHERE seq = 2", 10, 3},
		{"the first row is gone", "DELETE FROM tail WHERE seq = 1", 10, 2},
		{"a row is cut", "UPDATE tail SET body = CAST(substr(body, 1, 400) AS BLOB) WHERE seq = 3", 10, 3},
		{"a row is empty", "UPDATE tail SET body = x'' WHERE seq = 3", 0, 0},
		{"a sum", "UPDATE tail SET sum = zeroblob(32) WHERE seq = 3", 10, 3},
		{"rows exchanged", "UPDATE tail SET seq = 9 WHERE seq = 2; UPDATE tail SET seq = 2 WHERE seq = 3; UPDATE tail SET seq = 3 WHERE seq = 9", 10, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, dir)
			edit(t, dir, c.sql)
			_, _, err := sqlite.Open(dir)
			var d *journal.Damage
			if !errors.As(err, &d) || d.Pid != c.pid || d.N != c.n {
				t.Errorf("got %v; want record %d of process %d", err, c.n, c.pid)
			}
			if _, _, again := sqlite.Open(dir); again == nil || errors.Is(again, journal.ErrLocked) {
				t.Errorf("opened again: %v", again)
			}
		})
	}
	// Untouched, it is all there.
	got, err := held(copyDir(t, dir))
	if err != nil || len(got) != 11 || len(got[19]) != 3 {
		t.Errorf("%d processes, %v", len(got), err)
	}
}

// childDir tells the test's own binary to be the program that is killed.
const childDir = "KERN_JOURNAL_CHILD"

// child appends for ever, from several goroutines, and says what is durable.
func child(dir string) {
	s, l, err := sqlite.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	last := map[abi.Pid]uint64{}
	if err := s.Scan(func(r *abi.Record) error { last[r.Pid] = r.N; return nil }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	log := journal.NewLog(s, l)
	fmt.Println("ready")
	go func() {
		for e, err := range log.Feed(context.Background(), log.End(), nil) {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Printf("feed %d %d:%d\n", e.Cursor, e.Pid, e.N)
		}
	}()
	for pid := abi.Pid(1); pid <= 12; pid++ {
		go func() {
			for n := last[pid] + 1; ; n++ {
				r := storetest.Ended(pid, n, n, fmt.Appendf(nil, "%0*d", n%400, n))
				if err := log.Put(&r).Wait(context.Background()); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Printf("%d %d\n", pid, n)
			}
		}()
	}
	select {}
}

// TestKilled kills a program that appends, at moments nobody chose, and looks
// for everything it had been told was durable.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rounds := 12
	if os.Getenv("KERN_SOAK") != "" {
		rounds = 300
	}
	acked, read := map[abi.Pid]uint64{}, map[journal.Cursor]string{}
	for round := range rounds {
		run(t, self, dir, round%24*5, acked, read)
		s, _ := opened(t, dir)
		inOrder := feedOf(t, s, 0)
		for at, id := range read {
			if inOrder[at-1] != id {
				t.Fatalf("round %d: a reader saw %s at %d, and now it is %s", round, id, at, inOrder[at-1])
			}
		}
		last := map[abi.Pid]uint64{}
		if err := s.Scan(func(r *abi.Record) error { last[r.Pid] = r.N; return nil }); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for pid, n := range acked {
			if last[pid] < n {
				t.Fatalf("round %d: process %d ends at %d, and %d was acknowledged", round, pid, last[pid], n)
			}
			if got, err := journal.Verify(s, pid); err != nil || uint64(got) != last[pid] {
				t.Fatalf("round %d: verify %d: %d, %v", round, pid, got, err)
			}
		}
		for pid, n := range last {
			total := 0
			for _, id := range inOrder {
				if strings.HasPrefix(id, fmt.Sprint(pid, ":")) {
					total++
				}
			}
			if uint64(total) != n {
				t.Fatalf("round %d: the feed has %d records of process %d, want %d", round, total, pid, n)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	total := uint64(0)
	for _, n := range acked {
		total += n
	}
	if total < 100 || len(read) < 50 {
		t.Errorf("only %d records were acknowledged and %d were read", total, len(read))
	}
	t.Logf("%d records acknowledged, %d kills", total, rounds)
}

// TestKilledWhileOpening kills a program at any moment from before it opens the journal
// on, again and again, in a new directory and in one that was closed or killed.
func TestKilledWhileOpening(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rounds := 40
	if os.Getenv("KERN_SOAK") != "" {
		rounds = 2000
	}
	dir := t.TempDir()
	for round := range rounds {
		if round%8 == 0 {
			dir = t.TempDir()
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The kill comes some milliseconds later, or with the first words of the program.
		kill := time.AfterFunc(time.Duration(round%8)*3*time.Millisecond, func() { cmd.Process.Kill() })
		io.ReadFull(out, make([]byte, 1))
		kill.Stop()
		cmd.Process.Kill()
		cmd.Wait()
		if round%3 == 0 {
			continue // the next one finds what this one left
		}
		s, _ := opened(t, dir)
		if err := s.Scan(func(*abi.Record) error { return nil }); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// run starts the program, kills it when it has said so many lines, and notes all
// that it said and all that it read in the feed.
func run(t *testing.T, self, dir string, most int, acked map[abi.Pid]uint64, read map[journal.Cursor]string) {
	t.Helper()
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		cmd.Wait()
		t.Fatalf("the child did not start: %v\n%s", err, stderr.String())
	}
	for said, killed := 0, false; ; {
		if said == most && !killed {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Error(err)
			break
		}
		var at journal.Cursor
		var id string
		if _, err := fmt.Sscanf(line, "feed %d %s", &at, &id); err == nil {
			read[at] = id
			continue
		}
		said++
		var pid abi.Pid
		var n uint64
		if _, err := fmt.Sscan(line, &pid, &n); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		acked[pid] = max(acked[pid], n)
	}
	if err := cmd.Wait(); err == nil || stderr.Len() > 0 {
		t.Errorf("the child ended by itself: %v\n%s", err, stderr.String())
	}
}

// TestReadersSeeWholeBatches reads while batches are written and settled.
func TestReadersSeeWholeBatches(t *testing.T) {
	dir := t.TempDir()
	s, l := opened(t, dir)
	const procs, rounds = 24, 300 // more than the tail holds
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for pid := abi.Pid(1); ; pid = pid%procs + 1 {
				select {
				case <-stop:
					return
				default:
				}
				n := uint64(0)
				for r, err := range s.Records(pid, 0) {
					if n++; err != nil || r.N != n {
						t.Errorf("process %d after %d: %v, %v", pid, n-1, r, err)
						return
					}
				}
				if r, err := s.Answer(pid, n); n > 0 && (err != nil || r == nil || r.Call != n) {
					t.Errorf("answer of %d:%d: %v, %v", pid, n, r, err)
					return
				}
			}
		})
	}
	settled := false
	for n := uint64(1); n <= rounds; n++ {
		var batch []abi.Record
		for pid := abi.Pid(1); pid <= procs; pid++ {
			batch = append(batch, storetest.Ended(pid, n, n, nil))
		}
		mustAppend(t, s, l, batch...)
		settled = settled || n > 1 && sqlite.Waiting(s) == 0
	}
	close(stop)
	wg.Wait()
	if !settled || procs*rounds < sqlite.MaxTail {
		t.Error("the tail was never settled")
	}
}
