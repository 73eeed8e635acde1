package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
	sqlite3 "modernc.org/sqlite/lib"
)

// file is the name of the journal in its data directory.
const file = "journal.db"

// applicationID is in the header of the file: "Krn", and the version of the
// tables. The header has a second free number, user_version, which holds the epoch
// of the lease. Every transaction reads the epoch, and there it needs no page of its
// own.
const applicationID = 0x4b726e01

const schema = `
CREATE TABLE records(
	id   INTEGER PRIMARY KEY,
	time INTEGER NOT NULL,
	kind INTEGER NOT NULL,
	call INTEGER NOT NULL,
	row  TEXT,
	tool TEXT,
	body BLOB NOT NULL,
	pid  INTEGER GENERATED ALWAYS AS (id >> 32) VIRTUAL,
	n    INTEGER GENERATED ALWAYS AS (id & 0xffffffff) VIRTUAL
);
CREATE TABLE runs(
	id   INTEGER PRIMARY KEY,
	n    INTEGER NOT NULL,
	sum  BLOB NOT NULL,
	low  INTEGER,
	high INTEGER,
	pid  INTEGER GENERATED ALWAYS AS (id >> 32) VIRTUAL
);
CREATE TABLE tail(seq INTEGER PRIMARY KEY, sum BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE blobs(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE names(key INTEGER NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY(key, blob)) WITHOUT ROWID;
CREATE VIEW log AS SELECT pid, n,
	strftime('%Y-%m-%dT%H:%M:%S', time / 1000000000, 'unixepoch') || printf('.%09dZ', time % 1000000000) AS time,
	CASE kind WHEN 1 THEN 'spawned' WHEN 2 THEN 'began' WHEN 3 THEN 'ended' WHEN 4 THEN 'refused'
		WHEN 5 THEN 'signaled' WHEN 6 THEN 'mailed' WHEN 7 THEN 'asked' WHEN 8 THEN 'decided' WHEN 9 THEN 'changed'
		WHEN 10 THEN 'ending' WHEN 11 THEN 'exited' WHEN 12 THEN 'account' WHEN 13 THEN 'removed' WHEN 14 THEN 'settled' ELSE kind END AS kind,
	call, row, tool FROM records;
`

// The pragmas of the connections. A person may open the file with other programs
// at the same time. SQLite waits 10 seconds for a program that writes.
const (
	writerPragmas = `PRAGMA busy_timeout=10000; PRAGMA synchronous=FULL; PRAGMA journal_mode=WAL; PRAGMA fullfsync=1;
		PRAGMA checkpoint_fullfsync=1; PRAGMA cell_size_check=1; PRAGMA trusted_schema=0`
	readerPragmas = `PRAGMA busy_timeout=10000; PRAGMA query_only=1; PRAGMA cell_size_check=1; PRAGMA trusted_schema=0`
)

// Bounds of the caches ends and known.
var maxEnds = 1 << 16 // tests lower it
const maxKnown = 1 << 14

// store implements [journal.Store] on one SQLite file. It has one writer and many
// readers.
type store struct {
	path string
	lock *os.File
	file *os.File // open as long as w, because closing it releases SQLite's locks

	mu     sync.Mutex // guards the fields up to small: only one goroutine writes
	w      *writer
	leases journal.Leases
	ends   map[abi.Pid]run       // cache of last runs; has every process in the tail
	known  map[abi.Hash]struct{} // cache of blobs that are stored
	tail   tail
	order  order // the commit order without the tail
	mark   mark
	keeper *keeper // of a sweep that is running
	total  total   // of the last sums of all processes, the tail included
	sick   error   // the error of the last attempt to settle the tail
	small  int     // batches of few processes since the last batch of many

	pids    pids
	end     atomic.Uint64 // position of the last record; readers look at it without the lock
	readers readers
}

// writer is the one connection that writes, with its prepared statements.
type writer struct {
	*conn
	begin, commit, rollback, epoch, insert, setRun, lastRun, blob, name, named *stmt
	append, cut, setBlock                                                      *stmt
}

// Open opens the journal in a directory, and makes both if they do not exist. It
// fails with [journal.ErrLocked] if another process has the journal open.
func Open(dir string) (journal.Store, journal.Lease, error) {
	s, err := open(dir)
	if err != nil {
		return nil, journal.Lease{}, fmt.Errorf("journal: open %s: %w", filepath.Join(dir, file), err)
	}
	return s, journal.Lease{Epoch: s.leases.Newest()}, nil
}

