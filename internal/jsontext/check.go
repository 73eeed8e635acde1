package jsontext

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Rules say how strictly [Check] reads. Each level includes the one before.
type Rules int

const (
	// Lenient accepts any JSON. It is for the answers of providers.
	Lenient Rules = iota
	// UniqueKeys also refuses an object with the same key twice, because two readers
	// could take two values. It is for the requests of programs.
	UniqueKeys
	// Strict also refuses bytes that are not UTF-8, half a surrogate pair,
	// numbers beyond MaxNumber and texts beyond MaxSize. It is for arguments and
	// results.
	Strict
)

// An Error says where a text stops being the JSON that the rules accept.
type Error struct {
	Offset  int    // in bytes
	Pointer string // JSON pointer to the value; empty under Lenient
	Want    string // what Check expected there
	Cut     bool   // the text ends too early; it may be the beginning of valid JSON
}

func (e *Error) Error() string {
	if e.Cut {
		return fmt.Sprintf("the text ends at byte %d, expected %s", e.Offset, e.Want)
	}
	return fmt.Sprintf("at byte %d, expected %s", e.Offset, e.Want)
}

// Check returns nil if b is exactly one JSON value under the rules. It allocates
// only for its error and for objects of many keys.
func Check(b []byte, rules Rules) *Error {
	if rules == Strict && len(b) > MaxSize {
		return &Error{Offset: MaxSize, Want: fmt.Sprintf("the end, because at most %d bytes are read", MaxSize)}
	}
	c := checker{b: b, rules: rules}
	c.space()
	if c.value() {
		if c.space(); c.i < len(b) {
			c.fail("nothing after the value")
		}
	}
	return c.err
}

// A checker reads a text once. Its methods return false after the first error.
type checker struct {
	b     []byte
	i     int
	depth int
	rules Rules
	err   *Error
}

// A key is the text of a member name without its quotes.
type key struct {
	Span
	escaped bool
}

func (c *checker) fail(want string) bool {
	if c.err == nil {
		c.err = &Error{Offset: c.i, Want: want, Cut: c.i >= len(c.b)}
	}
	return false
}

// within adds a step to the pointer of an error. The callers of value add their steps
// on the way back, so a text without an error costs nothing.
func (c *checker) within(step string) bool {
	if c.rules > Lenient {
		c.err.Pointer = "/" + step + c.err.Pointer
	}
	return false
}

func (c *checker) space() { c.i = Blank(c.b, c.i) }

