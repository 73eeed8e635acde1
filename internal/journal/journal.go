package journal

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/kern-run/kern/abi"
)

// A Reader reads and checks stored records.
type Reader interface {
	// Scan calls fn with every record of some trees, or of all processes when no
	// tree is named: processes in order of pid, each process in order of N. It stops
	// at the first error of fn or of the journal; a damaged record is a *[Damage].
	Scan(fn func(*abi.Record) error, trees ...abi.Pid) error

	// Records are the records of a process after the one numbered after, in
	// order, up to the last one at the time of the call. An error is the last
	// thing it yields.
	Records(pid abi.Pid, after uint64) iter.Seq2[*abi.Record, error]

	// Answer is the record that answers a call, or nil when there is none.
	Answer(pid abi.Pid, call uint64) (*abi.Record, error)

	// Blob is a large payload, checked against its name.
	Blob(h abi.Hash) ([]byte, error)

	// Feed reads all records in commit order, from the one behind a cursor on.
	Feed(after Cursor) FeedReader
}

// A Cursor is a position in the feed: the position of the last record that was
// read. 0 is the position before the first record. A cursor stays valid when the
// journal is opened again; programs compare and store cursors, and do not compute
// them.
type Cursor uint64

// Newest, for [Reader.Feed], is the position of the last record at that moment.
const Newest Cursor = math.MaxUint64

// An Entry is a record of the feed and its position.
type Entry struct {
	Cursor Cursor
	*abi.Record
}

// A FeedReader is the place of one reader in the feed. It holds nothing of the
// store between two calls, so a reader may take as long as it likes. It is for one
// goroutine at a time.
type FeedReader interface {
	// Next returns the next records that wants accepts; nil accepts all. It does
	// not read records of other processes. It returns no entry when it has reached
	// the end of the feed, and can be called again later.
	Next(wants func(abi.Pid) bool) ([]Entry, error)

	// Cursor is the position up to which Next has read, refused records included.
	Cursor() Cursor
}

// A Store keeps records. It is safe for concurrent use.
type Store interface {
	Reader

	// Append stores a batch, blobs first: all of it or nothing, durable when it
	// returns nil. It refuses the batch with
	//   - [ErrStale] when the lease was replaced,
	//   - a *[BadRecord] when a record cannot be stored: its N must be the next of
	//     its process, and the lease must hold its tree (then it is an [ErrStale] too),
	//   - [ErrFull] when there is no room.
	// After any other error the store must be opened again, because nobody knows
	// what is on disk. A new top process becomes a tree of the lease.
	Append(l Lease, batch []abi.Record) error

	// Claim makes a lease with a higher epoch than any before, that holds the trees
	// of old and the claimed ones. The old lease is stale then, and any other lease
	// is stale for the claimed trees. Without trees it renews old; a zero old is the
	// claim of a new holder. It does not ask whether the other holder still lives.
	Claim(old Lease, trees ...abi.Pid) (Lease, error)

	// NewPid returns a number for a new process, that no other call returns to any
	// holder. It does not wait, because a kernel asks while it decides: a store on a
	// shared database takes numbers in ranges. Opening the store again frees the
	// numbers that were not used.
	NewPid() (abi.Pid, error)

	Close() error
}

// A Sweeper is a store that erases from the disk what was removed.
//
// A record of the kind removed removes its processes when it is appended: nothing
// reads them any more, and a feed skips their positions. Their numbers are not given
// out again. Sweep then erases their records and the blobs that nothing else names.
// It can be called again after an error. After a crash the store sweeps when it is
// opened.
type Sweeper interface {
	Sweep() error
}

// Errors of stores and logs.
var (
	ErrLocked = errors.New("journal: the data directory is in use")
	ErrStale  = errors.New("journal: the lease is stale: another owner has taken over")
	ErrFull   = errors.New("journal: the disk is full")
	ErrClosed = errors.New("journal: closed")
	ErrBlob   = errors.New("journal: a blob is missing or damaged")
)

// A BadRecord is a record that a store will always refuse. Nothing of its batch was
// stored.
type BadRecord struct {
	Pid abi.Pid
	N   uint64
	Why string
	Err error // the general reason, or nil
}

// Unwrap returns the general reason.
func (e *BadRecord) Unwrap() error { return e.Err }

func (e *BadRecord) Error() string {
	return fmt.Sprintf("journal: record %d of process %d is refused: %s", e.N, e.Pid, e.Why)
}

// Damage is a place where the journal is not what was written. N is 0 if the place is
// not a record.
type Damage struct {
	Pid    abi.Pid
	N      uint64
	Why    string
	Advice string // for the person, if the general advice does not fit
	Err    error  // the general reason, or nil
}

// Unwrap returns the general reason.
func (e *Damage) Unwrap() error { return e.Err }

// As makes damage an error that clients know, wherever it is found.
func (e *Damage) As(target any) bool {
	t, ok := target.(**abi.Error)
	if ok {
		*t = &abi.Error{Code: abi.StorageBroken, Message: e.Error(), Hint: e.Hint()}
	}
	return ok
}

// Hint returns the advice for the person.
func (e *Damage) Hint() string {
	if e.Advice != "" {
		return e.Advice
	}
	return "restore the data directory from a backup, or use another one with --data; what is damaged was not run or changed"
}

func (e *Damage) Error() string {
	if e.Pid == 0 && e.N == 0 {
		return "journal: damaged: " + e.Why
	}
	return fmt.Sprintf("journal: damaged at record %d of process %d: %s", e.N, e.Pid, e.Why)
}

// Bounds of what a store takes. Payloads are blobs, so a body is a few hundred
// bytes; a blob stays well below what SQLite can hold in a row.
const (
	MaxBody = 16 << 20
	MaxBlob = 512 << 20

	maxIntent = MaxBody / 2 // the rest is for the answer
)

// Fits says why an intent and its blobs are too large for the journal, in their own
// record or in that of an answer; nil if they are not. Ask before a call is admitted,
// because a process cannot continue after the store refused one of its records.
func Fits(in *abi.Intent, blobs []abi.Blob) *abi.Error {
	// An answer says the names again, some of them quoted.
	size := 8*(len(in.Row)+len(in.Tool)+len(in.For)) + len(in.Args.Bytes) + len(in.Say.Bytes) + len(abi.Hash{})*len(in.Parts)
	most := maxIntent
	for _, b := range blobs {
		if len(b.Bytes) > MaxBlob {
			size, most = len(b.Bytes), MaxBlob
		}
	}
	if size <= most {
		return nil
	}
	return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("the call takes %d bytes in the journal, and a call may take %d", size, most),
		Hint: "make the call smaller"}
}

// Verify reads every record of a process and every blob that they name, and returns
// how many records are as they were written.
func Verify(s Reader, pid abi.Pid) (int, error) {
	n := 0
	for r, err := range s.Records(pid, 0) {
		if err != nil {
			return n, err
		}
		for d := range r.Payloads() {
			if d.Hash.IsZero() {
				continue
			}
			if _, err := s.Blob(d.Hash); err != nil {
				return n, &Damage{Pid: pid, N: r.N, Why: err.Error()}
			}
		}
		if r.Intent != nil {
			for _, h := range r.Intent.Parts {
				if _, err := s.Blob(h); err != nil {
					return n, &Damage{Pid: pid, N: r.N, Why: err.Error()}
				}
			}
		}
		n++
	}
	return n, nil
}