func open(dir string) (_ *store, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &store{path: filepath.Join(dir, file), ends: map[abi.Pid]run{}, known: map[abi.Hash]struct{}{}}
	if s.lock, err = lock(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if s.mark, err = openMark(dir); err != nil {
		return nil, err
	}
	if err := errors.Join(checkEmpty(dir, &s.mark), checkLogFile(s.path, &s.mark)); err != nil {
		return nil, err
	}
	// SQLite gives its other files the mode of this file.
	if s.file, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := s.file.Chmod(0o600); err != nil {
		return nil, err
	}
	if s.w, err = openWriter(s.path, &s.mark); err != nil {
		return nil, orDamage(tooLong(s.path, err))
	}
	s.readers.path = s.path
	if err := s.begin(dir); err != nil {
		return nil, orDamage(err)
	}
	return s, nil
}

// begin reads the lease, the commit order and the tail, compares them with the mark,
// and writes the mark of what it found. It empties the log, because a log that a crash
// left may have the end of a torn group behind its last frame.
func (s *store) begin(dir string) error {
	n, err := s.w.epoch.number()
	if err != nil {
		return err
	}
	s.leases, _ = journal.NewLeases(uint64(n), func(add journal.TreeMaker) error {
		if err := s.settle(); err != nil { // needs no lock, because Claim holds it
			return err
		}
		return s.readers.readTrees(add)
	})
	last, err := s.w.number(fmt.Sprintf("SELECT max((SELECT coalesce(max(id), 0) >> 32 FROM runs), coalesce((SELECT body FROM feed WHERE id = %d), 0))", highestRow))
	if err != nil {
		return err
	}
	s.pids.last.Store(last)
	if n == 1 || !s.mark.exists {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	if s.order, err = s.w.readOrder(); err != nil {
		return err
	}
	s.end.Store(s.order.end)
	if err := s.replay(); err != nil {
		return err
	}
	unswept, err := readPending(s.w.each)
	if err != nil {
		return err
	}
	a := audit{&s.mark, s.w, &s.readers, &s.tail, s.ends, unswept, s.order.end, s.end.Load()}
	s.total, s.mark.damage = a.run()
	if err := s.settle(); err != nil {
		return err
	}
	if err := s.w.run(emptyLog); err != nil {
		return err
	}
	s.mark.write(s.end.Load(), s.total)
	if err := errors.Join(s.mark.late, s.mark.file.Sync()); err != nil {
		return err
	}
	if s.mark.damage != nil {
		return nil
	}
	// The records are gone already. If their bytes cannot be erased now, the next
	// start or removal tries again.
	if err := s.Sweep(); !errors.Is(err, journal.ErrFull) {
		return err
	}
	return nil
}

// emptyLog copies the whole write-ahead log into the file and cuts the log to
// nothing. If another program reads the file for long, the log stays.
const emptyLog = "PRAGMA wal_checkpoint(TRUNCATE)"

// release closes the writer and the files, and releases the lock.
func (s *store) release() error {
	var err error
	if s.w != nil {
		err = s.w.close()
		s.w = nil
	}
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return errors.Join(err, s.mark.close(), s.lock.Close())
}

func openWriter(path string, m *mark) (*writer, error) {
	c, err := dial(path, writerPragmas)
	if err != nil {
		return nil, err
	}
	w := &writer{conn: c}
	err = w.setUp(m)
	if err == nil {
		m.index, err = os.Open(path + "-shm")
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return w, nil
}

// setUp takes the lease, and makes the tables in an empty file. Both happen in one
// transaction.
func (w *writer) setUp(m *mark) error {
	if err := w.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := w.migrate(m)
	var epoch int64
	if err == nil {
		epoch, err = w.number("PRAGMA user_version")
	}
	if err == nil {
		err = w.keepOrder(epoch)
	}
	if err == nil {
		err = w.beginUse(m)
	}
	if err == nil {
		err = w.setEpoch(epoch + 1)
	}
	if err != nil {
		return errors.Join(err, w.run("ROLLBACK"))
	}
	if err := w.run("COMMIT"); err != nil {
		return err
	}
	return w.prepareAll(map[**stmt]string{
		&w.begin:    "BEGIN IMMEDIATE",
		&w.commit:   "COMMIT",
		&w.rollback: "ROLLBACK",
		&w.epoch:    "PRAGMA user_version",
		&w.insert:   "INSERT INTO records(id, time, kind, call, row, tool, body) VALUES(?, ?, ?, ?, ?, ?, ?)",
		&w.setRun:   "INSERT OR REPLACE INTO runs(id, n, sum, low, high) VALUES(?, ?, ?, ?, ?)",
		&w.lastRun:  lastRun,
		&w.blob:     "INSERT INTO blobs(body) VALUES(?) RETURNING id",
		&w.name:     "INSERT OR IGNORE INTO names(key, blob) VALUES(?, ?)",
		&w.append:   "INSERT INTO tail(seq, sum, body) VALUES(?, ?, ?)",
		&w.cut:      "DELETE FROM tail WHERE seq <= ?",
		&w.setBlock: setBlock,
		&w.named:    "SELECT body FROM names JOIN blobs ON blobs.id = names.blob WHERE key = ?",
	})
}

// inUse is the row of the table feed that is 1 while the journal is open and after a
// crash: the file may be incomplete then without journal.db-wal.
const inUse = -1

// beginUse notes that the journal is open. It refuses a journal.db that was copied
// without the other files while it was open or after a crash.
func (w *writer) beginUse(m *mark) error {
	n, err := w.number(fmt.Sprintf("SELECT coalesce((SELECT body FROM feed WHERE id = %d), 0)", inUse))
	if err == nil && n != 0 && !m.exists {
		err = &journal.Damage{Why: fmt.Sprintf("%s is missing, and %s was in use when it was lost or copied: the latest records may be missing too", markFile, file),
			Advice: fmt.Sprintf("restore all files of the journal together: %s, %s-wal and %s", file, file, markFile)}
	}
	if err == nil {
		err = m.begin()
	}
	if err != nil {
		return err
	}
	return w.setInUse(1)
}

func (w *writer) setInUse(n int) error {
	return w.run(fmt.Sprintf("INSERT OR REPLACE INTO feed(id, body) VALUES(%d, %d)", inUse, n))
}

func (w *writer) migrate(m *mark) error {
	id, err := w.number("PRAGMA application_id")
	if err != nil {
		return err
	}
	n, err := w.number("SELECT count(*) FROM sqlite_schema")
	switch {
	case err != nil:
		return err
	case id == applicationID:
		return nil
	case id>>8 == applicationID>>8:
		return fmt.Errorf("its tables are of version %d, expected %d: another version of Kern has written it",
			id&0xff, applicationID&0xff)
	case n != 0 || id != 0:
		return errors.New("it is a database of another program")
	case m.end > 0:
		return &journal.Damage{Why: fmt.Sprintf("%s has no tables, and %s counts %d records", file, markFile, m.end)}
	}
	return w.run(fmt.Sprintf("PRAGMA application_id=%d; %s", applicationID, schema))
}

// rowID returns the row of a record. All records of a process have adjacent rows, in
// order.
func rowID(pid abi.Pid, n uint64) int64 { return int64(pid)<<32 | int64(n) }

// fits returns the reason if a record has no rowID, or "".
func fits(r *abi.Record) string {
	switch {
	case r.Pid < 0 || r.Pid > math.MaxInt32:
		return fmt.Sprintf("its pid is not from 0 to %d", math.MaxInt32)
	case r.N > math.MaxUint32:
		return fmt.Sprintf("its number is above %d", uint32(math.MaxUint32))
	}
	return ""
}

// A load is a batch that is ready for its transaction.
type load struct {
	entries []format.Entry
	blobs   []packet
	ends    map[abi.Pid]run // the last run of each process after the batch
	full    []fullRun       // runs that the batch completes
	frame   frame           // the row for the tail
	total   total           // of the store after the batch
	removal *removal        // nil: the batch removes nothing
}

// A fullRun is a complete run, which never changes again.
type fullRun struct {
	pid abi.Pid
	run run
}

// Append implements [journal.Store]. It writes bodies and packs blobs before it
// takes the lock.
func (s *store) Append(l journal.Lease, batch []abi.Record) error {
	ld, err := s.load(batch)
	if err == nil {
		ld.removal, err = removalOf(batch, s.Records)
	}
	if err != nil || len(batch) == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return journal.ErrClosed
	}
	stored, err := s.leases.Check(l, batch)
	if err != nil {
		return err
	}
	if s.mark.damage != nil {
		return s.mark.damage
	}
	if s.sick != nil {
		if s.sick = s.settle(); s.sick != nil {
			return orFull(s.sick)
		}
	}
	if err := s.mark.retry(); err != nil {
		return orFull(err)
	}
	for i := range batch {
		s.keeper.keep(&batch[i])
	}
	if err := s.chain(ld); err != nil {
		return err
	}
	if err := s.transact(ld); err != nil {
		return orFull(err)
	}
	stored()
	s.total = ld.total
	s.mark.write(s.end.Load(), s.total)
	s.remember(ld)
	if s.tail.count >= maxTail {
		// The batch is durable, so an error here is not the error of this Append. The
		// next Append settles again, and returns the error if that fails too.
		s.sick = s.settle()
	}
	return nil
}

func orFull(err error) error {
	if full(err) {
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	}
	return err
}

// load checks a batch, writes its bodies and packs its blobs.
func (s *store) load(batch []abi.Record) (*load, error) {
	ld := &load{entries: make([]format.Entry, len(batch)), ends: make(map[abi.Pid]run, min(len(batch), runLen))}
	buf := make([]byte, 0, 256*len(batch))
	var blobs []abi.Blob
	for i := range batch {
		r := &batch[i]
		bad := func(why string, args ...any) error {
			return &journal.BadRecord{Pid: r.Pid, N: r.N, Why: fmt.Sprintf(why, args...)}
		}
		if why := fits(r); why != "" {
			return nil, bad("%s", why)
		}
		e := format.NewEntry(r, buf)
		if len(e.Body) > journal.MaxBody {
			return nil, bad("it has %d bytes, more than %d", len(e.Body), journal.MaxBody)
		}
		// The body keeps room for its check. The next body begins behind that room.
		n := len(e.Body)
		buf = nil
		if room := e.Body[:cap(e.Body)]; len(room) > n+checkLen {
			buf = room[n+checkLen:][:0]
			e.Body = room[: n : n+checkLen]
		}
		ld.entries[i] = e
		for _, b := range r.Blobs {
			if len(b.Bytes) > journal.MaxBlob {
				return nil, bad("a blob has %d bytes, more than %d", len(b.Bytes), journal.MaxBlob)
			}
			if abi.HashOf(b.Bytes) != b.Hash {
				return nil, bad("a blob is named %s and has another hash", b.Hash)
			}
		}
		blobs = append(blobs, r.Blobs...)
	}
	if len(blobs) > 0 {
		ld.blobs = packAll(s.unknown(blobs))
	}
	return ld, nil
}

// unknown leaves out the blobs that are certainly stored already.
func (s *store) unknown(blobs []abi.Blob) []abi.Blob {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(blobs, func(b abi.Blob) bool {
		_, ok := s.known[b.Hash]
		return ok
	})
}

// chain links every record of a load to the one before it.
func (s *store) chain(ld *load) error {
	ld.total = s.total
	for i := range ld.entries {
		e := &ld.entries[i]
		r, ok := ld.ends[e.Pid]
		if !ok {
			var err error
			if r, err = s.lastRunOf(e.Pid); err != nil {
				return err
			}
			ld.total.remove(r.sum)
		}
		if e.N != r.n+1 {
			return &journal.BadRecord{Pid: e.Pid, N: e.N, Why: fmt.Sprintf("expected number %d", r.n+1)}
		}
		if r.n > 0 && r.n%runLen == 0 {
			ld.full = append(ld.full, fullRun{e.Pid, r})
		}
		r.extend(e)
		ld.ends[e.Pid] = r
		e.Body = append(e.Body, r.sum[:checkLen]...)
	}
	for _, r := range ld.ends {
		ld.total.add(r.sum)
	}
	if ld.removal != nil {
		for pid := range ld.removal.pids {
			r, err := s.lastRunOf(pid)
			if err != nil {
				return err
			}
			ld.total.remove(r.sum)
			ld.removal.gone.add(r.sum)
		}
	}
	return nil
}

// lastRunOf returns the last run of a process, or the zero run for a new process.
func (s *store) lastRunOf(pid abi.Pid) (run, error) {
	if r, ok := s.ends[pid]; ok {
		return r, nil
	}
	return readEnd(s.w.lastRun, pid)
}

// maxDirect is the largest number of processes of a batch that goes straight to the
// table records. A batch of more goes to the tail, because each process has pages of
// its own and SQLite writes every touched page whole. A tail in use stays in use
// until calm small batches came in a row, because small batches also come between
// large ones.
const (
	maxDirect = 4
	calm      = 16
)

// direct reports whether a load goes straight to the table records.
func (s *store) direct(ld *load) bool {
	if len(ld.ends) > maxDirect {
		s.small = 0
		return false
	}
	s.small++
	return s.tail.count == 0 || s.small > calm
}

// transact stores a load in one transaction, whole or not at all.
func (s *store) transact(ld *load) error {
	direct := s.direct(ld) || ld.removal != nil
	next := s.order
	if direct {
		s.tail.addOrder(&next)
		next.addEntries(ld.entries)
	} else {
		ld.frame = s.tail.frame(ld.entries)
	}
	err := s.w.transaction(func(w *writer) error {
		// Another epoch in the file means that a later owner has the journal.
		if n, err := w.epoch.number(); err != nil || uint64(n) != s.leases.Newest() {
			return errors.Join(err, journal.ErrStale)
		}
		for _, p := range ld.blobs {
			if err := w.storeBlob(p); err != nil {
				return err
			}
		}
		if !direct {
			return w.append.exec(ld.frame.seq, ld.frame.sum[:], ld.frame.body)
		}
		// The tail is settled first, because its records are older than this batch.
		if err := s.tail.settle(w, s.ends); err != nil {
			return err
		}
		if err := next.write(w); err != nil {
			return err
		}
		err := w.place(ld.entries, ld.full, ld.ends)
		if err != nil || ld.removal == nil {
			return err
		}
		if err = w.remove(ld.removal, s.end.Load()+uint64(len(ld.entries))); err == nil {
			next, err = w.readOrder()
		}
		return err
	})
	if err != nil {
		return err
	}
	if direct {
		s.order = next
		s.tail.clear()
	} else {
		s.tail.add(ld, s.order.end)
	}
	s.end.Add(uint64(len(ld.entries)))
	return nil
}

// transaction runs fn in a transaction, and rolls back if fn or the commit fails.
func (w *writer) transaction(fn func(*writer) error) error {
	err := w.begin.exec()
	if err == nil {
		err = fn(w)
	}
	if err == nil {
		err = w.commit.exec()
	}
	if err != nil {
		// After some failures SQLite has ended the transaction already. The rollback
		// fails then, and its error means nothing.
		w.rollback.exec()
	}
	return err
}

// place inserts records into the table records, and their runs into runs.
func (w *writer) place(entries []format.Entry, full []fullRun, ends map[abi.Pid]run) error {
	for i := range entries {
		if err := w.placeEntry(&entries[i]); err != nil {
			return err
		}
	}
	for i := range full {
		if err := w.placeRun(full[i].pid, &full[i].run); err != nil {
			return err
		}
	}
	for pid, r := range ends {
		if err := w.placeRun(pid, &r); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) placeEntry(e *format.Entry) error {
	var row, tool driver.Value
	if e.Row != "" {
		row = e.Row
	}
	if e.Tool != "" {
		tool = e.Tool
	}
	err := w.insert.exec(rowID(e.Pid, e.N), e.Time, int64(e.Kind), int64(e.Call), row, tool, e.Body)
	if code(err) == sqlite3.SQLITE_CONSTRAINT {
		return &journal.Damage{Pid: e.Pid, N: e.N, Why: "a row that nobody wrote stands in its place"}
	}
	return err
}

func (w *writer) placeRun(pid abi.Pid, r *run) error {
	var low, high driver.Value
	if r.answered {
		low, high = r.low, r.high
	}
	return w.setRun.exec(rowID(pid, r.first), int64(r.n), r.sum[:], low, high)
}

// remember caches the last runs and the blobs of a stored load, so that the next
// batch need not look them up.
func (s *store) remember(ld *load) {
	if len(s.ends) > maxEnds && s.tail.count == 0 {
		clear(s.ends)
	}
	for pid, r := range ld.ends {
		s.ends[pid] = r
		s.pids.raise(pid)
	}
	if ld.removal != nil {
		for pid := range ld.removal.pids {
			delete(s.ends, pid)
		}
	}
	if len(s.known) > maxKnown {
		clear(s.known)
	}
	for _, p := range ld.blobs {
		s.known[p.hash] = struct{}{}
	}
}

// Close implements [journal.Store]. It waits for readers, and settles the tail.
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return nil
	}
	err := errors.Join(s.readers.close(), s.settle())
	err = errors.Join(err, s.w.transaction(func(w *writer) error { return w.setInUse(0) }))
	// The last connection to close removes the empty log.
	err = errors.Join(err, s.w.run(emptyLog))
	s.mark.write(s.end.Load(), s.total)
	return errors.Join(err, s.mark.late, s.mark.file.Sync(), s.release())
}
