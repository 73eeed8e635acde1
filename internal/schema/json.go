package schema

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of what is read. A document beyond one of them is refused with its
// position, whatever its schema says, so that no document can make a check
// deep, long or expensive.
const (
	MaxDepth  = 500      // arrays and objects within each other
	MaxSize   = 16 << 20 // bytes of one document
	MaxNumber = 1000     // characters of a number, and its largest exponent
)

// A fault says where a document stops being JSON as it is accepted here:
// exactly one value, UTF-8, no key twice in an object, numbers within bounds.
type fault struct {
	off int
	msg string
}

func (f *fault) Error() string { return "at byte " + strconv.Itoa(f.off) + ": " + f.msg }

// Valid reports why b is not one JSON value, or nil. It is stricter than
// encoding/json: a key that comes twice, a lone surrogate and bytes that are
// not UTF-8 are refused, because two readers could understand them differently.
func Valid(b []byte) error {
	if f := valid(b); f != nil {
		return f
	}
	return nil
}

func valid(b []byte) *fault {
	if len(b) > MaxSize {
		return &fault{MaxSize, fmt.Sprintf("the document has %d bytes; at most %d are read", len(b), MaxSize)}
	}
	s := scanner{b: b}
	if s.space(); s.value() {
		if s.space(); s.i < len(b) {
			s.fail("text after the end of the value; expected exactly one JSON value")
		}
	}
	return s.bad
}

// A scanner reads one document from left to right. Its methods report whether
// all is well; bad says what is not.
type scanner struct {
	b     []byte
	i     int
	depth int
	bad   *fault
}

// fail notes the first fault.
func (s *scanner) fail(msg string) bool {
	if s.bad == nil {
		s.bad = &fault{s.i, msg}
	}
	return false
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end; no JSON value begins with 0.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// value reads any one value.
func (s *scanner) value() bool {
	switch c := s.peek(); c {
	case '{':
		return s.object()
	case '[':
		return s.array()
	case '"':
		_, ok := s.str()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || (c >= '0' && c <= '9') {
			_, ok := s.number()
			return ok
		}
		if s.i >= len(s.b) {
			return s.fail("the document ends where a value is expected")
		}
		return s.fail("expected a JSON value")
	}
}

func (s *scanner) literal(w string) bool {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return s.fail("expected " + w)
	}
	s.i += len(w)
	return true
}

// enter goes one level deeper, past the opening bracket.
func (s *scanner) enter() bool {
	if s.depth++; s.depth > MaxDepth {
		return s.fail("nested too deep; at most " + strconv.Itoa(MaxDepth) + " levels are read")
	}
	s.i++
	s.space()
	return true
}

// more steps over the comma between members, or over the closing bracket,
// which ends the loop.
func (s *scanner) more(closing byte) (again, ok bool) {
	s.space()
	switch s.peek() {
	case ',':
		s.i++
		s.space()
		return true, true
	case closing:
		s.i++
		s.depth--
		return false, true
	}
	return false, s.fail("expected , or " + string(rune(closing)))
}

// empty steps over the closing bracket if it comes at once.
func (s *scanner) empty(closing byte) bool {
	if s.peek() != closing {
		return false
	}
	s.i++
	s.depth--
	return true
}

func (s *scanner) array() bool {
	if !s.enter() {
		return false
	}
	if s.empty(']') {
		return true
	}
	for {
		if !s.value() {
			return false
		}
		if again, ok := s.more(']'); !again {
			return ok
		}
	}
}

func (s *scanner) object() bool {
	if !s.enter() {
		return false
	}
	if s.empty('}') {
		return true
	}
	var seen keys
	for {
		k, ok := s.key()
		if !ok || !seen.add(s, k) || !s.value() {
			return false
		}
		if again, ok := s.more('}'); !again {
			return ok
		}
	}
}

// key reads a key and its colon, up to the value.
func (s *scanner) key() (text, bool) {
	if s.peek() != '"' {
		return text{}, s.fail("expected a key in quotes")
	}
	k, ok := s.str()
	if !ok {
		return k, false
	}
	s.space()
	if s.peek() != ':' {
		return k, s.fail("expected : after the key")
	}
	s.i++
	s.space()
	return k, true
}

// text is where the content of a string stands, without its quotes.
type text struct {
	from, to int
	escaped  bool
}

// raw is the content as it was written.
func (s *scanner) raw(t text) []byte { return s.b[t.from:t.to] }

// content is what the string means; it is appended to buf only if it has to be
// decoded.
func (s *scanner) content(t text, buf []byte) []byte {
	if !t.escaped {
		return s.raw(t)
	}
	return unescape(buf, s.raw(t))
}

func (s *scanner) str() (text, bool) {
	b, i := s.b, s.i+1
	t := text{from: i}
	var high byte
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			t.to = i
			s.i = i + 1
			if high >= utf8.RuneSelf && !utf8.Valid(b[t.from:t.to]) {
				s.i = t.from
				return t, s.fail("the string is not UTF-8")
			}
			return t, true
		case c == '\\':
			n := escape(b[i:])
			if n == 0 {
				s.i = i
				return t, s.fail("a bad escape in a string")
			}
			t.escaped = true
			i += n
		case c < ' ':
			s.i = i
			return t, s.fail("a control character in a string; expected an escape such as \\n")
		default:
			high |= c
			i++
		}
	}
	s.i = i
	return t, s.fail("the document ends within a string")
}

