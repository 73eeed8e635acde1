// Package wal is the log that decides what is committed: records that are
// synced one after the other, read back after a crash, and folded into a state.
package wal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Log holds records of type R, which are written as JSON. The file begins with
// logMagic, then come the records:
//
//	length   uint32, big endian; 0 ends the log
//	sum      uint32, CRC-32C of the length and the body
//	body     a record as JSON
//
// The log writes zeros ahead of the records. Appending a record then changes no
// metadata and costs one fdatasync. Each record is synced before the next one is
// written after it. So a record that does not read back is a torn tail, which is
// cut, unless a whole record follows it: then the log is damaged, and Open
// refuses it. Zeros never read as a record.
type Log[R any] struct {
	name  string
	state State[R]
	f     *os.File
	off   int64 // end of the last record
	room  int64 // zeros are written up to here

	next *R // written and not yet synced; it ends at end
	end  int64
	put  int64 // only zeros lie beyond
}

// State is what the records add up to.
type State[R any] interface {
	// Apply adds records, all in one step for concurrent readers of the state.
	Apply(records ...R)
	// Snapshot returns the records that lead to the state from nothing.
	Snapshot() []R
}

const (
	logMagic = "kernlog1"
	logRoom  = 256 << 10
	logFull  = 1 << 20 // a longer log is rewritten
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func frame[R any](r R) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 8, 8+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body)))
	sum := crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, body)
	binary.BigEndian.PutUint32(b[4:], sum)
	return append(b, body...), nil
}

// readFrame reads the record at the start of b. n is its length, 0 at the end of
// the log, and negative if the record does not read back.
func readFrame[R any](b []byte) (r R, n int) {
	// Only zeros may follow the last record. Anything else is the start of a torn one.
	if len(b) < 8 {
		for _, c := range b {
			if c != 0 {
				return r, -1
			}
		}
		return r, 0
	}
	size := binary.BigEndian.Uint32(b)
	// A torn write may leave zeros first and bytes later, so the end must be all zeros.
	if size == 0 && binary.BigEndian.Uint32(b[4:]) == 0 {
		for _, c := range b {
			if c != 0 {
				return r, -1
			}
		}
		return r, 0
	}
	// A torn length may be any number, so it is checked before it is used.
	if uint64(size) > uint64(len(b)-8) {
		return r, -1
	}
	body := b[8 : 8+size]
	sum := crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, body)
	if sum != binary.BigEndian.Uint32(b[4:]) || json.Unmarshal(body, &r) != nil {
		return r, -1
	}
	return r, 8 + int(size)
}

// Open reads the log into state, or creates it. With repair, a torn tail is cut;
// the caller then holds the lock of the workspace.
func Open[R any](name string, repair bool, state State[R]) (*Log[R], error) {
	l := &Log[R]{name: name, state: state}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return l, l.Rewrite()
	}
	if err != nil {
		return nil, err
	}
	l.f = f
	torn, err := l.read()
	if err != nil {
		f.Close()
		return nil, err
	}
	// Rewriting cuts the tail: a record appended after torn bytes could never be read.
	if torn && repair {
		return l, l.Rewrite()
	}
	return l, nil
}

// read applies the records after off, and reports whether a torn one follows.
func (l *Log[R]) read() (torn bool, err error) {
	fi, err := l.f.Stat()
	if err != nil {
		return false, err
	}
	b := make([]byte, fi.Size()-l.off)
	if _, err := l.f.ReadAt(b, l.off); err != nil && err != io.EOF {
		return false, err
	}
	l.room = fi.Size()
	if l.off == 0 {
		if len(b) < len(logMagic) || string(b[:len(logMagic)]) != logMagic {
			return false, fsys.Errorf(fsys.Damaged, l.name, "expected a log of commits; it begins otherwise")
		}
		l.off, b = int64(len(logMagic)), b[len(logMagic):]
	}
	var records []R
	// Also after an error, the state must agree with off.
	defer func() { l.state.Apply(records...) }()
	for {
		r, n := readFrame[R](b)
		if n == 0 {
			return false, nil
		}
		if n < 0 {
			return true, l.checkTail(b)
		}
		records = append(records, r)
		l.off, b = l.off+int64(n), b[n:]
	}
}

