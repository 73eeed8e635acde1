package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kern-run/kern/internal/journal"
)

// Sizes in the write-ahead log of SQLite.
const (
	walHeader   = 32 // of the log
	frameHeader = 24 // of a frame, which is that and a page
)

// checkLog looks for damage in a write-ahead log before SQLite opens it. SQLite takes
// the first bad frame for the end of the log, and so reads damage as a shorter past.
//
// Each group is synced before the next is written. So a crash can tear the last group
// only, and at most one commit frame stands at or behind the first bad frame. The mark
// decides whether that group was acknowledged.
func checkLog(r io.Reader, m *mark) error {
	br := bufio.NewReaderSize(r, 1<<16)
	var head [walHeader]byte
	if n, err := io.ReadFull(br, head[:]); err != nil {
		return shortLog(head[:n], err)
	}
	w := walk{m: m, salts: [8]byte(head[16:24])}
	if !w.begin(head[:]) {
		return w.badHeader(head[:], br)
	}
	if m.exists && !m.expects(w.salts) {
		return logDamage("it is not the log of this journal.db, but one of another time or of another journal")
	}
	frame := make([]byte, frameHeader+w.page)
	for {
		switch _, err := io.ReadFull(br, frame); err {
		case nil:
			w.frame(frame)
		case io.EOF, io.ErrUnexpectedEOF:
			return w.result()
		default:
			return err
		}
	}
}

// checkLogFile is checkLog for the log of a journal, if the log exists.
func checkLogFile(path string, m *mark) error {
	f, err := os.Open(path + "-wal")
	if errors.Is(err, os.ErrNotExist) {
		m.noLog = true
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if i, err := f.Stat(); err == nil {
		m.noLog = i.Size() == 0
	}
	return checkLog(f, m)
}

func logDamage(why string, args ...any) error {
	return &journal.Damage{Why: "in journal.db-wal: " + fmt.Sprintf(why, args...)}
}

// shortLog judges a log that has no whole header. SQLite syncs the header before the
// first frame, so such a log has nothing that was acknowledged.
func shortLog(head []byte, err error) error {
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	for _, b := range head {
		if b != 0 {
			return logDamage("its header is cut after %d bytes", len(head))
		}
	}
	return nil
}

// A walk reads the frames of a log in order.
type walk struct {
	m     *mark
	order binary.ByteOrder // of the words that are summed
	page  int
	salts [8]byte
	sum   walSum // of the last good frame

	frames  uint32 // read so far
	good    uint32 // good frames
	whole   uint32 // good frames up to the last commit
	behind  int    // commit frames at or behind the first bad frame
	marked  walSum // of the frame that the mark names
	stopped bool   // a bad frame was read
}

// begin reads the header. It reports false if the header is not what was written.
func (w *walk) begin(head []byte) bool {
	switch binary.BigEndian.Uint32(head) {
	case 0x377f0682:
		w.order = binary.LittleEndian
	case 0x377f0683:
		w.order = binary.BigEndian
	default:
		return false
	}
	w.page = int(binary.BigEndian.Uint32(head[8:]))
	w.sum = walSum{}.add(w.order, head[:24])
	return w.sum == readSum(head[24:]) && w.page >= 512 && w.page <= 1<<16 && w.page&(w.page-1) == 0
}

// badHeader judges a log whose header is damaged. A header of zeros with nothing but
// zeros behind it is a log that a power failure emptied: the mark and the records
// decide then.
func (w *walk) badHeader(head []byte, rest io.Reader) error {
	buf := make([]byte, 1<<16)
	for b := head; ; {
		for _, c := range b {
			if c != 0 {
				return logDamage("its header is not what was written")
			}
		}
		n, err := rest.Read(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		b = buf[:n]
	}
}

// frame reads the next frame.
func (w *walk) frame(b []byte) {
	w.frames++
	pageNumber, commit := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]) != 0
	ours := [8]byte(b[8:16]) == w.salts
	if !w.stopped {
		sum := w.sum.add(w.order, b[:8]).add(w.order, b[frameHeader:])
		if ours && pageNumber != 0 && sum == readSum(b[16:]) {
			w.good, w.sum = w.frames, sum
			if commit {
				w.whole = w.frames
			}
			if w.frames == w.m.frames {
				w.marked = sum
			}
			return
		}
		w.stopped = true
	}
	if ours && commit {
		w.behind++
	}
}

// result compares the log with the mark.
func (w *walk) result() error {
	here := fmt.Sprintf("frame %d at byte %d", w.good+1, walHeader+int64(w.good)*int64(frameHeader+w.page))
	switch {
	case w.behind >= 2:
		return logDamage("%s is not what was written, and %d groups of records begin or end behind it", here, w.behind)
	case !w.m.exists || w.m.salts != w.salts:
		return nil // the records decide
	case w.whole < w.m.frames && w.stopped:
		return logDamage("%s is not what was written; %d frames were acknowledged", here, w.m.frames)
	case w.whole < w.m.frames:
		return logDamage("it ends before %s; %d frames were acknowledged", here, w.m.frames)
	case w.m.frames > 0 && w.marked != w.m.sum:
		return logDamage("its first %d frames are not those that were acknowledged", w.m.frames)
	}
	return nil
}

// A walSum is the running checksum of a log.
type walSum [2]uint32

func readSum(b []byte) walSum {
	return walSum{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// add adds bytes, whose number is a multiple of eight.
func (s walSum) add(order binary.ByteOrder, b []byte) walSum {
	if order == binary.LittleEndian { // the usual case, without a call for each word
		for ; len(b) >= 8; b = b[8:] {
			s[0] += binary.LittleEndian.Uint32(b) + s[1]
			s[1] += binary.LittleEndian.Uint32(b[4:]) + s[0]
		}
		return s
	}
	for ; len(b) >= 8; b = b[8:] {
		s[0] += order.Uint32(b) + s[1]
		s[1] += order.Uint32(b[4:]) + s[0]
	}
	return s
}
