// Package brief is what people see of any process, and how it is kept of those
// that have ended: in about a hundred bytes, for there is no end to them.
package brief

import (
	"encoding/binary"
	"fmt"
	"unique"

	"github.com/kern-run/kern/abi"
)

// A Brief is a process in short.
type Brief struct {
	Name     string
	Account  string // the named one it is booked on, if any
	Depth    int
	Priority int
	Born     int64 // time of the first record
	Last     int64 // and of the last
	Records  uint64
	Steps    int64
	Drift    int64
	Used     abi.Usage // settled
	Reserved abi.Usage // may still be used; Doubt is a part of it
	Doubt    abi.Usage
	Limits   abi.Limits
	Exit     *End // nil: it lives
}

// An End is how a process ended, and why.
type End struct {
	Exit   abi.Exit
	Code   abi.Code
	Reason string
}

// EndOf is an exit in short; of nil it is nil.
func EndOf(x *abi.ExitInfo) *End {
	if x == nil {
		return nil
	}
	return &End{x.Exit, x.Code, x.Reason}
}

// Leaving says why a process that is to end so takes no calls any more.
func (e End) Leaving(pid abi.Pid) *abi.Error {
	code, how := abi.ProcessEnding, "is ending: "+string(e.Exit)
	switch e.Exit {
	case abi.ExitKilled:
		code, how = abi.ProcessKilled, "was killed"
	case abi.ExitLimit:
		code, how = e.Code, "has come to its limit on "+e.Reason
	case abi.ExitLoop:
		code, how = e.Code, "was ended for going in circles"
	}
	return &abi.Error{Code: code, Message: fmt.Sprintf("process %d %s", pid, how), Hint: fmt.Sprintf("kern show %d tells more", pid)}
}

// Exited says that a process has ended so.
func (e End) Exited(pid abi.Pid) *abi.Error {
	return &abi.Error{Code: abi.ProcessExited, Message: fmt.Sprintf("process %d has exited: %s", pid, e.Exit)}
}

// Kept is the Brief of a process that has ended.
type Kept struct {
	words   unique.Handle[words]
	numbers string // those that are not zero: the place of each, and a varint
}

// words are what many have in common.
type words struct {
	name, account string
	end           End
}

// The places of the numbers.
const (
	depth = iota
	priority
	born
	lived
	records
	steps
	drift
	used
	reserved = used + int(abi.Units)
	doubt    = reserved + int(abi.Units)
	limits   = doubt + int(abi.Units)
	places   = limits + int(abi.AllUnits)
)

// Keep is b, which has ended, to be kept.
func (b *Brief) Keep() Kept {
	all := [places]int64{depth: int64(b.Depth), priority: int64(b.Priority), born: b.Born, lived: b.Last - b.Born,
		records: int64(b.Records), steps: b.Steps, drift: b.Drift}
	copy(all[used:], b.Used[:])
	copy(all[reserved:], b.Reserved[:])
	copy(all[doubt:], b.Doubt[:])
	var buf [256]byte
	n := buf[:0]
	for i, v := range all[:limits] {
		if v != 0 {
			n = binary.AppendVarint(append(n, byte(i)), v)
		}
	}
	b.Limits.Each(func(u abi.Unit, v int64) { n = binary.AppendVarint(append(n, byte(limits+int(u))), v) }) // zero allows nothing
	return Kept{unique.Make(words{b.Name, b.Account, *b.Exit}), string(n)}
}

// Brief is what was kept.
func (k Kept) Brief() Brief {
	w := k.words.Value()
	b := Brief{Name: w.name, Account: w.account, Exit: &w.end}
	var all [places]int64
	for n := []byte(k.numbers); len(n) > 0; {
		i := int(n[0])
		v, size := binary.Varint(n[1:])
		if all[i] = v; i >= limits {
			b.Limits.Set(abi.Unit(i-limits), v)
		}
		n = n[1+size:]
	}
	b.Depth, b.Priority, b.Born, b.Last = int(all[depth]), int(all[priority]), all[born], all[born]+all[lived]
	b.Records, b.Steps, b.Drift = uint64(all[records]), all[steps], all[drift]
	b.Used, b.Reserved, b.Doubt = abi.Usage(all[used:reserved]), abi.Usage(all[reserved:doubt]), abi.Usage(all[doubt:limits])
	return b
}

// With is k after what a child and all below that one came to was added.
func (k Kept) With(child *Brief) Kept {
	b := k.Brief()
	b.Used.Add(&child.Used)
	b.Used[abi.Children]++
	b.Reserved.Add(&child.Reserved)
	b.Doubt.Add(&child.Doubt)
	return b.Keep()
}

// End is how it ended.
func (k Kept) End() End { return k.words.Value().end }