// peek returns the next byte, or 0 at the end.
func (c *checker) peek() byte {
	if c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

func (c *checker) value() bool {
	switch d := c.peek(); {
	case d == '{':
		return c.object()
	case d == '[':
		return c.array()
	case d == '"':
		_, ok := c.str()
		return ok
	case d == '-' || d >= '0' && d <= '9':
		return c.number()
	case d == 't':
		return c.literal("true")
	case d == 'f':
		return c.literal("false")
	case d == 'n':
		return c.literal("null")
	}
	return c.fail("a JSON value")
}

func (c *checker) literal(word string) bool {
	if len(c.b)-c.i < len(word) || string(c.b[c.i:c.i+len(word)]) != word {
		return c.fail(word)
	}
	c.i += len(word)
	return true
}

// digits steps over one digit or more.
func (c *checker) digits() bool {
	n := countDigits(c.b[c.i:])
	c.i += n
	return n > 0 || c.fail("a digit")
}

func countDigits(b []byte) int {
	for i, d := range b {
		if d < '0' || d > '9' {
			return i
		}
	}
	return len(b)
}

func (c *checker) number() bool {
	from := c.i
	if c.peek() == '-' {
		c.i++
	}
	// JSON allows no zero in front of other digits.
	if c.peek() == '0' {
		c.i++
	} else if !c.digits() {
		return false
	}
	if c.peek() == '.' {
		if c.i++; !c.digits() {
			return false
		}
	}
	if d := c.peek(); d == 'e' || d == 'E' {
		if c.i++; c.peek() == '+' || c.peek() == '-' {
			c.i++
		}
		exponent := c.i
		if !c.digits() {
			return false
		}
		// 1e999999999 is short, and its digits would fill a gigabyte.
		e, err := strconv.Atoi(string(c.b[exponent:min(c.i, exponent+20)]))
		if c.rules == Strict && (err != nil || c.i-exponent > 20 || e > MaxNumber) {
			c.i = exponent
			return c.fail("an exponent of at most " + strconv.Itoa(MaxNumber))
		}
	}
	if c.rules == Strict && c.i-from > MaxNumber {
		c.i = from
		return c.fail("a number of at most " + strconv.Itoa(MaxNumber) + " characters")
	}
	return true
}

// Plain returns the first place from i on where b has a quote, a backslash or
// a control character. It looks at eight bytes at once, because images are long.
func Plain(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		q, s := w^(ones*'"'), w^(ones*'\\')
		if ((q-ones)&^q|(s-ones)&^s|(w-ones*0x20)&^w)&tops != 0 {
			break
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	return i
}

// str steps over a string and returns its text.
func (c *checker) str() (k key, ok bool) {
	c.i++
	k.From = c.i
	for {
		c.i = Plain(c.b, c.i)
		switch c.peek() {
		case '"':
			k.To = c.i
			// Checked for the whole string at once, because that is faster than each character.
			if c.rules == Strict && !utf8.Valid(c.b[k.From:k.To]) {
				c.i = k.From
				return k, c.fail("a string in UTF-8")
			}
			c.i++
			return k, true
		case '\\':
			if k.escaped = true; !c.escape() {
				return k, false
			}
		default:
			if c.i < len(c.b) {
				return k, c.fail("an escape such as \\n instead of a control character")
			}
			return k, c.fail("the end of the string")
		}
	}
}

func (c *checker) escape() bool {
	if c.i++; c.i >= len(c.b) {
		return c.fail("the rest of an escape")
	}
	if c.b[c.i] != 'u' {
		if strings.IndexByte(`"\/bfnrt`, c.b[c.i]) < 0 {
			return c.fail("an escape of JSON")
		}
		c.i++
		return true
	}
	from := c.i - 1
	if !c.hexDigits() {
		return false
	}
	if c.rules == Strict && utf16.IsSurrogate(unit(c.b[from+2:])) {
		// The second half must follow at once, and the pair must be a character.
		low := c.i
		paired := bytes.HasPrefix(c.b[low:], []byte(`\u`))
		if c.i++; !paired || !c.hexDigits() || utf16.DecodeRune(unit(c.b[from+2:]), unit(c.b[low+2:])) == utf8.RuneError {
			// The error of the second half would hide that the first half is alone.
			c.i, c.err = from, nil
			return c.fail("a whole surrogate pair")
		}
	}
	return true
}

// hexDigits steps over the letter u and four hexadecimal digits.
func (c *checker) hexDigits() bool {
	for range 4 {
		c.i++
		d := c.peek()
		if hex := d >= '0' && d <= '9' || d >= 'a' && d <= 'f' || d >= 'A' && d <= 'F'; !hex {
			return c.fail("four hexadecimal digits")
		}
	}
	c.i++
	return true
}

// enter steps over an opening bracket.
func (c *checker) enter() bool {
	if c.depth++; c.depth > MaxDepth {
		return c.fail("at most " + strconv.Itoa(MaxDepth) + " arrays and objects within each other")
	}
	c.i++
	c.space()
	return true
}

// leave steps over a closing bracket.
func (c *checker) leave() bool {
	c.depth--
	c.i++
	return true
}

func (c *checker) array() bool {
	if !c.enter() {
		return false
	}
	if c.peek() == ']' {
		return c.leave()
	}
	for n := 0; ; n++ {
		if c.space(); !c.value() {
			return c.within(strconv.Itoa(n))
		}
		switch c.space(); c.peek() {
		case ',':
			c.i++
		case ']':
			return c.leave()
		default:
			c.fail("a comma or the end of the array")
			return c.within(strconv.Itoa(n))
		}
	}
}

func (c *checker) object() bool {
	if !c.enter() {
		return false
	}
	if c.peek() == '}' {
		return c.leave()
	}
	var seen keySet
	for {
		if c.peek() != '"' {
			return c.fail("a key in quotes")
		}
		k, ok := c.str()
		if !ok {
			return false
		}
		// Two readers may take different values of a key that comes twice.
		if c.rules > Lenient && !c.unique(&seen, k) || !c.member() {
			return c.within(Pointer(c.name(k)))
		}
		switch c.space(); c.peek() {
		case ',':
			c.i++
			c.space()
		case '}':
			return c.leave()
		default:
			c.fail("a comma or the end of the object")
			return c.within(Pointer(c.name(k)))
		}
	}
}

// member reads what follows a key.
func (c *checker) member() bool {
	if c.space(); c.peek() != ':' {
		return c.fail("a colon after the key")
	}
	c.i++
	c.space()
	return c.value()
}

func (c *checker) name(k key) string { return unquote(c.b[k.From:k.To]) }

// A keySet holds the keys of one object. It compares a few plain keys in place;
// many keys and keys with escapes go into a map.
type keySet struct {
	n    int
	few  [12]key
	many map[string]bool
}

// unique adds k to the keys of an object. It fails if the object has k already,
// however the two are escaped.
func (c *checker) unique(s *keySet, k key) bool {
	// The map grows with the keys, so a text from outside must not decide its size.
	if s.n++; s.n > MaxKeys {
		return c.fail("at most " + strconv.Itoa(MaxKeys) + " members of one object")
	}
	twice := false
	if s.many == nil && s.n <= len(s.few) && !k.escaped {
		for _, other := range s.few[:s.n-1] {
			twice = twice || bytes.Equal(c.b[k.From:k.To], c.b[other.From:other.To])
		}
		s.few[s.n-1] = k
	} else {
		if s.many == nil {
			s.many = make(map[string]bool, 2*len(s.few))
			for _, other := range s.few[:s.n-1] {
				s.many[c.name(other)] = true
			}
		}
		name := c.name(k)
		twice = s.many[name]
		s.many[name] = true
	}
	if twice {
		c.i = k.From - 1
		return c.fail("the key " + strconv.Quote(Clip(c.name(k))) + " only once in one object")
	}
	return true
}
