// Package wal is the log that decides what is committed.
package wal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/publish"
)

// The log decides what is committed. It begins with logMagic, then records:
//
//	length   uint32, big endian; 0 ends the log
//	sum      uint32, CRC-32C of the length and the body
//	body     a record as JSON
//
// Room is written as zeros ahead of the records, so that appending one changes
// no metadata and costs one fdatasync. Each record is synced before the next
// is written after it; a record that does not read back is therefore a torn tail,
// which is cut, unless a whole record follows it: then the log is damaged and
// refuses to open. Zeros never read as a record.
type Log struct {
	name string
	f    *os.File
	off  int64 // end of the last record
	room int64 // zeros are written up to here

	next *Record // written and not synced yet: it ends at end
	end  int64
	put  int64 // nothing but zeros lies beyond

	mu    sync.Mutex // guards state, which is also read by who does not hold the lock
	state State
}

const (
	logMagic = "kernlog1"
	logRoom  = 256 << 10
	logFull  = 1 << 20 // a longer log is written anew
)

// A Record is one step of one commit.
type Record struct {
	Kind string `json:"kind"` // head, intent, seal, undone
	git.Head
	Intent *Intent `json:"intent,omitempty"`
}

// An Intent says everything that recovery needs to finish a commit or to take
// it back.
type Intent struct {
	Note  git.Note     `json:"note"`
	Auto  bool         `json:"auto,omitempty"` // nobody decides but the log: not sealed means undone
	Boot  string       `json:"boot,omitempty"` // of the machine, while it was published
	Slots string       `json:"slots"`          // the transaction's directory below scratch
	Pack  string       `json:"pack,omitempty"`
	Ops   []publish.Op `json:"ops"`
}

// State is the state that the records add up to.
type State struct {
	git.Head
	Doubt *Record // the intent that is neither sealed nor undone
	Last  *Record // the intent that was sealed last, if nobody else decided it
}

// Now is the state.
func (l *Log) Now() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Pending is the intent in doubt, or nil.
func (l *Log) Pending() *Record { return l.Now().Doubt }

func (s *State) apply(r Record) {
	switch r.Kind {
	case "head":
		s.Head, s.Doubt, s.Last = r.Head, nil, nil
	case "intent":
		s.Doubt, s.Last = &r, nil
	case "seal":
		s.Last = nil
		if s.Doubt != nil && s.Doubt.Intent.Auto {
			s.Last = s.Doubt
		}
		s.Head, s.Doubt = r.Head, nil
	case "undone":
		s.Doubt = nil
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func frame(r Record) ([]byte, error) {
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

// readFrame reads the record at off; n is 0 at the end of the log, negative
// for one that does not read back.
func readFrame(b []byte) (r Record, n int) {
	if len(b) < 8 {
		for _, c := range b {
			if c != 0 {
				return r, -1
			}
		}
		return r, 0
	}
	size := binary.BigEndian.Uint32(b)
	if size == 0 && binary.BigEndian.Uint32(b[4:]) == 0 {
		for _, c := range b {
			if c != 0 {
				return r, -1
			}
		}
		return r, 0
	}
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

// Open reads the log. The workspace lock is held when repair is set: a torn
// tail is then cut.
func Open(name string, repair bool) (*Log, error) {
	l := &Log{name: name}
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
	if torn && repair {
		return l, l.Rewrite()
	}
	return l, nil
}

// read folds the records after off and tells whether a torn one follows.
func (l *Log) read() (torn bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	for {
		r, n := readFrame(b)
		if n == 0 {
			return false, nil
		}
		if n < 0 {
			return true, l.tail(b)
		}
		l.state.apply(r)
		l.off, b = l.off+int64(n), b[n:]
	}
}

// tail tells a torn tail from damage: after damage, more records follow.
func (l *Log) tail(b []byte) error {
	for i := 1; i+8 < len(b); i++ {
		if b[i+8] == '{' {
			if _, n := readFrame(b[i:]); n > 0 {
				return fsys.Errorf(fsys.Damaged, l.name, "the record at byte %d does not read back, and one at %d follows it", l.off, l.off+int64(i))
			}
		}
	}
	return nil
}

// Append makes r last, then part of the state.
func (l *Log) Append(r Record) error {
	if err := l.Put(r); err != nil {
		return err
	}
	return l.Sync()
}

// Put writes r where it may or may not survive a crash, until Sync makes it
// last. What was put before and not synced is overwritten.
func (l *Log) Put(r Record) error {
	b, err := frame(r)
	if err != nil {
		return err
	}
	end := l.off + int64(len(b))
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
	if l.put > end { // zeros over what is longer and was never synced
		b = append(b, make([]byte, l.put-end)...)
	}
	l.put = max(l.put, end)
	if _, err := l.f.WriteAt(b, l.off); err != nil {
		return err
	}
	l.next, l.end = &r, end
	return nil
}

// Sync makes what was put last, then part of the state.
func (l *Log) Sync() error {
	if err := fsys.Datasync(l.f); err != nil {
		return err
	}
	l.off = l.end
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.apply(*l.next)
	return nil
}

// Rewrite puts a new log in place that holds the state and nothing else.
func (l *Log) Rewrite() error {
	b := []byte(logMagic)
	head, err := frame(Record{Kind: "head", Head: l.state.Head})
	if err != nil {
		return err
	}
	b = append(b, head...)
	if l.state.Doubt != nil {
		p, err := frame(*l.state.Doubt)
		if err != nil {
			return err
		}
		b = append(b, p...)
	}
	end := int64(len(b))
	b = append(b, make([]byte, logRoom)...)
	if err := fsys.Replace(l.name, b, 0o600, true); err != nil {
		return err
	}
	f, err := os.OpenFile(l.name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if l.f != nil {
		l.f.Close()
	}
	l.f, l.off, l.room = f, end, int64(len(b))
	return nil
}

// Follow reads what another process wrote since, and tells whether it did.
func (l *Log) Follow() (bool, error) {
	here, err := l.f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(l.name)
	if err != nil {
		return false, err
	}
	if !os.SameFile(here, there) {
		n, err := Open(l.name, true)
		if err != nil {
			return false, err
		}
		l.f.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.f, l.off, l.room, l.state = n.f, n.off, n.room, n.state
		return true, nil
	}
	var head [8]byte // zeros: nothing was written since, and the room need not be read
	if n, err := l.f.ReadAt(head[:], l.off); err == nil && n == len(head) && head == [8]byte{} {
		return false, nil
	}
	was := l.off
	torn, err := l.read()
	if err == nil && torn {
		err = l.Rewrite()
	}
	return l.off != was || torn, err
}

func (l *Log) Close() error { return l.f.Close() }

// Full tells that the log is long enough to be written anew.
func (l *Log) Full() bool { return l.off > logFull }
