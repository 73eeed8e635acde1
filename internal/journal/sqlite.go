package journal

import (
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/kern-run/kern/abi"
	sqlite3 "modernc.org/sqlite/lib"
)

// file is the name of the journal in its data directory.
const file = "journal.db"

// applicationID is in the header of the file: "Krn", and the version of the
// tables. The other number that SQLite keeps there for its users, user_version,
// is the epoch of the lease: it is read in every transaction, and there it costs
// no page of its own.
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
CREATE TABLE blobs(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE names(key INTEGER NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY(key, blob)) WITHOUT ROWID;
CREATE VIEW log AS SELECT pid, n,
	strftime('%Y-%m-%dT%H:%M:%S', time / 1000000000, 'unixepoch') || printf('.%09dZ', time % 1000000000) AS time,
	CASE kind WHEN 1 THEN 'spawned' WHEN 2 THEN 'began' WHEN 3 THEN 'ended' WHEN 4 THEN 'refused'
		WHEN 5 THEN 'signaled' WHEN 6 THEN 'mailed' WHEN 7 THEN 'asked' WHEN 8 THEN 'decided' WHEN 9 THEN 'changed'
		WHEN 10 THEN 'ending' WHEN 11 THEN 'exited' WHEN 12 THEN 'account' ELSE kind END AS kind,
	call, row, tool FROM records;
`

// A user may look into the file with other programs while it is open. A
// program that writes is waited for, but not for ever.
const (
	writerPragmas = `PRAGMA busy_timeout=10000; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA fullfsync=1;
		PRAGMA checkpoint_fullfsync=1; PRAGMA cell_size_check=1; PRAGMA trusted_schema=0`
	readerPragmas = `PRAGMA busy_timeout=10000; PRAGMA query_only=1; PRAGMA cell_size_check=1; PRAGMA trusted_schema=0`
)

// runLen is how many records of a process make a run.
const runLen = 64

// A run is up to runLen records of a process, one after the other: how many
// there are, what they and all before them come to, and which calls are
// answered in them. The last run of a process is where it goes on.
type run struct {
	first, n  uint64 // the first record, and the last one yet
	sum       Sum
	answered  bool // some call is
	low, high int64
}

// extend adds the next record.
func (r *run) extend(e *Entry) {
	if r.n%runLen == 0 {
		*r = run{first: r.n + 1, sum: r.sum}
	}
	r.n = e.N
	r.sum = e.Sum(r.sum)
	if c := int64(e.Call); e.Kind == abi.KindEnded || e.Kind == abi.KindRefused {
		if !r.answered {
			r.answered, r.low, r.high = true, c, c
		}
		r.low, r.high = min(r.low, c), max(r.high, c)
	}
}

// checkLen is how much of its sum stands behind a record's body. It only has to
// say which record of a run is wrong: that one is, the run's own sum says.
const checkLen = 4

// Bounds on what is kept in memory only to be faster.
const (
	maxEnds  = 1 << 16
	maxKnown = 1 << 14
)

// sqliteStore is the embedded store.
type sqliteStore struct {
	path  string
	lock  *os.File
	lease Lease

	mu    sync.Mutex // for what follows: the one writer
	w     *writer
	ends  map[abi.Pid]run       // the last runs
	known map[abi.Hash]struct{} // blobs that are surely there

	readers readers
}

// writer is the connection that writes, with its statements.
type writer struct {
	*conn
	begin, commit, rollback, epoch, insert, setRun, lastRun, blob, name, named *stmt
}

// OpenSQLite opens the journal in a directory, and makes both when they are
// not there. It fails with [ErrLocked] when somebody else has it open.
func OpenSQLite(dir string) (Store, Lease, error) {
	s, err := openSQLite(dir)
	if err != nil {
		return nil, Lease{}, fmt.Errorf("journal: open %s: %w", filepath.Join(dir, file), err)
	}
	return s, s.lease, nil
}

func openSQLite(dir string) (_ *sqliteStore, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &sqliteStore{path: filepath.Join(dir, file), ends: map[abi.Pid]run{}, known: map[abi.Hash]struct{}{}}
	if s.lock, err = lock(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	// SQLite gives its other files the mode of this one.
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return nil, err
	}
	if s.w, err = openWriter(s.path); err != nil {
		return nil, err
	}
	n, err := s.w.epoch.number()
	s.lease.Epoch = uint64(n)
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.w.close())
	}
	s.readers.path = s.path
	return s, nil
}

func openWriter(path string) (*writer, error) {
	c, err := dial(path, writerPragmas)
	if err != nil {
		return nil, err
	}
	w := &writer{conn: c}
	if err := w.prepare(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return w, nil
}

// prepare takes the lease, and makes the tables in an empty file: one
// transaction.
func (w *writer) prepare() error {
	if err := w.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := w.migrate()
	var epoch int64
	if err == nil {
		epoch, err = w.number("PRAGMA user_version")
	}
	if err != nil {
		return errors.Join(err, w.run("ROLLBACK"))
	}
	if err := w.run(fmt.Sprintf("PRAGMA user_version=%d; COMMIT", epoch+1)); err != nil {
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
		&w.name:     "INSERT INTO names(key, blob) VALUES(?, ?)",
		&w.named:    "SELECT body FROM names JOIN blobs ON blobs.id = names.blob WHERE key = ?",
	})
}

func (w *writer) migrate() error {
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
	}
	return w.run(fmt.Sprintf("PRAGMA application_id=%d; %s", applicationID, schema))
}

// rowID is where a record stands: processes one after the other, each in order.
func rowID(pid abi.Pid, n uint64) int64 { return int64(pid)<<32 | int64(n) }

// fits says why a record has no rowID.
func fits(r *abi.Record) string {
	switch {
	case r.Pid < 0 || r.Pid > math.MaxInt32:
		return fmt.Sprintf("its pid is not from 0 to %d", math.MaxInt32)
	case r.N > math.MaxUint32:
		return fmt.Sprintf("its number is above %d", uint32(math.MaxUint32))
	}
	return ""
}

// A packet is a blob made ready for its row.
type packet struct {
	hash abi.Hash
	body []byte
}

// A load is a batch made ready for its transaction.
type load struct {
	entries []Entry
	blobs   []packet
	ends    map[abi.Pid]run // as they will be
	full    []fullRun       // runs that end within the batch
}

type fullRun struct {
	pid abi.Pid
	run run
}

// Append implements [Store]. Writing bodies and packing blobs needs no lock.
func (s *sqliteStore) Append(l Lease, batch []abi.Record) error {
	ld, err := s.load(batch)
	if err != nil || len(batch) == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.w == nil:
		return ErrClosed
	case l != s.lease:
		return ErrStale
	}
	if err := s.chain(ld); err != nil {
		return err
	}
	if err := s.w.transact(s, ld); err != nil {
		if full(err) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		return err
	}
	s.remember(ld)
	return nil
}

func (s *sqliteStore) load(batch []abi.Record) (*load, error) {
	ld := &load{entries: make([]Entry, len(batch)), ends: make(map[abi.Pid]run, min(len(batch), 64))}
	buf := make([]byte, 0, 256*len(batch))
	for i := range batch {
		r := &batch[i]
		bad := func(why string) error { return &BadRecord{Pid: r.Pid, N: r.N, Why: why} }
		if why := fits(r); why != "" {
			return nil, bad(why)
		}
		e := NewEntry(r, buf)
		if len(e.Body) > maxBody {
			return nil, bad(fmt.Sprintf("it has %d bytes, more than %d", len(e.Body), maxBody))
		}
		// Behind the body stays room for the check; the next body goes after it.
		n := len(e.Body)
		buf = nil
		if room := e.Body[:cap(e.Body)]; len(room) > n+checkLen {
			buf = room[n+checkLen:][:0]
			e.Body = room[: n : n+checkLen]
		}
		ld.entries[i] = e
		for _, b := range r.Blobs {
			if len(b.Bytes) > maxBlob {
				return nil, bad(fmt.Sprintf("a blob has %d bytes, more than %d", len(b.Bytes), maxBlob))
			}
			if abi.HashOf(b.Bytes) != b.Hash {
				return nil, bad(fmt.Sprintf("a blob is named %s and has another hash", b.Hash))
			}
			ld.blobs = append(ld.blobs, packet{b.Hash, pack(b.Bytes)})
		}
	}
	return ld, nil
}

// chain links every record of a load to the one before it.
func (s *sqliteStore) chain(ld *load) error {
	for i := range ld.entries {
		e := &ld.entries[i]
		r, ok := ld.ends[e.Pid]
		if !ok {
			var err error
			if r, err = s.end(e.Pid); err != nil {
				return err
			}
		}
		if e.N != r.n+1 {
			return &BadRecord{Pid: e.Pid, N: e.N, Why: fmt.Sprintf("expected number %d", r.n+1)}
		}
		if ok && r.n%runLen == 0 {
			ld.full = append(ld.full, fullRun{e.Pid, r})
		}
		r.extend(e)
		ld.ends[e.Pid] = r
		e.Body = append(e.Body, r.sum[:checkLen]...)
	}
	return nil
}

// end is the last run of a process, or the zero run.
func (s *sqliteStore) end(pid abi.Pid) (run, error) {
	if r, ok := s.ends[pid]; ok {
		return r, nil
	}
	return readEnd(s.w.lastRun, pid)
}

// transact stores a load, or nothing.
func (w *writer) transact(s *sqliteStore, ld *load) error {
	if err := w.begin.exec(); err != nil {
		return err
	}
	err := w.store(s, ld)
	if err == nil {
		err = w.commit.exec()
	}
	if err != nil {
		// Some failures have ended the transaction already, and then there
		// is nothing to roll back.
		w.rollback.exec()
	}
	return err
}

func (w *writer) store(s *sqliteStore, ld *load) error {
	if n, err := w.epoch.number(); err != nil || uint64(n) != s.lease.Epoch {
		return errors.Join(err, ErrStale)
	}
	for _, p := range ld.blobs {
		if _, ok := s.known[p.hash]; ok {
			continue
		}
		if err := w.storeBlob(p); err != nil {
			return err
		}
	}
	for i := range ld.entries {
		e := &ld.entries[i]
		var row, tool driver.Value
		if e.Row != "" {
			row = e.Row
		}
		if e.Tool != "" {
			tool = e.Tool
		}
		err := w.insert.exec(rowID(e.Pid, e.N), e.Time, int64(e.Kind), int64(e.Call), row, tool, e.Body)
		switch code(err) {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
			return &BadRecord{Pid: e.Pid, N: e.N, Why: err.Error()}
		}
		if err != nil {
			return err
		}
	}
	for i := range ld.full {
		if err := w.storeRun(ld.full[i].pid, &ld.full[i].run); err != nil {
			return err
		}
	}
	for pid, r := range ld.ends {
		if err := w.storeRun(pid, &r); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) storeRun(pid abi.Pid, r *run) error {
	var low, high driver.Value
	if r.answered {
		low, high = r.low, r.high
	}
	return w.setRun.exec(rowID(pid, r.first), int64(r.n), r.sum[:], low, high)
}

// blobKey is the part of a hash that is looked up. Blobs may share it.
func blobKey(h abi.Hash) int64 { return int64(int32(binary.BigEndian.Uint32(h[:]))) }

func (w *writer) storeBlob(p packet) error {
	b, err := findBlob(w.named, p.hash)
	if err != nil || b != nil {
		return err
	}
	id, err := w.blob.number(p.body)
	if err != nil {
		return err
	}
	return w.name.exec(blobKey(p.hash), id)
}

// findBlob is nil when there is no blob of that name.
func findBlob(named *stmt, h abi.Hash) ([]byte, error) {
	rows, err := named.query(blobKey(h))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var dest [1]driver.Value
	var bad error
	for {
		switch err := rows.Next(dest[:]); err {
		case nil:
		case io.EOF:
			return nil, bad
		default:
			return nil, err
		}
		p, _ := dest[0].([]byte)
		b, err := unpack(p, h)
		if err == nil {
			return b, nil
		}
		bad = err
	}
}

// remember keeps what the next batch would otherwise look up.
func (s *sqliteStore) remember(ld *load) {
	if len(s.ends) > maxEnds {
		clear(s.ends)
	}
	for pid, r := range ld.ends {
		s.ends[pid] = r
	}
	if len(s.known) > maxKnown {
		clear(s.known)
	}
	for _, p := range ld.blobs {
		s.known[p.hash] = struct{}{}
	}
}

// Close implements [Store]. It waits for whoever reads.
func (s *sqliteStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return nil
	}
	err := s.readers.close()
	// The whole log goes into the file, and the last connection removes it.
	err = errors.Join(err, s.w.run("PRAGMA wal_checkpoint(TRUNCATE)"), s.w.close(), s.lock.Close())
	s.w = nil
	return err
}
