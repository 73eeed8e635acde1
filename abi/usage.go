package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Unit is a unit of usage or of a limit. The first Units of them add up: they are
// booked on an account and on every account above it. The rest are bounds of
// another kind: a deadline, a distance, a size.
type Unit uint8

// The units, in the order in which they are checked.
const (
	Money        Unit = iota // nano-dollars
	Tokens                   // in and out together
	InputTokens              //
	OutputTokens             //
	Steps                    // turns of the model; a retry is no new step
	ModelCalls               // attempts at a model
	ToolCalls                // attempts at a tool
	CPU                      // nanoseconds of processor time
	Children                 // processes started, by this one or below it
	OutputBytes              // bytes of tool output
	Units                    // how many of them add up

	Wall    Unit = iota - 1 // nanoseconds from start
	Depth                   // generations below this process
	Context                 // tokens in one request to a model
	AllUnits
)

var unitNames = [AllUnits]string{"money", "tokens", "input_tokens", "output_tokens", "steps", "model_calls",
	"tool_calls", "cpu", "children", "output_bytes", "wall", "depth", "context"}

func (u Unit) String() string {
	if u < AllUnits {
		return unitNames[u]
	}
	return "unit(" + strconv.Itoa(int(u)) + ")"
}

// UnitOf returns the unit with a name.
func UnitOf(name string) (Unit, bool) {
	for u, n := range unitNames {
		if n == name {
			return Unit(u), true
		}
	}
	return 0, false
}

// Usage counts what was used or is reserved, by unit.
type Usage [Units]int64

// Add adds v to u. Sums stop at the largest number instead of going round.
func (u *Usage) Add(v *Usage) {
	for i, n := range v {
		if n == 0 {
			continue // most are
		}
		if s := u[i] + n; n > 0 && s < u[i] {
			u[i] = math.MaxInt64
		} else {
			u[i] = s
		}
	}
}

// Sub takes v from u.
func (u *Usage) Sub(v *Usage) {
	for i, n := range v {
		if n != 0 {
			u[i] -= n
		}
	}
}

// Limits are hard bounds. An unset limit does not bind; zero allows nothing.
// The zero Limits bind nothing.
type Limits struct {
	set uint16
	max [AllUnits]int64
}

// Get returns the limit on u, and whether there is one.
func (l *Limits) Get(u Unit) (int64, bool) { return l.max[u], l.set&(1<<u) != 0 }

// Set limits u to n.
func (l *Limits) Set(u Unit, n int64) {
	l.set |= 1 << u
	l.max[u] = n
}

// Unset removes the limit on u.
func (l *Limits) Unset(u Unit) {
	l.set &^= 1 << u
	l.max[u] = 0
}

// Unlimited is the amount none: no limit, not even the one that a run gets by itself.
const Unlimited = math.MaxInt64

// A run without a limit on depth or children gets these, because one script that
// starts itself would fill the machine in seconds.
const (
	UsualDepth    = 5
	UsualChildren = 100
)

// SetUsual sets the limits that a run gets by itself, where l has none.
func (l *Limits) SetUsual() {
	for u, n := range map[Unit]int64{Depth: UsualDepth, Children: UsualChildren} {
		if _, set := l.Get(u); !set {
			l.Set(u, n)
		}
	}
}

// Lift removes every limit that is Unlimited.
func (l *Limits) Lift() {
	l.Each(func(u Unit, n int64) {
		if n == Unlimited {
			l.Unset(u)
		}
	})
}

// IsZero reports whether no limit is set.
func (l Limits) IsZero() bool { return l.set == 0 }

// Each calls f with every limit that is set, in order of units.
func (l *Limits) Each(f func(u Unit, n int64)) {
	for s := l.set; s != 0; s &= s - 1 {
		u := Unit(bits.TrailingZeros16(s))
		f(u, l.max[u])
	}
}

