package kernel

import (
	"bytes"
	"context"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/schema"
)

// answers reads the journal: earlier answers, and payloads.
type answers struct {
	store journal.Store
	log   *journal.Log
}

// find returns the answer of a call, if the journal has one.
func (b answers) find(c *abi.Call) (res abi.Result, found bool) {
	r, err := b.store.Answer(c.Pid, c.N)
	if err != nil {
		return unknownResult(fmt.Errorf("the answer to call %d cannot be read: %v", c.N, err)), true
	}
	if r == nil {
		return unknownResult(fmt.Errorf("the journal has no answer to call %d", c.N)), false
	}
	in := r.Intent
	if in == nil {
		if in, err = b.findIntent(c, r.N); err != nil {
			return unknownResult(err), true
		}
	}
	before, err := b.bytes(in.Args)
	if err != nil {
		return unknownResult(err), true
	}
	if in.Row != c.Row || in.For != c.For || !bytes.Equal(schema.Spelling(nil, before), schema.Spelling(nil, c.Args)) {
		return abi.Result{Outcome: abi.Refused, Err: &abi.Error{Code: abi.Diverged,
			Message: fmt.Sprintf("call %d was %s before (record %d), and is made again with other content", c.N, in.Row, r.N),
			Got:     c.Row, Hint: "use the next free number for a new call"}}, true
	}
	return b.result(r), true
}

// findIntent finds the intent of a call that record n answers.
func (b answers) findIntent(c *abi.Call, n uint64) (in *abi.Intent, err error) {
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

// result turns an answer into what the caller gets.
func (b answers) result(r *abi.Record) abi.Result {
	a := r.Answer
	res := abi.Result{Outcome: a.Outcome, Err: a.Err, Warning: a.Warning, Usage: a.Usage, Attempts: a.Attempt, Cut: a.Cut}
	if a.Err == nil {
		v, err := b.bytes(a.Value)
		if err != nil {
			return unknownResult(err)
		}
		res.Value = v
	}
	return res
}

// bytes returns a payload, from the record or from the blob it names.
func (b answers) bytes(d abi.Data) ([]byte, error) {
	if d.Hash.IsZero() {
		return d.Bytes, nil
	}
	v, err := b.store.Blob(d.Hash)
	if err == nil {
		return v, nil
	}
	if e := b.log.Flush(context.Background()); e != nil { // the blob may be queued
		return nil, e
	}
	return b.store.Blob(d.Hash)
}

// fillArgs gives calls their arguments.
func (b answers) fillArgs(calls []abi.Call, args []abi.Data) (err error) {
	for i := range calls {
		if calls[i].Args, err = b.bytes(args[i]); err != nil {
			return err
		}
	}
	return nil
}

// broken says why a record is not on disk.
func (b answers) broken() *abi.Error {
	if e := b.log.Err(); e != nil {
		return e
	}
	return &abi.Error{Code: abi.StorageBroken, Message: "the journal did not take the record"}
}

func unreadable(err error) *abi.Error {
	return &abi.Error{Code: abi.StorageBroken, Message: err.Error()}
}

func unknownResult(err error) abi.Result {
	return abi.Result{Outcome: abi.Unknown, Err: unreadable(err)}
}
