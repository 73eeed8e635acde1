package process

import (
	"encoding/binary"
	"fmt"
	"unique"

	"github.com/kern-run/kern/abi"
)

// A Summary is a process in short.
type Summary struct {
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
	Exit     *Exit // nil: it lives
}

// An Exit is how a process ended, and why.
type Exit struct {
	Exit   abi.Exit
	Code   abi.Code
	Reason string
}

// ExitOf is an exit in short; of nil it is nil.
func ExitOf(x *abi.ExitInfo) *Exit {
	if x == nil {
		return nil
	}
	return &Exit{x.Exit, x.Code, x.Reason}
}

// Leaving says why a process that is to end so takes no calls any more.
func (e Exit) Leaving(pid abi.Pid) *abi.Error {
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
func (e Exit) Exited(pid abi.Pid) *abi.Error {
	return &abi.Error{Code: abi.ProcessExited, Message: fmt.Sprintf("process %d has exited: %s", pid, e.Exit)}
}

// PackedSummary is the Summary of a process that has ended.
type PackedSummary struct {
	text    unique.Handle[text]
	numbers string // those that are not zero: the place of each, and a varint
}

// text are what many have in common.
type text struct {
	name, account string
	end           Exit
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

// Pack is b, which has ended, to be kept.
func (b *Summary) Pack() PackedSummary {
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
	return PackedSummary{unique.Make(text{b.Name, b.Account, *b.Exit}), string(n)}
}

// Summary is what was kept.
func (k PackedSummary) Unpack() Summary {
	w := k.text.Value()
	b := Summary{Name: w.name, Account: w.account, Exit: &w.end}
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
func (k PackedSummary) AddChild(child *Summary) PackedSummary {
	b := k.Unpack()
	b.Used.Add(&child.Used)
	b.Used[abi.Children]++
	b.Reserved.Add(&child.Reserved)
	b.Doubt.Add(&child.Doubt)
	return b.Pack()
}

// Exit is how it ended.
func (k PackedSummary) Exit() Exit { return k.text.Value().end }
