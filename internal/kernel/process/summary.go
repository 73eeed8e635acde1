package process

import (
	"encoding/binary"
	"fmt"
	"unique"

	"github.com/kern-run/kern/abi"
)

// Summary is what lists show of a process.
type Summary struct {
	Name     string
	Account  string // the named account above it, if any
	Depth    int
	Priority int
	Born     int64 // time of the first record
	Last     int64 // time of the last record
	Records  uint64
	Steps    int64
	Beyond   Beyond
	Used     abi.Usage // settled
	Reserved abi.Usage // held or reserved; Doubt is a part of it
	Doubt    abi.Usage
	Limits   abi.Limits
	Exit     *Exit // nil: the process lives
}

// Beyond is what providers reported beyond the bounds.
type Beyond struct {
	Drift  int64 // money
	Claims int64 // answers with a usage that is not believed
}

// Exit is how a process ended, and why.
type Exit struct {
	Exit   abi.Exit
	Code   abi.Code
	Reason string
}

// ExitOf returns the short form of an exit; nil for nil.
func ExitOf(x *abi.ExitInfo) *Exit {
	if x == nil {
		return nil
	}
	return &Exit{x.Exit, x.Code, x.Reason}
}

// Leaving is the refusal of a call while the process is ending.
func (e Exit) Leaving(pid abi.Pid) *abi.Error {
	code, how := abi.ProcessEnding, "is ending: "+string(e.Exit)
	switch e.Exit {
	case abi.ExitKilled:
		code, how = abi.ProcessKilled, "was killed"
	case abi.ExitLimit:
		code, how = e.Code, "reached its limit on "+e.Reason
	case abi.ExitLoop:
		code, how = e.Code, "was ended because it made a loop"
	}
	return &abi.Error{Code: code, Message: fmt.Sprintf("process %d %s", pid, how), Hint: fmt.Sprintf("for details: kern show %d", pid)}
}

// Exited is the refusal of a call or an order after the exit.
func (e Exit) Exited(pid abi.Pid) *abi.Error {
	return &abi.Error{Code: abi.ProcessExited, Message: fmt.Sprintf("process %d has exited: %s", pid, e.Exit)}
}

// PackedSummary is the summary of a process that has exited, in about a hundred
// bytes, because the number of such processes grows without end.
type PackedSummary struct {
	text    unique.Handle[text]
	numbers string // the index of each number that is not zero, and the number as a varint
}

// text is what many processes have in common. It is stored once.
type text struct {
	name, account string
	end           Exit
}

// The indexes of the numbers.
const (
	depth = iota
	priority
	born
	lived
	records
	steps
	drift
	claims
	used
	reserved = used + int(abi.Units)
	doubt    = reserved + int(abi.Units)
	limits   = doubt + int(abi.Units)
	places   = limits + int(abi.AllUnits)
)

// Pack packs the summary of a process that has exited.
func (b *Summary) Pack() PackedSummary {
	all := [places]int64{depth: int64(b.Depth), priority: int64(b.Priority), born: b.Born, lived: b.Last - b.Born,
		records: int64(b.Records), steps: b.Steps, drift: b.Beyond.Drift, claims: b.Beyond.Claims}
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
	b.Limits.Each(func(u abi.Unit, v int64) { n = binary.AppendVarint(append(n, byte(limits+int(u))), v) }) // a limit of zero is a limit
	return PackedSummary{unique.Make(text{b.Name, b.Account, *b.Exit}), string(n)}
}

// Unpack returns what Pack packed.
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
	b.Records, b.Steps, b.Beyond = uint64(all[records]), all[steps], Beyond{all[drift], all[claims]}
	b.Used, b.Reserved, b.Doubt = abi.Usage(all[used:reserved]), abi.Usage(all[reserved:doubt]), abi.Usage(all[doubt:limits])
	return b
}

// AddChild returns k with the usage of a child and of its descendants added.
func (k PackedSummary) AddChild(child *Summary) PackedSummary {
	b := k.Unpack()
	b.Used.Add(&child.Used)
	b.Used[abi.Children]++
	b.Reserved.Add(&child.Reserved)
	b.Doubt.Add(&child.Doubt)
	return b.Pack()
}

// Exit returns how the process ended.
func (k PackedSummary) Exit() Exit { return k.text.Value().end }
