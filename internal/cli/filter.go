package cli

import (
	"slices"
	"strings"

	"github.com/kern-run/kern/abi"
)

// A Filter selects records of one process. The zero value selects all.
type Filter struct {
	Kinds  []string // of calls or of records, see [CallKinds] and [RecordKinds]
	Tools  []string
	Errors bool
	Since  int64 // nanoseconds since 1970

	begun map[uint64]*abi.Intent // by call: the end of a call does not repeat what it is
}

// CallKinds are the kinds of calls that a filter knows.
func CallKinds() []string {
	return []string{"model", "tool", "code", "spawn", "wait", "send", "recv", "sleep", "ask", "yield", "undo", "exit", "key", "run"}
}

// RecordKinds are the kinds of records that are no calls.
func RecordKinds() (all []string) {
	for k := abi.KindSpawned; k.String() != "unknown"; k++ {
		if k != abi.KindBegan && k != abi.KindEnded && k != abi.KindRefused && k != abi.KindAccount {
			all = append(all, k.String())
		}
	}
	return all
}

// IsZero reports whether f selects all records.
func (f *Filter) IsZero() bool {
	return len(f.Kinds) == 0 && len(f.Tools) == 0 && !f.Errors && f.Since == 0
}

// Check refuses an unknown kind.
func (f *Filter) Check() error {
	known := slices.Concat(CallKinds(), RecordKinds(), []string{"refused"})
	for _, kind := range f.Kinds {
		if !slices.Contains(known, kind) {
			return Usage("kinds are: "+strings.Join(known, ", "), "--kind %q, expected a kind of call or record", kind)
		}
	}
	return nil
}

// Match reports whether f selects r. It must see the records in order.
func (f *Filter) Match(r *abi.Record) bool {
	in := r.Intent
	if in == nil {
		in = f.begun[r.Call]
	} else if r.Call != 0 {
		if f.begun == nil {
			f.begun = make(map[uint64]*abi.Intent)
		}
		f.begun[r.Call] = in
	}
	switch {
	case r.Time < f.Since:
		return false
	case f.Errors && !isError(r):
		return false
	case len(f.Tools) > 0 && (in == nil || r.Call == 0 || !slices.Contains(f.Tools, CallKind(in))):
		return false
	case len(f.Kinds) == 0:
		return true
	}
	called := in != nil && r.Call != 0 && (r.Kind == abi.KindBegan || r.Answer != nil)
	return slices.Contains(f.Kinds, r.Kind.String()) || called && slices.Contains(f.Kinds, in.Row)
}

// isError reports whether a record says that something failed.
func isError(r *abi.Record) bool {
	switch {
	case r.Answer != nil:
		return r.Answer.Err != nil || r.Answer.Outcome != abi.OK
	case r.Kind == abi.KindExited:
		return r.Exit.Exit != abi.ExitDone
	}
	return false
}
