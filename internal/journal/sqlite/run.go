package sqlite

import (
	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal/format"
)

// runLen is how many records of a process make a run.
const runLen = 64

// A run describes up to runLen consecutive records of a process: their numbers, the
// sum of the last one, and the range of the calls that they answer. The next record
// of a process extends its last run.
type run struct {
	first, n  uint64 // numbers of the first and of the last record
	sum       format.Sum
	answered  bool  // a record of the run answers a call
	low, high int64 // the lowest and the highest answered call
}

// extend adds the next record of the process, and begins a new run after runLen
// records.
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

// checkLen is the number of bytes of its sum that follow a record's body: its check.
// Four bytes are enough to find the damaged record of a run, because the sum of the
// run shows that one is damaged.
const checkLen = 4