// FormatUnit prints n of unit u as people write it.
func FormatUnit(u Unit, n int64) string {
	switch u {
	case Money:
		return FormatMoney(n)
	case Wall, CPU:
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// ParseUnit reads an amount of unit u as people write it: dollars for money,
// a duration for wall and cpu, a size such as 1MiB for output_bytes, and a
// whole number for the rest; for depth and children also none. It says what it
// expected.
func ParseUnit(u Unit, s string) (int64, error) {
	var n int64
	var err error
	switch u {
	case Money:
		n, err = ParseMoney(s)
	case Wall, CPU:
		var d time.Duration
		if d, err = time.ParseDuration(s); err != nil || d < 0 {
			err = fmt.Errorf("%s: %q: expected a duration such as 30s or 10m", u, s)
		}
		n = int64(d)
	case OutputBytes:
		n, err = parseBytes(s)
	case Depth, Children:
		if s == "none" {
			return Unlimited, nil
		}
		if n, err = strconv.ParseInt(s, 10, 64); err != nil || n < 0 {
			err = fmt.Errorf("%s: %q: expected a whole number, 0 or more, or none", u, s)
		}
	default:
		if n, err = strconv.ParseInt(s, 10, 64); err != nil || n < 0 {
			err = fmt.Errorf("%s: %q: expected a whole number, 0 or more", u, s)
		}
	}
	return n, err
}

func parseBytes(s string) (int64, error) {
	digits, mult := s, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if d, ok := strings.CutSuffix(s, suffix); ok {
			digits, mult = d, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/mult {
		return 0, fmt.Errorf("output_bytes: %q: expected bytes such as 4096, 64KiB or 1MiB", s)
	}
	return n * mult, nil
}

// dollar is one dollar in nano-dollars, the unit of all amounts of money.
const dollar = 1_000_000_000

// ParseMoney reads dollars exactly, to the nano-dollar.
func ParseMoney(s string) (int64, error) {
	bad := fmt.Errorf("money: %q: expected dollars such as 2 or 0.05, at most nine decimals", s)
	whole, frac, point := strings.Cut(s, ".")
	if whole == "" || (point && frac == "") || len(frac) > 9 || strings.ContainsAny(s, "+-_") {
		return 0, bad
	}
	w, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || w > math.MaxInt64/dollar-1 {
		return 0, bad
	}
	f, err := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
	if err != nil {
		return 0, bad
	}
	return w*dollar + f, nil
}

// FormatMoney prints nano-dollars as dollars, exactly, with no more decimals
// than needed.
func FormatMoney(n int64) string {
	sign := ""
	u := uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	s := sign + strconv.FormatUint(u/dollar, 10)
	if f := u % dollar; f != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%09d", f), "0")
	}
	return s
}

// String lists the limits that are set, such as "money 0.5, steps 20".
func (l Limits) String() string {
	var parts []string
	l.Each(func(u Unit, n int64) { parts = append(parts, u.String()+" "+FormatUnit(u, n)) })
	if parts == nil {
		return "no limits"
	}
	return strings.Join(parts, ", ")
}

// MarshalJSON writes the limits that are set, money as a string of dollars.
func (l Limits) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	l.Each(func(u Unit, n int64) { b = appendUnit(b, u, n) })
	return append(b, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote, and numbers.
func (l *Limits) UnmarshalJSON(b []byte) error {
	*l = Limits{}
	return readUnits(b, AllUnits, l.Set)
}

// MarshalJSON writes what is not zero, money as a string of dollars.
func (u Usage) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, n := range u {
		if n != 0 {
			b = appendUnit(b, Unit(i), n)
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote, and numbers.
func (u *Usage) UnmarshalJSON(b []byte) error {
	*u = Usage{}
	return readUnits(b, Units, func(k Unit, n int64) { u[k] = n })
}

func appendUnit(b []byte, u Unit, n int64) []byte {
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(append(append(b, '"'), u.String()...), '"', ':')
	if u == Money || u == Wall || u == CPU {
		return append(append(append(b, '"'), FormatUnit(u, n)...), '"')
	}
	return strconv.AppendInt(b, n, 10)
}

func readUnits(b []byte, below Unit, set func(Unit, int64)) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("limits: expected an object of unit: amount")
	}
	for name, raw := range m {
		u, ok := UnitOf(name)
		if !ok || u >= below {
			return fmt.Errorf("limits: unknown unit %q; expected one of %s", name, strings.Join(unitNames[:below], ", "))
		}
		n, err := ParseUnit(u, string(bytes.Trim(raw, `"`)))
		if err != nil {
			return err
		}
		set(u, n)
	}
	return nil
}

// MoreFlag returns the flag that adds n to the limit on u, as a hint shows it. Of a limit
// of 0 it adds a little.
func MoreFlag(u Unit, n int64) string {
	if n == 0 {
		n = 20
		switch u {
		case Money:
			n = dollar
		case Wall, CPU:
			n = int64(10 * time.Minute)
		}
	}
	return "--" + strings.ReplaceAll(u.String(), "_", "-") + " +" + FormatUnit(u, n)
}