// escape returns the length of the escape that b begins with, 0 if it is none.
// A surrogate is good only as a pair.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		switch r := hex4(b); {
		case r < 0:
			return 0
		case !utf16.IsSurrogate(r):
			return 6
		case utf16.DecodeRune(r, hex4(b[6:])) != utf8.RuneError:
			return 12
		}
	}
	return 0
}

// hex4 reads \uXXXX at the start of b, and is -1 if it is not there.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape appends what raw means to buf. Its escapes have been looked at by str.
func unescape(buf, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(buf, raw...)
		}
		buf = append(buf, raw[:i]...)
		raw = raw[i:]
		n := 2
		switch c := raw[1]; c {
		case 'b':
			buf = append(buf, '\b')
		case 'f':
			buf = append(buf, '\f')
		case 'n':
			buf = append(buf, '\n')
		case 'r':
			buf = append(buf, '\r')
		case 't':
			buf = append(buf, '\t')
		case 'u':
			r := hex4(raw)
			if n = 6; utf16.IsSurrogate(r) {
				r, n = utf16.DecodeRune(r, hex4(raw[6:])), 12
			}
			buf = utf8.AppendRune(buf, r)
		default:
			buf = append(buf, c)
		}
		raw = raw[n:]
	}
}

// number reads a number by the grammar of JSON, and keeps it within bounds: a
// few characters such as 1e999999999 must not cost a gigabyte later.
func (s *scanner) number() ([]byte, bool) {
	b, from := s.b, s.i
	i := from
	if b[i] == '-' {
		i++
	}
	switch n := digits(b[i:]); {
	case n == 0:
		s.i = i
		return nil, s.fail("expected a digit")
	case n > 1 && b[i] == '0':
		s.i = i
		return nil, s.fail("a number begins with 0")
	default:
		i += n
	}
	if i < len(b) && b[i] == '.' {
		n := digits(b[i+1:])
		if n == 0 {
			s.i = i + 1
			return nil, s.fail("expected a digit after the point")
		}
		i += 1 + n
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b[i:])
		if n == 0 {
			s.i = i
			return nil, s.fail("expected a digit in the exponent")
		}
		if e, err := strconv.Atoi(string(b[i : i+min(n, 20)])); err != nil || n > 20 || e > MaxNumber {
			return nil, s.fail("an exponent beyond " + strconv.Itoa(MaxNumber))
		}
		i += n
	}
	if i-from > MaxNumber {
		return nil, s.fail("a number of more than " + strconv.Itoa(MaxNumber) + " characters")
	}
	s.i = i
	return b[from:i], true
}

func digits(b []byte) int {
	for i, c := range b {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(b)
}

// keys remembers the keys of one object, to see one that comes twice. A few
// plain keys are compared in place; many, or escaped ones, go into a map.
type keys struct {
	n    int
	few  [12]text
	many map[string]struct{}
}

func (k *keys) add(s *scanner, t text) bool {
	if k.many == nil {
		if k.n < len(k.few) && !t.escaped {
			raw := s.raw(t)
			for _, o := range k.few[:k.n] {
				if o.to-o.from == len(raw) && bytes.Equal(s.raw(o), raw) {
					return s.twice(t)
				}
			}
			k.few[k.n] = t
			k.n++
			return true
		}
		k.many = make(map[string]struct{}, 2*len(k.few))
		for _, o := range k.few[:k.n] {
			k.many[string(s.raw(o))] = struct{}{}
		}
	}
	c := s.content(t, nil)
	if _, ok := k.many[string(c)]; ok {
		return s.twice(t)
	}
	k.many[string(c)] = struct{}{}
	return true
}

func (s *scanner) twice(t text) bool {
	s.i = t.from
	return s.fail("the key " + strconv.Quote(string(s.content(t, nil))) + " comes twice in one object")
}

// Canonical appends the canonical form of the one JSON value src to dst:
// no space, keys in the order of their bytes, every string with the fewest
// escapes, every number in one form (1.0 is 1, 1e2 is 100, -0 is 0; integers
// keep all their digits). Two documents mean the same if and only if their
// canonical forms are equal. If src is refused, dst comes back as it was.
//
// It does not allocate when dst has room for twice the document and no object
// has more than a dozen keys.
func Canonical(dst, src []byte) ([]byte, error) {
	if len(src) > MaxSize {
		return dst, valid(src)
	}
	s := scanner{b: src}
	s.space()
	out, ok := s.canon(dst)
	if !ok {
		return dst, s.bad
	}
	if s.space(); s.i < len(src) {
		s.fail("text after the end of the value; expected exactly one JSON value")
		return dst, s.bad
	}
	return out, nil
}