// checkTail returns an error if a whole record follows the broken one, because
// then the log is damaged and its tail is not merely torn.
func (l *Log[R]) checkTail(b []byte) error {
	for i := 1; i+8 < len(b); i++ {
		// Every record is a JSON object, so the cheap test saves most sums.
		if b[i+8] == '{' {
			if _, n := readFrame[R](b[i:]); n > 0 {
				return fsys.Errorf(fsys.Damaged, l.name, "the record at byte %d does not read back, and one at %d follows it", l.off, l.off+int64(i))
			}
		}
	}
	return nil
}

// Append writes r, syncs it, and then applies it to the state.
func (l *Log[R]) Append(r R) error {
	if err := l.Put(r); err != nil {
		return err
	}
	return l.Sync()
}

// Put writes r without a sync: r may or may not survive a crash until Sync
// returns. Put overwrites an earlier record that was not synced.
func (l *Log[R]) Put(r R) error {
	b, err := frame(r)
	if err != nil {
		return err
	}
	end := l.off + int64(len(b))
	// Zeros are synced ahead, so that appending changes no metadata and one fdatasync is enough.
	if end > l.room {
		n := int64(len(b)) + logRoom
		if _, err := l.f.WriteAt(make([]byte, n), l.off); err != nil {
			return err
		}
		if err := l.f.Sync(); err != nil {
			return err
		}
		l.room = l.off + n
	}
	if l.put > end { // zeros over a longer record that was never synced
		b = append(b, make([]byte, l.put-end)...)
	}
	l.put = max(l.put, end)
	if _, err := l.f.WriteAt(b, l.off); err != nil {
		return err
	}
	l.next, l.end = &r, end
	return nil
}

// Sync makes the record of the last Put durable, then applies it to the state.
func (l *Log[R]) Sync() error {
	if err := fsys.Datasync(l.f); err != nil {
		return err
	}
	l.off = l.end
	l.state.Apply(*l.next)
	return nil
}

// Rewrite replaces the log by one that holds only the snapshot of the state.
func (l *Log[R]) Rewrite() error {
	b := []byte(logMagic)
	for _, r := range l.state.Snapshot() {
		f, err := frame(r)
		if err != nil {
			return err
		}
		b = append(b, f...)
	}
	end := int64(len(b))
	b = append(b, make([]byte, logRoom)...)
	if err := fsys.Replace(l.name, b, 0o600, true); err != nil {
		return err
	}
	// The old descriptor would still write into the file that was replaced.
	f, err := os.OpenFile(l.name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if l.f != nil {
		l.f.Close()
	}
	l.f, l.off, l.room, l.put = f, end, int64(len(b)), end
	return nil
}

// Follow reads the records that another process appended since the last look, and
// reports whether there were any.
func (l *Log[R]) Follow() (bool, error) {
	here, err := l.f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(l.name)
	if err != nil {
		return false, err
	}
	if !os.SameFile(here, there) {
		// Another process rewrote the log. The new file begins with a snapshot,
		// so reading it from the start gives the whole state.
		n, err := Open(l.name, true, l.state)
		if err != nil {
			return false, err
		}
		l.f.Close()
		l.f, l.off, l.room, l.put = n.f, n.off, n.room, n.put
		return true, nil
	}
	var head [8]byte // zeros: no new record, so the room need not be read
	if n, err := l.f.ReadAt(head[:], l.off); err == nil && n == len(head) && head == [8]byte{} {
		return false, nil
	}
	was := l.off
	// The caller holds the lock, so a torn tail belongs to a dead writer and may be cut.
	torn, err := l.read()
	if err == nil && torn {
		err = l.Rewrite()
	}
	return l.off != was || torn, err
}

func (l *Log[R]) Close() error { return l.f.Close() }

// Full reports whether the log is long enough to be rewritten.
func (l *Log[R]) Full() bool { return l.off > logFull }
