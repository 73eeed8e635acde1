package kernel

import (
	"bytes"
	"context"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/schema"
)

// book reads what was written: answers given before, and payloads.
type book struct {
	store journal.Store
	log   *journal.Log
}

// answered reads the answer of a call from the journal, if there is one there.
func (b *book) answered(c *abi.Call) (res abi.Result, found bool) {
	r, err := b.store.Answer(c.Pid, c.N)
	if err != nil || r == nil {
		return unread(fmt.Errorf("the answer to call %d cannot be read: %v", c.N, err)), err != nil
	}
	in := r.Intent
	if in == nil {
		if in, err = b.intentOf(c, r.N); err != nil {
			return unread(err), true
		}
	}
	before, err := b.Bytes(in.Args)
	if err != nil {
		return unread(err), true
	}
	if in.Row != c.Row || in.For != c.For || !bytes.Equal(schema.Spelling(nil, before), schema.Spelling(nil, c.Args)) {
		return abi.Result{Outcome: abi.Refused, Err: &abi.Error{Code: abi.Diverged,
			Message: fmt.Sprintf("call %d was %s before (record %d), and is asked again with other content", c.N, in.Row, r.N),
			Got:     c.Row, Hint: "use the next free number for a new call"}}, true
	}
	return b.result(r), true
}

func unread(err error) abi.Result {
	return abi.Result{Outcome: abi.Unknown, Err: &abi.Error{Code: abi.StorageBroken, Message: err.Error()}}
}

// intentOf finds the intent of a call that was answered by record n.
func (b *book) intentOf(c *abi.Call, n uint64) (in *abi.Intent, err error) {
	for r, err := range b.store.Records(c.Pid, 0) {
		if err != nil {
			return nil, err
		}
		if r.Call == c.N && r.Intent != nil {
			in = r.Intent
		}
		if r.N >= n {
			break
		}
	}
	if in == nil {
		err = fmt.Errorf("call %d has an answer and no intent", c.N)
	}
	return in, err
}

// result is what a caller gets to see of an answer.
func (b *book) result(r *abi.Record) abi.Result {
	a := r.Answer
	res := abi.Result{Outcome: a.Outcome, Err: a.Err, Warning: a.Warning, Usage: a.Usage, Attempts: a.Attempt}
	if a.Err == nil {
		v, err := b.Bytes(a.Value)
		if err != nil {
			return unread(err)
		}
		res.Value = v
	}
	return res
}

// Bytes returns a payload, from the record or from the blob it names.
func (b *book) Bytes(d abi.Data) ([]byte, error) {
	if d.Hash.IsZero() {
		return d.Bytes, nil
	}
	v, err := b.store.Blob(d.Hash)
	if err == nil {
		return v, nil
	}
	if e := b.log.Flush(context.Background()); e != nil { // it may be on its way
		return nil, e
	}
	return b.store.Blob(d.Hash)
}

func (b *book) broken() *abi.Error {
	if e := b.log.Err(); e != nil {
		return e
	}
	return &abi.Error{Code: abi.StorageBroken, Message: "the journal did not take the record"}
}
