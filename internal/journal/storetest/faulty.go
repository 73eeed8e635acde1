package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// A Mode says how an Append fails.
type Mode int

// The modes of a broken disk. After either of them the store fails for ever.
const (
	Before Mode = -1 // nothing is stored
	After  Mode = -2 // everything is stored, and an error is reported
)

// Full returns the mode of a full disk that has room again after k tries.
func Full(k int) Mode { return Mode(k) }

// ErrBroken is the error of a broken store.
var ErrBroken = errors.New("storetest: the disk broke")

// Faulty returns a store on s whose n-th Append, counted from 1, fails as mode says.
func Faulty(s journal.Store, n int, mode Mode) journal.Store {
	return &faulty{Store: s, left: n, mode: mode}
}

type faulty struct {
	journal.Store

	mu   sync.Mutex
	left int // Appends until one fails, that one included; 0: broken for ever
	mode Mode
}

func (f *faulty) Append(l journal.Lease, batch []abi.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left > 1 {
		f.left--
		return f.Store.Append(l, batch)
	}
	switch {
	case f.left < 1:
		return ErrBroken
	case f.mode > 0:
		f.mode--
		return fmt.Errorf("%w: storetest", journal.ErrFull)
	case f.mode == 0:
		return f.Store.Append(l, batch)
	case f.mode == After:
		f.left = 0
		return errors.Join(ErrBroken, f.Store.Append(l, batch))
	}
	f.left = 0
	return ErrBroken
}
