package sqlite

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"

	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/format"
)

// markFile says how far the journal was acknowledged. It begins with "kernmark". The
// salts of the write-ahead log, the number of its frames and their checksum follow.
// Then come the number of records, the total of the processes' last sums, and four
// bytes of the SHA-256 of all that. Numbers are big-endian.
//
// It is written after each group is durable and is not synced then, so it costs a
// group no second sync. A kill leaves it exact. A power failure may leave an older
// one, which is still true because it says "at least". It is synced whenever the log
// begins again, and when the journal is opened and closed.
const markFile = "journal.mark"

const markMagic = "kernmark"

const markSize = len(markMagic) + 8 + 4 + 8 + 8 + len(total{})*8 + 4

// indexHeader is the part of journal.db-shm that says where the log ends.
const indexHeader = 48

// A mark is how far a journal was acknowledged.
type mark struct {
	exists bool
	salts  [8]byte // of the write-ahead log
	frames uint32  // in the log
	sum    walSum  // of the last of these frames
	end    uint64  // records
	total  total   // of the processes' last sums

	file   *os.File // locked, because a person may remove the file lock
	index  *os.File // journal.db-shm; open as long as the writer, because closing it releases SQLite's locks
	noLog  bool     // the log was missing or empty when the journal was opened
	damage error    // the records are not those that the mark counts
	late   error    // the last write failed
}

// openMark opens, locks and reads the mark of a directory.
func openMark(dir string) (m mark, err error) {
	name := filepath.Join(dir, markFile)
	if m.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return m, err
	}
	ok, err := tryLock(m.file)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s is held by another process, and somebody removed or replaced the file %s", journal.ErrLocked, name, lockFile)
	}
	var b [markSize + 1]byte
	n := 0
	if err == nil {
		if n, err = m.file.ReadAt(b[:], 0); err == io.EOF {
			err = nil
		}
	}
	if err == nil && n > 0 {
		err = m.read(b[:n])
	}
	if err != nil {
		return m, errors.Join(err, m.file.Close())
	}
	return m, nil
}

func (m *mark) read(b []byte) error {
	at := markSize - 4
	if len(b) != markSize || string(b[:len(markMagic)]) != markMagic || !bytes.Equal(b[at:], markCheck(b[:at])) {
		return &journal.Damage{Why: markFile + " is not what was written",
			Advice: "restore the directory from a backup; nothing was changed"}
	}
	b = b[len(markMagic):]
	m.exists = true
	m.salts, b = [8]byte(b), b[8:]
	m.frames, b = binary.BigEndian.Uint32(b), b[4:]
	m.sum, b = readSum(b), b[8:]
	m.end, b = binary.BigEndian.Uint64(b), b[8:]
	for i := range m.total {
		m.total[i], b = binary.BigEndian.Uint64(b), b[8:]
	}
	return nil
}

func markCheck(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:4]
}

func (m *mark) bytes() []byte {
	b := append(make([]byte, 0, markSize), markMagic...)
	b = append(b, m.salts[:]...)
	b = binary.BigEndian.AppendUint32(b, m.frames)
	b = binary.BigEndian.AppendUint32(b, m.sum[0])
	b = binary.BigEndian.AppendUint32(b, m.sum[1])
	b = binary.BigEndian.AppendUint64(b, m.end)
	for _, n := range m.total {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, markCheck(b)...)
}

// begin prepares the mark for a new log, whose salts are random. It runs before the
// first commit, so a kill before the next write finds a mark that fits the log.
func (m *mark) begin() error {
	if m.exists && !m.noLog {
		return nil
	}
	m.salts, m.frames, m.sum = [8]byte{}, 0, walSum{}
	_, err := m.file.WriteAt(m.bytes(), 0)
	return errors.Join(err, m.file.Sync())
}

// expects reports whether a log with these salts can follow the mark. Zero salts
// expect a new log. SQLite counts the first salt up when it begins a log again.
func (m *mark) expects(salts [8]byte) bool {
	return salts == m.salts || m.salts == [8]byte{} || binary.BigEndian.Uint32(salts[:]) == binary.BigEndian.Uint32(m.salts[:])+1
}

// write notes what is durable now: where the log ends, and the records. The caller
// has committed and synced it. The mark of a damaged journal keeps what it says about
// records, so that the next open finds the same damage.
func (m *mark) write(end uint64, all total) {
	if m.damage == nil {
		m.end, m.total = end, all
	}
	m.late = m.store(false)
}

// retry writes the mark again if the last write failed.
func (m *mark) retry() error {
	if m.late != nil {
		m.late = m.store(true)
	}
	return m.late
}

func (m *mark) store(sync bool) error {
	var h [indexHeader]byte
	if _, err := m.index.ReadAt(h[:], 0); err != nil {
		return err
	}
	salts := [8]byte(h[32:40])
	sync = sync || !m.exists || salts != m.salts
	m.exists, m.salts, m.frames = true, salts, binary.NativeEndian.Uint32(h[16:])
	m.sum = walSum{binary.NativeEndian.Uint32(h[24:]), binary.NativeEndian.Uint32(h[28:])}
	_, err := m.file.WriteAt(m.bytes(), 0)
	if err == nil && sync {
		err = m.file.Sync()
	}
	return err
}

func (m *mark) close() error {
	var err error
	for _, f := range []*os.File{m.index, m.file} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// A total is the sum of the last sums of all processes as numbers of 256 bits. It
// does not depend on an order, and a batch changes it by the sums of its processes.
type total [4]uint64

func (t *total) add(s format.Sum) {
	var carry uint64
	for i := 3; i >= 0; i-- {
		t[i], carry = bits.Add64(t[i], binary.BigEndian.Uint64(s[8*i:]), carry)
	}
}

func (t *total) remove(s format.Sum) {
	var borrow uint64
	for i := 3; i >= 0; i-- {
		t[i], borrow = bits.Sub64(t[i], binary.BigEndian.Uint64(s[8*i:]), borrow)
	}
}

// checkEmpty refuses to begin a new journal where an old one was.
func checkEmpty(dir string, m *mark) error {
	if i, err := os.Stat(filepath.Join(dir, file)); err == nil && i.Size() > 0 {
		return nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var traces []string
	if m.end > 0 {
		traces = append(traces, fmt.Sprintf("%s, which counts %d records", markFile, m.end))
	}
	for _, name := range []string{file + "-wal", "gateway.addr"} {
		if i, err := os.Stat(filepath.Join(dir, name)); err == nil && i.Size() > 0 {
			traces = append(traces, name)
		}
	}
	if len(traces) == 0 {
		return nil
	}
	return &journal.Damage{Why: fmt.Sprintf("%s is missing or empty, but %s has files of an earlier journal: %s", file, dir, list(traces)),
		Advice: "restore " + file + " from a backup; to begin a new journal here, first move these files away: " + file + "*, " + markFile + ", gateway.addr"}
}

func list(words []string) string {
	text := words[0]
	for _, w := range words[1:] {
		text += "; " + w
	}
	return text
}
