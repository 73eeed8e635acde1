package kern

import (
	"fmt"
	"math"
	"time"

	"github.com/kern-run/kern/abi"
)

// Money is an exact amount of dollars, in steps of a billionth. The zero Money is
// unset, which [Dollars](0) is not.
type Money struct {
	nano int64
	set  bool
}

// Dollars makes an amount of money, rounded to a billionth of a dollar.
func Dollars(amount float64) Money {
	nano := math.Round(amount * 1e9)
	if math.IsNaN(nano) || nano < 0 || nano >= math.MaxInt64 {
		return Money{nano: -1, set: true} // Limits refuse it, with its message
	}
	return Money{nano: int64(nano), set: true}
}

// Nanos is the amount in billionths of a dollar.
func (m Money) Nanos() int64 { return m.nano }

// String is the amount in dollars, with no more decimals than it needs.
func (m Money) String() string { return abi.FormatMoney(m.nano) }

// MarshalText writes what String says.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// None is a limit that allows nothing. Every field of [Limits] except Money takes
// it; for money, Dollars(0) says the same.
const None = -1

// Unlimited lifts the limit that a process gets by itself, on depth or children.
const Unlimited = abi.Unlimited

// Limits are hard bounds on a process and everything below it. A field that is
// not set does not limit, except Depth and Children; [None] allows nothing.
type Limits struct {
	Money        Money
	Tokens       int64 // of input and output together
	InputTokens  int64
	OutputTokens int64
	Steps        int64 // turns of the model
	ModelCalls   int64
	ToolCalls    int64
	Children     int64 // processes started below this one; unset: 100
	OutputBytes  int64 // bytes of tool output
	Depth        int64 // generations below this process; unset: 5
	Context      int64 // tokens in one request
	CPU          time.Duration
	Wall         time.Duration // from the start
}

// shortest is the least time limit that can be meant: a smaller one is a number
// without its unit, such as Wall: 10.
const shortest = time.Millisecond

// abi checks the limits and writes them as the journal has them.
func (l Limits) abi() (a abi.Limits, err error) {
	if l.Money.set {
		if l.Money.nano < 0 {
			return a, fmt.Errorf("limit money: expected dollars from 0 to 9,000,000,000")
		}
		a.Set(abi.Money, l.Money.nano)
	}
	for u, n := range l.counts() {
		switch {
		case *n == 0:
		case *n == None:
			a.Set(u, 0)
		case *n < 0:
			return a, fmt.Errorf("limit %s is %d: expected a number above 0, or kern.None to allow nothing", u, *n)
		default:
			a.Set(u, *n)
		}
	}
	for u, d := range map[abi.Unit]time.Duration{abi.CPU: l.CPU, abi.Wall: l.Wall} {
		switch {
		case d == 0:
		case d == None:
			a.Set(u, 0)
		case d < shortest:
			return a, fmt.Errorf("limit %s is %v: expected a duration of at least %v such as 10*time.Minute, or kern.None to allow nothing", u, d, shortest)
		default:
			a.Set(u, int64(d))
		}
	}
	return a, nil
}

func (l *Limits) counts() map[abi.Unit]*int64 {
	return map[abi.Unit]*int64{
		abi.Tokens: &l.Tokens, abi.InputTokens: &l.InputTokens, abi.OutputTokens: &l.OutputTokens, abi.Steps: &l.Steps,
		abi.ModelCalls: &l.ModelCalls, abi.ToolCalls: &l.ToolCalls, abi.Children: &l.Children, abi.OutputBytes: &l.OutputBytes,
		abi.Depth: &l.Depth, abi.Context: &l.Context,
	}
}

// limitsOf reads recorded limits: a recorded 0 is None.
func limitsOf(a abi.Limits) (l Limits) {
	counts := l.counts()
	a.Each(func(u abi.Unit, n int64) {
		if u == abi.Money {
			l.Money = Money{n, true}
			return
		}
		if n == 0 {
			n = None
		}
		switch u {
		case abi.CPU:
			l.CPU = time.Duration(n)
		case abi.Wall:
			l.Wall = time.Duration(n)
		default:
			*counts[u] = n
		}
	})
	return l
}

// Usage is what a process and everything below it used.
type Usage struct {
	Money        Money
	Tokens       int64 // of input and output together
	InputTokens  int64
	OutputTokens int64
	Steps        int64
	ModelCalls   int64
	ToolCalls    int64
	Children     int64
	OutputBytes  int64
	CPU          time.Duration
	Wall         time.Duration // since the start, or until the exit
	InDoubt      Money         // reserved by calls of which nobody knows the end
	Drift        Money         // billed by providers beyond the reservations
}
