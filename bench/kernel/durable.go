package main

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/kern-run/kern/internal/journal/sqlite"
)

// bare is SQLite with prepared statements and a group commit: rows that arrive during
// a transaction belong to the next one.
type bare struct {
	conn                  driver.Conn
	begin, insert, commit driver.StmtExecContext
	rows                  int64
	queue                 chan chan error
	ended                 chan struct{}
}

// rowSize is about the size of a row with a record of a call.
const rowSize = 120

func openBare(dir string) (*bare, error) {
	connector, err := modernc.NewConnector(filepath.Join(dir, "bare.db"))
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	c, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	b := &bare{conn: c, queue: make(chan chan error, 1024), ended: make(chan struct{})}
	if _, err := c.(driver.ExecerContext).ExecContext(ctx,
		`PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB NOT NULL)`, nil); err != nil {
		return nil, err
	}
	for sql, p := range map[string]*driver.StmtExecContext{"BEGIN IMMEDIATE": &b.begin, "COMMIT": &b.commit, "INSERT INTO t(id, body) VALUES(?, ?)": &b.insert} {
		s, err := c.Prepare(sql)
		if err != nil {
			return nil, err
		}
		*p = s.(driver.StmtExecContext)
	}
	go b.run()
	return b, nil
}

func (b *bare) run() {
	defer close(b.ended)
	body := make([]byte, rowSize)
	for first := range b.queue {
		group := []chan error{first}
		for len(b.queue) > 0 {
			group = append(group, <-b.queue)
		}
		err := b.store(len(group), body)
		for _, c := range group {
			c <- err
		}
	}
}

func (b *bare) store(rows int, body []byte) error {
	ctx := context.Background()
	if _, err := b.begin.ExecContext(ctx, nil); err != nil {
		return err
	}
	for range rows {
		b.rows++
		if _, err := b.insert.ExecContext(ctx, []driver.NamedValue{{Ordinal: 1, Value: b.rows}, {Ordinal: 2, Value: body}}); err != nil {
			return err
		}
	}
	_, err := b.commit.ExecContext(ctx, nil)
	return err
}

func (b *bare) put() error {
	c := make(chan error, 1)
	b.queue <- c
	return <-c
}

func (b *bare) close() error {
	close(b.queue)
	<-b.ended
	return b.conn.Close()
}

// runMany runs fn from several goroutines, a number of times each, and returns the
// runs a second.
func runMany(callers, each int, fn func(caller int) error) (float64, error) {
	start := time.Now()
	errs := make(chan error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for range each {
				if err := fn(c); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	if len(errs) > 0 {
		return 0, <-errs
	}
	return float64(callers*each) / time.Since(start).Seconds(), nil
}

// measureDurable compares calls through the whole kernel and its store with the bare
// disk and with bare SQLite. A call without effects writes one record, a call with an
// effect two, one after the other.
func measureDurable(dir string, rounds int) error {
	f, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := openBare(dir)
	if err != nil {
		return err
	}
	s, l, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	m, err := open(s, l)
	if err != nil {
		return err
	}
	pid, err := m.spawnDeep()
	if err != nil {
		return err
	}
	var n atomic.Uint64
	page := make([]byte, 4096)
	raw := func(int) error {
		if _, err := f.Write(page); err != nil {
			return err
		}
		return f.Sync()
	}
	sql := func(int) error { return b.put() }
	ours := func(row string) func(int) error { return func(int) error { return m.call(pid, n.Add(1), row) } }
	kinds := []struct {
		callers, each int
		fn            func(int) error
		rates         []float64
	}{{1, 150, raw, nil}, {1, 150, sql, nil}, {1, 150, ours("noop"), nil}, {1, 150, ours("effect"), nil},
		{64, 150, sql, nil}, {64, 150, ours("noop"), nil}, {64, 150, ours("effect"), nil}}
	for range rounds {
		for i := range kinds {
			k := &kinds[i]
			r, err := runMany(k.callers, k.each, k.fn)
			if err != nil {
				return err
			}
			k.rates = append(k.rates, r)
		}
	}
	rate := func(i int) float64 { return median(kinds[i].rates) }
	each := func(i int) string { return time.Duration(1e9 / rate(i)).Round(time.Microsecond).String() }
	printRow("write and fsync of 4 KiB", each(0), fmt.Sprintf("%.0f/s", rate(0)), "", "")
	printRow("durable call, 1 caller", each(2), "bare SQLite commit "+each(1), ratio(rate(1), rate(2)), "<= 1.5x")
	printRow("durable effect (2 records), 1 caller", each(3), "2 bare commits", ratio(rate(1)/2, rate(3)), "")
	printRow("durable calls, 64 callers", fmt.Sprintf("%.0f/s", rate(5)), fmt.Sprintf("bare group commit %.0f/s", rate(4)), ratio(rate(5), rate(4)), ">= 30000/s")
	printRow("durable effects (2 records), 64 callers", fmt.Sprintf("%.0f/s", rate(6)), fmt.Sprintf("%.0f records/s", 2*rate(6)), ratio(2*rate(6), rate(4)), "")
	if err := b.close(); err != nil {
		return err
	}
	return m.close()
}
