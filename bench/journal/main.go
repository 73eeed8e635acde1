// Command journal measures the journal beside its lower bounds, in the same run and in
// turn: a sync of this disk, and a bare SQLite transaction with as many rows of the
// same size.
//
//	go run ./bench/journal [-dir DIR] [-n ROUNDS]
package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/sqlite"
	"github.com/kern-run/kern/internal/journal/storetest"
	modernc "modernc.org/sqlite"
)

func main() {
	dir := flag.String("dir", "", "directory on the disk to measure (default: a new one for temporary files)")
	rounds := flag.Int("n", 9, "rounds; the medians of them are printed")
	flag.Parse()
	if err := run(*dir, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "journal:", err)
		os.Exit(1)
	}
}

func run(dir string, rounds int) error {
	dir, err := os.MkdirTemp(dir, "kern-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, step := range []func(string, int) error{measureLatency, measureThroughput, measurePut, measureRecovery, measureConversation, measureOpening} {
		sub, err := os.MkdirTemp(dir, "")
		if err != nil {
			return err
		}
		if err := step(sub, rounds); err != nil {
			return err
		}
	}
	return nil
}

// printRow prints one row of the table.
func printRow(what, value, ratio, aim string) {
	fmt.Printf("%-46s %14s  %-28s %s\n", what, value, ratio, aim)
}

func median[T int | float64 | time.Duration](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

// times runs fn n times and returns the median of one.
func times(n int, fn func() error) (time.Duration, error) {
	all := make([]time.Duration, n)
	for i := range all {
		start := time.Now()
		if err := fn(); err != nil {
			return 0, err
		}
		all[i] = time.Since(start)
	}
	return median(all), nil
}

// bare is SQLite with prepared statements, and nothing else.
type bare struct {
	conn                  driver.Conn
	begin, insert, commit driver.StmtExecContext
	n                     int64
}

func openBare(dir string) (*bare, error) {
	connector, err := modernc.NewConnector(filepath.Join(dir, "bare.db"))
	if err != nil {
		return nil, err
	}
	c, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	b := &bare{conn: c}
	if _, err := c.(driver.ExecerContext).ExecContext(context.Background(),
		`PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB NOT NULL)`, nil); err != nil {
		return nil, err
	}
	for sql, p := range map[string]*driver.StmtExecContext{"BEGIN IMMEDIATE": &b.begin, "COMMIT": &b.commit,
		"INSERT INTO t(id, body) VALUES(?, ?)": &b.insert} {
		s, err := c.Prepare(sql)
		if err != nil {
			return nil, err
		}
		*p = s.(driver.StmtExecContext)
	}
	return b, nil
}

// store commits rows of size bytes in one transaction.
func (b *bare) store(rows, size int) error {
	ctx := context.Background()
	if _, err := b.begin.ExecContext(ctx, nil); err != nil {
		return err
	}
	body := make([]byte, size)
	for range rows {
		b.n++
		args := []driver.NamedValue{{Ordinal: 1, Value: b.n}, {Ordinal: 2, Value: body}}
		if _, err := b.insert.ExecContext(ctx, args); err != nil {
			return err
		}
	}
	_, err := b.commit.ExecContext(ctx, nil)
	return err
}

// rowSize is about the size of a row with a record of a call.
const rowSize = 120

func measureLatency(dir string, rounds int) error {
	f, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		return err
	}
	defer f.Close()
	again, err1 := openFull(filepath.Join(dir, "again"), 0)
	through, err2 := openFull(filepath.Join(dir, "through"), os.O_SYNC)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	defer again.Close()
	defer through.Close()
	b, err := openBare(dir)
	if err != nil {
		return err
	}
	defer b.conn.Close()
	s, l, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	log := journal.NewLog(s, l)
	page := make([]byte, 4096)
	var n uint64
	// A write-ahead log that still grows costs more to sync than one that is
	// written over again; after this both are written over.
	for range 1500 {
		n++
		if err := errors.Join(b.store(1, rowSize), s.Append(l, []abi.Record{storetest.Began(1, n, n)})); err != nil {
			return err
		}
	}
	var raw, over, synced, sql, ours []time.Duration
	var at int64
	for range rounds {
		for _, m := range []struct {
			all *[]time.Duration
			fn  func() error
		}{
			{&raw, func() error {
				_, err := f.Write(page)
				return errors.Join(err, f.Sync())
			}},
			{&over, func() error {
				at = (at + 4096) % logSize
				_, err := again.WriteAt(page, at)
				return errors.Join(err, again.Sync())
			}},
			{&synced, func() error {
				at = (at + 4096) % logSize
				_, err := through.WriteAt(page, at)
				return err
			}},
			{&sql, func() error { return b.store(1, rowSize) }},
			{&ours, func() error {
				n++
				r := storetest.Began(1, n, n)
				return log.PutDeferred(&r).Wait(context.Background())
			}},
		} {
			d, err := times(100, m.fn)
			if err != nil {
				return err
			}
			*m.all = append(*m.all, d)
		}
	}
	printRow("write and fsync of 4 KiB, p50", median(raw).String(), "", "")
	printRow("the same over what is there, p50", median(over).String(), "", "")
	printRow("the same in a file opened with O_SYNC, p50", median(synced).String(), "", "")
	printRow("bare SQLite commit of 1 row, p50", median(sql).String(), "", "")
	printRow("durable record, 1 caller, p50", median(ours).String(),
		fmt.Sprintf("%.2fx bare", medianRatio(ours, sql)), "aim <= 1.5x bare")
	if err := log.Close(); err != nil {
		return err
	}
	return s.Close()
}

// logSize is the size at which SQLite reuses its write-ahead log.
const logSize = 4 << 20

