package schema

import (
	"bytes"
	"cmp"
	"strconv"
)

// canon reads one value and appends its canonical form. The output is handed
// through instead of kept in the scanner, so that it can live on the stack of
// whoever asked.
func (s *scanner) canon(out []byte) ([]byte, bool) {
	switch c := s.peek(); c {
	case '{':
		return s.canonObject(out)
	case '[':
		return s.canonArray(out)
	case '"':
		t, ok := s.str()
		if ok {
			out = s.quote(out, t)
		}
		return out, ok
	case 't', 'f', 'n':
		from := s.i
		ok := s.value()
		return append(out, s.b[from:s.i]...), ok
	default:
		if c != '-' && (c < '0' || c > '9') {
			return out, s.value() // which says what is wrong
		}
	}
	n, ok := s.number()
	if ok {
		var room [40]byte
		d := parseDecimal(room[:0], n)
		out = d.append(out)
	}
	return out, ok
}

func (s *scanner) canonArray(out []byte) ([]byte, bool) {
	if !s.enter() {
		return out, false
	}
	out = append(out, '[')
	for again := !s.empty(']'); again; {
		var ok bool
		if out, ok = s.canon(out); !ok {
			return out, false
		}
		if again, ok = s.more(']'); !ok {
			return out, false
		}
		if again {
			out = append(out, ',')
		}
	}
	return append(out, ']'), true
}

// member is where a member of an object stands in the output: its key with
// quotes from from to key, then a colon and its value.
type member struct{ from, key, to int }

// canonObject writes the members in the order in which they come, remembers
// where they stand, and puts them in order afterwards if they are not: sorted
// copies go behind them, and back over them.
func (s *scanner) canonObject(out []byte) ([]byte, bool) {
	if !s.enter() {
		return out, false
	}
	out = append(out, '{')
	var room [12]member
	ms, sorted, start := room[:0], true, len(out)
	for again := !s.empty('}'); again; {
		k, ok := s.key()
		if !ok {
			return out, false
		}
		m := member{from: len(out)}
		out = s.quote(out, k)
		m.key = len(out)
		if out, ok = s.canon(append(out, ':')); !ok {
			return out, false
		}
		m.to = len(out)
		if n := len(ms); n > 0 && sorted {
			order := compareKeys(out, ms[n-1], m)
			if order == 0 {
				return out, s.twice(k)
			}
			sorted = order < 0
		}
		ms = append(ms, m)
		if again, ok = s.more('}'); !ok {
			return out, false
		}
		if again {
			out = append(out, ',')
		}
	}
	if !sorted {
		sortMembers(out, ms)
		end := len(out)
		for i, m := range ms {
			if i > 0 {
				if compareKeys(out, ms[i-1], m) == 0 {
					return out, s.fail("the key " + string(out[m.from:m.key]) + " comes twice in one object")
				}
				out = append(out, ',')
			}
			out = append(out, out[m.from:m.to]...)
		}
		copy(out[start:end], out[end:])
		out = out[:end]
	}
	return append(out, '}'), true
}

// compareKeys orders two keys without their quotes: with them, "a" would come
// after "a!".
func compareKeys(out []byte, a, b member) int {
	return bytes.Compare(out[a.from+1:a.key-1], out[b.from+1:b.key-1])
}

// sortMembers is a shell sort: by hand, because a comparison handed to the
// standard library would move every caller's buffer to the heap.
func sortMembers(out []byte, ms []member) {
	for _, gap := range [...]int{1149241, 510774, 227011, 100894, 44842, 19930, 8858, 3937, 1750,
		701, 301, 132, 57, 23, 10, 4, 1} {
		for i := gap; i < len(ms); i++ {
			m, j := ms[i], i
			for ; j >= gap && compareKeys(out, m, ms[j-gap]) < 0; j -= gap {
				ms[j] = ms[j-gap]
			}
			ms[j] = m
		}
	}
}

