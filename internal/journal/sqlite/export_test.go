package sqlite

import (
	"bytes"
	"fmt"

	"github.com/kern-run/kern/internal/journal"
)

// LimitPages lets the file of a store grow to n pages and no further: a full
// disk for those who may not mount one.
func LimitPages(s journal.Store, n int64) error {
	st := s.(*store)
	st.mu.Lock()
	defer st.mu.Unlock()
	_, err := st.w.number(fmt.Sprint("PRAGMA max_page_count=", n))
	return err
}

// Pragma reads a setting of the connection that writes.
func Pragma(s journal.Store, name string) (int64, error) {
	st := s.(*store)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.w.number("PRAGMA " + name)
}

// Waiting is how many records are in the tail.
func Waiting(s journal.Store) int {
	st := s.(*store)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.tail.count
}

// MaxTail is how many records may wait there.
const MaxTail = maxTail

// KeepEnds has stores keep the ends of n processes in memory, until it is undone.
func KeepEnds(n int) (undo func()) {
	was := maxEnds
	maxEnds = n
	return func() { maxEnds = was }
}

// CheckLog looks for damage in a log as Open does, given the bytes of the mark.
func CheckLog(log, markBytes []byte) error {
	var m mark
	if err := m.read(markBytes); err != nil {
		return err
	}
	return checkLog(bytes.NewReader(log), &m)
}
