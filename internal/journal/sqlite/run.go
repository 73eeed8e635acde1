package sqlite

import (
	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal/format"
)

// runLen is how many records of a process make a run.
const runLen = 64

// A run is up to runLen records of a process, one after the other: how many
// there are, what they and all before them come to, and which calls are
// answered in them. The last run of a process is where it goes on.
type run struct {
	first, n  uint64 // the first record, and the last one yet
	sum       format.Sum
	answered  bool // some call is
	low, high int64
}

// extend adds the next record.
func (r *run) extend(e *format.Entry) {
	if r.n%runLen == 0 {
		*r = run{first: r.n + 1, sum: r.sum}
	}
	r.n = e.N
	r.sum = e.Sum(r.sum)
	if c := int64(e.Call); e.Kind == abi.KindEnded || e.Kind == abi.KindRefused {
		if !r.answered {
			r.answered, r.low, r.high = true, c, c
		}
		r.low, r.high = min(r.low, c), max(r.high, c)
	}
}

// checkLen is how much of its sum stands behind a record's body. It only has to
// say which record of a run is wrong: that one is, the run's own sum says.
const checkLen = 4