const hexDigits = "0123456789abcdef"

// quote appends the string t with the fewest escapes.
func (s *scanner) quote(out []byte, t text) []byte {
	out = append(out, '"')
	if !t.escaped {
		return append(append(out, s.raw(t)...), '"')
	}
	raw := s.raw(t)
	var one [4]byte
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			out = append(out, raw...)
			break
		}
		out = append(out, raw[:i]...)
		raw = raw[i:]
		n := escape(raw)
		for _, b := range unescape(one[:0], raw[:n]) {
			switch {
			case b == '"' || b == '\\':
				out = append(out, '\\', b)
			case b < ' ':
				out = append(out, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
			default:
				out = append(out, b)
			}
		}
		raw = raw[n:]
	}
	return append(out, '"')
}

// A decimal is a number without a choice of form: 0.DIGITS times ten to the
// point, where the digits neither begin nor end with 0. Zero has no digits.
type decimal struct {
	neg    bool
	digits []byte
	point  int
}

// parseDecimal reads a number that scanner.number accepted. Its digits go to buf.
func parseDecimal(buf, n []byte) decimal {
	var d decimal
	if n[0] == '-' {
		d.neg, n = true, n[1:]
	}
	i := digits(n)
	buf = append(buf, n[:i]...)
	d.point, n = i, n[i:]
	if len(n) > 0 && n[0] == '.' {
		i = 1 + digits(n[1:])
		buf = append(buf, n[1:i]...)
		n = n[i:]
	}
	if len(n) > 0 {
		e, _ := strconv.Atoi(string(n[1:])) // within bounds: number saw to it
		d.point += e
	}
	zeros := 0
	for zeros < len(buf) && buf[zeros] == '0' {
		zeros++
	}
	d.digits = bytes.TrimRight(buf[zeros:], "0")
	if d.point -= zeros; len(d.digits) == 0 {
		return decimal{}
	}
	return d
}

// integer reports whether d has nothing behind the point.
func (d *decimal) integer() bool { return d.point >= len(d.digits) }

// compare is -1, 0 or 1 as d is less than, equal to or greater than e.
func (d *decimal) compare(e *decimal) int {
	ds, es := d.sign(), e.sign()
	switch {
	case ds != es:
		return cmp.Compare(ds, es)
	case d.point != e.point:
		return ds * cmp.Compare(d.point, e.point)
	}
	return ds * bytes.Compare(d.digits, e.digits)
}

func (d *decimal) sign() int {
	switch {
	case len(d.digits) == 0:
		return 0
	case d.neg:
		return -1
	}
	return 1
}

// append writes d in its one form: as people write it while that takes at most
// 20 zeros more, and as D.DDDeN beyond.
func (d *decimal) append(out []byte) []byte {
	const zeros = "00000000000000000000"
	if len(d.digits) == 0 {
		return append(out, '0')
	}
	if d.neg {
		out = append(out, '-')
	}
	n, p := len(d.digits), d.point
	switch {
	case p >= n && p-n <= len(zeros):
		return append(append(out, d.digits...), zeros[:p-n]...)
	case p > 0 && p < n:
		return append(append(append(out, d.digits[:p]...), '.'), d.digits[p:]...)
	case p <= 0 && -p <= 5:
		return append(append(append(out, "0."...), zeros[:-p]...), d.digits...)
	}
	out = append(out, d.digits[0])
	if n > 1 {
		out = append(append(out, '.'), d.digits[1:]...)
	}
	return strconv.AppendInt(append(out, 'e'), int64(p-1), 10)
}

// NoArgs are the arguments of a call that has none.
var NoArgs = []byte("{}")

// Spelling is the canonical form of the arguments of a call, or the arguments as
// they are when they are not JSON.
func Spelling(scratch, args []byte) []byte {
	if len(args) == 0 {
		return NoArgs
	}
	b, err := Canonical(scratch, args)
	if err != nil {
		return args
	}
	return b
}
