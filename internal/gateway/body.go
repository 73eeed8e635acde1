package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
)

// Bounds of a request.
const (
	maxBody    = 64 << 20
	bodyTime   = 60 * time.Second
	lingerTime = 10 * time.Second // to send the rest of a refused body
	lingerMax  = 256 << 20        // bytes of that rest
)

// hurry sets the deadline for the body of a request. Method body removes the
// deadline after it read the whole body. A refused request keeps the deadline,
// because the server still reads its body and could wait for ever.
func (v *inbound) hurry() {
	c, until := http.NewResponseController(v.w), time.Now().Add(bodyTime)
	_ = c.SetReadDeadline(until)  // a test's recorder has no deadline
	_ = c.SetWriteDeadline(until) // the server writes "100 Continue" to a client that waits for it
}

// body reads the body of a request within bodyTime. Its bytes are taken from the
// budget as they come, because the size that the client states may be wrong.
func (v *inbound) body() ([]byte, error) {
	most := v.budget.body
	if v.r.ContentLength > most {
		return nil, v.budget.tooLarge
	}
	if enc := v.r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: "expected a body that is not compressed", Got: abi.Clip(enc)}
	}
	b, err := v.readAll(most)
	var e *abi.Error
	switch {
	case errors.As(err, &e):
		return nil, e
	case err != nil:
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: "the request broke off"}
	}
	v.whole = true
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Time{}) // a test's recorder has no deadline
	return b, nil
}

// readAll reads at most most bytes of the body. The buffer doubles, up to the size
// that the client states.
func (v *inbound) readAll(most int64) ([]byte, error) {
	const first = 64 << 10
	var b []byte
	for {
		if len(b) == cap(b) {
			size := max(first, 2*int64(cap(b)))
			if stated := v.r.ContentLength + 1; stated > int64(len(b)) { // one byte more finds the end
				size = min(size, stated)
			}
			size = min(size, most+1)
			if int64(len(b)) >= size {
				return nil, v.budget.tooLarge
			}
			if e := v.budget.take(v.session.share, size-v.held); e != nil {
				return nil, e
			}
			v.held = size
			b = append(make([]byte, 0, size), b...)
		}
		n, err := v.r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// giveBack returns the bytes of the body to the budget.
func (v *inbound) giveBack() {
	if v.held > 0 {
		v.budget.give(v.session.share, v.held)
		v.held = 0
	}
}

// linger reads the rest of a refused body, because most clients read no answer before
// they sent everything. Without it they would see a broken connection and ask again.
func (v *inbound) linger() {
	if v.whole || v.r == nil || v.r.Body == nil || v.r.ContentLength == 0 || v.r.Header.Get("Expect") != "" {
		return
	}
	c := http.NewResponseController(v.w)
	_ = c.Flush()
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, v.r.Body, lingerMax) // the client may have disconnected
}

// A budget bounds the bytes of the bodies that are held in memory at a time, in all
// and for each tree of processes. Parsing takes a few times the size of a body.
type budget struct {
	all, tree int64
	body      int64 // of one request
	journal   int64 // bytes that a tree may store in the journal
	tooLarge  *abi.Error

	mu   sync.Mutex
	held int64
}

// Bounds of a budget. A daemon under a small memory bound must survive any request.
const (
	memoryShare  = 16 // the part of the memory that bodies may take
	leastHeld    = 8 << 20
	mostHeld     = 256 << 20
	journalBytes = 1 << 30
)

func newBudget(journal int64) *budget {
	all := int64(mostHeld)
	if m := memory(); m > 0 {
		all = min(max(m/memoryShare, leastHeld), mostHeld)
	}
	if journal == 0 {
		journal = journalBytes
	}
	b := &budget{all: all, tree: all / 2, body: min(maxBody, all/2), journal: journal}
	b.tooLarge = &abi.Error{Code: abi.InvalidArguments, Message: "the request is larger than " + mebibytes(b.body)}
	return b
}

// A share is what the requests of one tree of processes hold and have stored.
type share struct {
	mu      sync.Mutex
	held    int64
	stored  int64
	refused int64 // the part of stored that belongs to requests which a limit refused early
}

// mebibytes formats a number of bytes, rounded up.
func mebibytes(n int64) string { return strconv.FormatInt((n+1<<20-1)>>20, 10) + " MiB" }

// take takes n bytes for a body.
func (b *budget) take(s *share, n int64) *abi.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.held+n > b.tree:
		return &abi.Error{Code: abi.TooManyRequests, Message: fmt.Sprintf("the requests of this key hold %s, and %s may be under way at a time", mebibytes(s.held), mebibytes(b.tree)),
			Hint: "ask again when an earlier request has its answer"}
	case b.held+n > b.all:
		return &abi.Error{Code: abi.DaemonBusy, Message: fmt.Sprintf("the requests of all programs hold %s, and %s may be under way at a time", mebibytes(b.held), mebibytes(b.all)),
			Hint: "ask again in a moment"}
	}
	b.held, s.held = b.held+n, s.held+n
	return nil
}

func (b *budget) give(s *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, s.held = b.held-n, s.held-n
}

// recordSize is about the size of the records of a call without a payload.
const recordSize = 500

// store counts n bytes that a request added to the journal.
func (s *share) store(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored += n + recordSize
}

// full returns an error once the requests of a tree have filled their part of the
// journal.
func (b *budget) full(s *share) *abi.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored < b.journal {
		return nil
	}
	return &abi.Error{Code: abi.KeyFull, Message: fmt.Sprintf("the requests of this key have stored %s in the journal, which is all that one key may store", mebibytes(b.journal)),
		Hint: "make a new key, or raise gateway: {bytes: ...} in kern.yaml"}
}