// openFull opens a file that has its full size already, so that a write changes only
// data.
func openFull(name string, flag int) (*os.File, error) {
	if err := os.WriteFile(name, make([]byte, logSize+4096), 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|flag, 0)
	if err == nil {
		err = f.Sync()
	}
	return f, err
}

// medianRatio returns the median of the ratios of each round.
func medianRatio(a, b []time.Duration) float64 {
	var all []float64
	for i := range a {
		all = append(all, float64(a[i])/float64(b[i]))
	}
	return median(all)
}

// counted counts the batches that reach a store.
type counted struct {
	journal.Store
	batches, records int
}

func (c *counted) Append(l journal.Lease, batch []abi.Record) error {
	c.batches++
	c.records += len(batch)
	return c.Store.Append(l, batch)
}

func measureThroughput(dir string, rounds int) error {
	const callers, each = 64, 100
	b, err := openBare(dir)
	if err != nil {
		return err
	}
	defer b.conn.Close()
	s, l, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	c := &counted{Store: s}
	log := journal.NewLog(c, l)
	var rate, bareRate []float64
	for round := range rounds {
		c.batches, c.records = 0, 0
		start := time.Now()
		var wg sync.WaitGroup
		errs := make(chan error, callers)
		for pid := range abi.Pid(callers) {
			wg.Go(func() {
				for i := range uint64(each) {
					r := storetest.Began(pid+1, uint64(round)*each+i+1, i)
					if err := log.Put(&r).Wait(context.Background()); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-errs:
			return err
		default:
		}
		rate = append(rate, callers*each/time.Since(start).Seconds())
		size := c.records / c.batches
		start = time.Now()
		for range c.batches {
			if err := b.store(size, rowSize); err != nil {
				return err
			}
		}
		bareRate = append(bareRate, float64(size*c.batches)/time.Since(start).Seconds())
	}
	printRow("bare SQLite, batches of the same size", fmt.Sprintf("%.0f rows/s", median(bareRate)), "", "")
	printRow("durable records, 64 callers", fmt.Sprintf("%.0f/s", median(rate)),
		fmt.Sprintf("%.2fx bare, %d a batch", median(rate)/median(bareRate), c.records/c.batches), "aim >= 30000/s")
	if err := log.Close(); err != nil {
		return err
	}
	return s.Close()
}

// nowhere is a store that takes no time.
type nowhere struct{ journal.Store }

func (nowhere) Append(journal.Lease, []abi.Record) error { return nil }

func measurePut(string, int) error {
	log := journal.NewLog(nowhere{}, journal.Lease{})
	r := storetest.Began(1, 1, 1)
	var t journal.Pending
	res := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t = log.Put(&r)
		}
	})
	printRow("Put of a record", fmt.Sprintf("%d ns", res.NsPerOp()), fmt.Sprintf("%d allocations", res.AllocsPerOp()), "aim well under 1 us")
	res = testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t = log.Put(&r)
			if err := t.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	printRow("Put and Wait, with a store that takes no time", fmt.Sprintf("%d ns", res.NsPerOp()), fmt.Sprintf("%d allocations", res.AllocsPerOp()), "")
	return log.Close()
}

func measureRecovery(dir string, rounds int) error {
	const count = 40_000
	s, l, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	var batch []abi.Record
	for n := uint64(1); n <= count; n += 2 {
		batch = append(batch, storetest.Began(1, n, n), storetest.Ended(1, n+1, n, fmt.Appendf(nil, `{"n":%d}`, n)))
	}
	if err := s.Append(l, batch); err != nil {
		return err
	}
	read := 0
	d, err := times(rounds, func() error {
		return s.Scan(func(*abi.Record) error { read++; return nil })
	})
	if err != nil {
		return err
	}
	if read != count*rounds {
		return fmt.Errorf("%d records were read", read)
	}
	printRow("Scan of 40000 records, verified and decoded", d.String(), fmt.Sprintf("%d ns a record", d.Nanoseconds()/count), "aim well under 100 ms")
	d, err = times(rounds, func() error {
		_, err := s.Answer(1, count/2+1)
		return err
	})
	if err != nil {
		return err
	}
	printRow("Answer among 40000 records", d.String(), "", "")
	return s.Close()
}

// measureConversation stores the conversation of scenario 36: 209,000 tokens in a
// thousand rounds of a model call and a tool call.
func measureConversation(dir string, _ int) error {
	for name, words := range map[string]string{"prose": storetest.Prose, "hexadecimal": storetest.Hex} {
		sub := filepath.Join(dir, name)
		s, l, err := sqlite.Open(sub)
		if err != nil {
			return err
		}
		log := journal.NewLog(s, l)
		c := storetest.Talk{Pid: 1, Words: words}
		for c.Tokens < 209_000 {
			for _, r := range c.Round() {
				if err := log.Put(&r).Wait(context.Background()); err != nil {
					return err
				}
			}
		}
		if err := log.Close(); err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(sub, "journal.db"))
		if err != nil {
			return err
		}
		printRow(fmt.Sprintf("conversation of %d tool calls, %s", c.Calls, name), fmt.Sprintf("%d bytes", info.Size()),
			fmt.Sprintf("%.2fx of %d unique", float64(info.Size())/float64(c.Unique), c.Unique), "aim < 1.2x")
	}
	return nil
}

func measureOpening(dir string, rounds int) error {
	n := 0
	d, err := times(rounds*3, func() error {
		n++
		s, _, err := sqlite.Open(filepath.Join(dir, fmt.Sprint(n)))
		if err != nil {
			return err
		}
		defer s.Close()
		return s.Scan(func(*abi.Record) error { return nil })
	})
	if err != nil {
		return err
	}
	printRow("open a new directory, scan, close", d.String(), "", "aim a few ms")
	return nil
}
