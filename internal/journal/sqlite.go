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

// What the header of the file says it is, and the version of the tables.
const (
	applicationID = 0x4b65726e // "Kern"
	tables        = 1
)

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
CREATE INDEX answers ON records(call) WHERE kind IN (3, 4);
CREATE TABLE heads(pid INTEGER PRIMARY KEY, n INTEGER NOT NULL, sum BLOB NOT NULL);
CREATE TABLE blobs(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE names(key INTEGER NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY(key, blob)) WITHOUT ROWID;
CREATE TABLE lease(epoch INTEGER NOT NULL);
CREATE VIEW log AS SELECT pid, n,
	strftime('%Y-%m-%dT%H:%M:%S', time / 1000000000, 'unixepoch') || printf('.%09dZ', time % 1000000000) AS time,
	CASE kind WHEN 1 THEN 'spawned' WHEN 2 THEN 'began' WHEN 3 THEN 'ended' WHEN 4 THEN 'refused'
		WHEN 5 THEN 'signaled' WHEN 6 THEN 'mailed' WHEN 7 THEN 'asked' WHEN 8 THEN 'decided' WHEN 9 THEN 'changed'
		WHEN 10 THEN 'ending' WHEN 11 THEN 'exited' WHEN 12 THEN 'account' ELSE kind END AS kind,
	call, row, tool FROM records;
INSERT INTO lease VALUES(0);
`

// A user may look into the file with other programs while it is open. A
// program that writes is waited for, but not for ever.
const (
	writerPragmas = `PRAGMA busy_timeout=10000; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA fullfsync=1;
		PRAGMA checkpoint_fullfsync=1; PRAGMA cell_size_check=1; PRAGMA trusted_schema=0`
	readerPragmas = `PRAGMA busy_timeout=10000; PRAGMA query_only=1; PRAGMA cell_size_check=1; PRAGMA trusted_schema=0`
)

// head is the last record of a process.
type head struct {
	n   uint64
	sum Sum
}

// Bounds on what is kept in memory only to be faster.
const (
	maxHeads = 1 << 16
	maxKnown = 1 << 14
)

// sqliteStore is the embedded store.
type sqliteStore struct {
	path  string
	lock  *os.File
	lease Lease

	mu    sync.Mutex // for what follows: the one writer
	w     *writer
	heads map[abi.Pid]head
	known map[abi.Hash]struct{} // blobs that are surely there

	readers readers
}

// writer is the connection that writes, with its statements.
type writer struct {
	*conn
	begin, commit, rollback, epoch, insert, setHead, getHead, blob, name, named *stmt
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
	s := &sqliteStore{path: filepath.Join(dir, file), heads: map[abi.Pid]head{}, known: map[abi.Hash]struct{}{}}
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
	n, err := s.w.number("SELECT epoch FROM lease")
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
	if err := w.migrate(); err != nil {
		return errors.Join(err, w.run("ROLLBACK"))
	}
	if err := w.run("UPDATE lease SET epoch = epoch + 1; COMMIT"); err != nil {
		return err
	}
	return w.prepareAll(map[**stmt]string{
		&w.begin:    "BEGIN IMMEDIATE",
		&w.commit:   "COMMIT",
		&w.rollback: "ROLLBACK",
		&w.epoch:    "SELECT epoch FROM lease",
		&w.insert:   "INSERT INTO records(id, time, kind, call, row, tool, body) VALUES(?, ?, ?, ?, ?, ?, ?)",
		&w.setHead:  "INSERT OR REPLACE INTO heads(pid, n, sum) VALUES(?, ?, ?)",
		&w.getHead:  "SELECT n, sum FROM heads WHERE pid = ?",
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
	v, err := w.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	n, err := w.number("SELECT count(*) FROM sqlite_schema")
	switch {
	case err != nil:
		return err
	case id == applicationID && v == tables:
		return nil
	case id == applicationID:
		return fmt.Errorf("its tables are of version %d, expected %d: a newer Kern has written it", v, tables)
	case n != 0:
		return fmt.Errorf("it is a database of another program")
	}
	return w.run(fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d; %s", applicationID, tables, schema))
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
	heads   map[abi.Pid]head // as they will be
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
	ld := &load{entries: make([]Entry, len(batch)), heads: make(map[abi.Pid]head, len(batch))}
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
		// Behind the body stays room for the sum; the next body goes after it.
		n := len(e.Body)
		buf = nil
		if room := e.Body[:cap(e.Body)]; len(room) > n+len(Sum{}) {
			buf = room[n+len(Sum{}):][:0]
			e.Body = room[: n : n+len(Sum{})]
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
		h, ok := ld.heads[e.Pid]
		if !ok {
			var err error
			if h, err = s.head(e.Pid); err != nil {
				return err
			}
		}
		if e.N != h.n+1 {
			return &BadRecord{Pid: e.Pid, N: e.N, Why: fmt.Sprintf("expected number %d", h.n+1)}
		}
		h = head{e.N, e.Sum(h.sum)}
		ld.heads[e.Pid] = h
		e.Body = append(e.Body, h.sum[:]...)
	}
	return nil
}

func (s *sqliteStore) head(pid abi.Pid) (head, error) {
	if h, ok := s.heads[pid]; ok {
		return h, nil
	}
	return readHead(s.w.getHead, pid)
}

func readHead(get *stmt, pid abi.Pid) (head, error) {
	var dest [2]driver.Value
	ok, err := get.row(dest[:], int64(pid))
	if !ok || err != nil {
		return head{}, err
	}
	return asHead(pid, dest[0], dest[1])
}

func asHead(pid abi.Pid, n, sum driver.Value) (head, error) {
	count, ok1 := n.(int64)
	b, ok2 := sum.([]byte)
	if !ok1 || !ok2 || count < 1 || len(b) != len(Sum{}) {
		return head{}, &Damage{Pid: pid, Why: "its row in the table heads cannot be read"}
	}
	return head{uint64(count), Sum(b)}, nil
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
	for pid, h := range ld.heads {
		if err := w.setHead.exec(int64(pid), int64(h.n), h.sum[:]); err != nil {
			return err
		}
	}
	return nil
}

// blobKey is the part of a hash that is looked up. Two blobs may share it.
func blobKey(h abi.Hash) int64 { return int64(binary.BigEndian.Uint64(h[:])) }

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
	if len(s.heads) > maxHeads {
		clear(s.heads)
	}
	for pid, h := range ld.heads {
		s.heads[pid] = h
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
