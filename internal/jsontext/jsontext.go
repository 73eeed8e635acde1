// Package jsontext reads JSON where it stands: what a text says is found without
// copying it, so that it can be changed in one place and left alone in all
// others.
//
// [Check] reads a text once and for all. The other functions read only what it
// has passed, and may panic on anything else.
package jsontext

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth bounds arrays and objects within each other, and MaxKeys the members
// of one object where all of them are compared.
const (
	MaxDepth = 256
	MaxKeys  = 1 << 16
)

// A Fault is a place where a text is not the JSON that is read here.
type Fault struct {
	Where string // JSON pointer, of a strict check
	Want  string // what was expected there
	Cut   bool   // the text is a beginning: it ends where more was expected
}

// Check reports why b is not one JSON value, nil if it is. With strict set, an
// object may not have the same key twice: two readers could take two values.
func Check(b []byte, strict bool) *Fault {
	c := checker{b: b, strict: strict}
	c.space()
	c.value()
	if c.fail == nil {
		if c.space(); c.i < len(b) {
			c.wrong("nothing after the value")
		}
	}
	return c.fail
}

// A checker reads a text once. Where it is not strict it allocates nothing, and
// a fault has no pointer.
type checker struct {
	b      []byte
	i      int
	depth  int
	strict bool
	path   []step   // while strict
	keys   [][]byte // of the open objects, one after the other
	fail   *Fault
}

// A step leads to a member or, without a key, to an element.
type step struct {
	key   []byte
	index int
}

func (c *checker) wrong(want string) bool {
	if c.fail != nil {
		return false
	}
	var p strings.Builder
	for _, s := range c.path {
		p.WriteByte('/')
		if s.key == nil {
			p.WriteString(strconv.Itoa(s.index))
			continue
		}
		name, _ := Text(s.key)
		p.WriteString(Pointer(name))
	}
	c.fail = &Fault{p.String(), fmt.Sprintf("at byte %d, expected %s", c.i, want), c.i >= len(c.b)}
	return false
}

// Pointer writes a name as a step of a JSON pointer.
func Pointer(name string) string {
	if len(name) > 60 {
		name = strings.ToValidUTF8(name[:60], "") + "..."
	}
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func (c *checker) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\n', '\r', '\t':
			c.i++
		default:
			return
		}
	}
}

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
		return c.str()
	case d == '-' || d >= '0' && d <= '9':
		return c.number()
	case d == 't':
		return c.word("true")
	case d == 'f':
		return c.word("false")
	case d == 'n':
		return c.word("null")
	}
	return c.wrong("a JSON value")
}

func (c *checker) word(w string) bool {
	if len(c.b)-c.i < len(w) || string(c.b[c.i:c.i+len(w)]) != w {
		return c.wrong(w)
	}
	c.i += len(w)
	return true
}

func (c *checker) digits() bool {
	from := c.i
	for d := c.peek(); d >= '0' && d <= '9'; d = c.peek() {
		c.i++
	}
	return c.i > from || c.wrong("a digit")
}

func (c *checker) number() bool {
	if c.peek() == '-' {
		c.i++
	}
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
		return c.digits()
	}
	return true
}

// Plain returns the first place from i on where b has a quote, a backslash or
// a control character. Eight bytes are looked at together: images are long.
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

func (c *checker) str() bool {
	for c.i++; ; {
		c.i = Plain(c.b, c.i)
		switch c.peek() {
		case '"':
			c.i++
			return true
		case '\\':
			if c.i++; !c.escape() {
				return false
			}
		default:
			return c.wrong("the end of a string, and no bare control character within")
		}
	}
}

func (c *checker) escape() bool {
	switch c.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.i++
		return true
	case 'u':
		for range 4 {
			c.i++
			d := c.peek()
			if hex := d >= '0' && d <= '9' || d >= 'a' && d <= 'f' || d >= 'A' && d <= 'F'; !hex {
				return c.wrong("four hexadecimal digits")
			}
		}
		c.i++
		return true
	}
	return c.wrong("an escape that JSON knows")
}

func (c *checker) enter() bool {
	if c.depth++; c.depth > MaxDepth {
		return c.wrong(fmt.Sprintf("at most %d arrays and objects within each other", MaxDepth))
	}
	if c.strict {
		c.path = append(c.path, step{})
	}
	c.i++
	c.space()
	return true
}

func (c *checker) leave() bool {
	if c.depth--; c.strict {
		c.path = c.path[:c.depth]
	}
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
		if c.strict {
			c.path[c.depth-1] = step{index: n}
		}
		if c.space(); !c.value() {
			return false
		}
		switch c.space(); c.peek() {
		case ',':
			c.i++
		case ']':
			return c.leave()
		default:
			return c.wrong("a comma or the end of the array")
		}
	}
}

func (c *checker) object() bool {
	if !c.enter() {
		return false
	}
	mine := len(c.keys)
	if c.peek() == '}' {
		return c.leave()
	}
	for {
		from := c.i
		if c.peek() != '"' {
			return c.wrong("a key in quotes")
		}
		if !c.str() {
			return false
		}
		key := c.b[from:c.i]
		if c.strict {
			c.path[c.depth-1] = step{key: key}
			if c.keys = append(c.keys, key); len(c.keys)-mine > MaxKeys {
				return c.wrong(fmt.Sprintf("at most %d members of one object", MaxKeys))
			}
		}
		if c.space(); c.peek() != ':' {
			return c.wrong("a colon after the key")
		}
		c.i++
		if c.space(); !c.value() {
			return false
		}
		switch c.space(); c.peek() {
		case ',':
			c.i++
			c.space()
		case '}':
			if c.strict && !c.distinct(c.keys[mine:]) {
				return false
			}
			c.keys = c.keys[:mine]
			return c.leave()
		default:
			return c.wrong("a comma or the end of the object")
		}
	}
}

// distinct looks for two keys that are the same, however they are written.
func (c *checker) distinct(keys [][]byte) bool {
	if len(keys) > 16 {
		seen := make(map[string]bool, len(keys))
		for _, k := range keys {
			name, _ := Text(k)
			if seen[name] {
				return c.twice(k)
			}
			seen[name] = true
		}
		return true
	}
	for i, k := range keys {
		for _, other := range keys[:i] {
			if sameKey(k, other) {
				return c.twice(k)
			}
		}
	}
	return true
}

func (c *checker) twice(key []byte) bool {
	c.path[c.depth-1] = step{key: key}
	return c.wrong("the key " + Clip(string(key)) + " only once")
}

func sameKey(a, b []byte) bool {
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Equal(a, b)
	}
	x, _ := Text(a)
	y, _ := Text(b)
	return x == y
}

// What follows reads JSON that check has passed.

// Skip returns the end of the value that begins at i.
func Skip(b []byte, i int) int {
	switch b[i] {
	case '"':
		return i + 1 + quote(b[i+1:])
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = Skip(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if i++; depth == 0 {
				return i
			}
		}
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return i
		}
		i++
	}
	return i
}

// quote returns where b goes on behind the end of the string that it begins
// within. A quote ends it that an even number of backslashes stands before.
func quote(b []byte) int {
	for i := 0; ; {
		k := bytes.IndexByte(b[i:], '"')
		if k < 0 {
			return len(b)
		}
		n := 0
		for j := i + k - 1; j >= i && b[j] == '\\'; j-- {
			n++
		}
		if i += k + 1; n%2 == 0 {
			return i
		}
	}
}

func Blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// Kind tells what kind of value v is by its first character: one of {["0tfn,
// where 0 stands for any number. An absent value is null.
func Kind(v []byte) byte {
	if len(v) == 0 {
		return 'n'
	}
	if v[0] == '-' || v[0] >= '0' && v[0] <= '9' {
		return '0'
	}
	return v[0]
}

// Members yields the keys, without their quotes, and the values of an object;
// nothing for any other value.
func Members(v []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, val []byte) bool) {
		for key, val := range Spans(v) {
			name := v[key.From+1 : key.To-1]
			if bytes.IndexByte(name, '\\') >= 0 {
				s, _ := Text(v[key.From:key.To])
				name = []byte(s)
			}
			if !yield(name, v[val.From:val.To]) {
				return
			}
		}
	}
}

// A Span is a part of a text.
type Span struct{ From, To int }

// Spans yields where an object's keys and values stand.
func Spans(v []byte) iter.Seq2[Span, Span] {
	return func(yield func(key, val Span) bool) {
		if Kind(v) != '{' {
			return
		}
		for i := Blank(v, 1); v[i] != '}'; {
			key := Span{i, Skip(v, i)}
			val := Span{From: Blank(v, Blank(v, key.To)+1)}
			val.To = Skip(v, val.From)
			if !yield(key, val) {
				return
			}
			if i = Blank(v, val.To); v[i] == ',' {
				i = Blank(v, i+1)
			}
		}
	}
}

// Elements yields the values of an array; nothing for any other value.
func Elements(v []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if Kind(v) != '[' {
			return
		}
		n := 0
		for i := Blank(v, 1); v[i] != ']'; n++ {
			to := Skip(v, i)
			if !yield(n, v[i:to]) {
				return
			}
			if i = Blank(v, to); v[i] == ',' {
				i = Blank(v, i+1)
			}
		}
	}
}

// Get returns the member name of an object, nil if there is none.
func Get(v []byte, name string) (found []byte) {
	for k, val := range Members(v) {
		if string(k) == name {
			found = val // of two the last, as most readers have it
		}
	}
	return found
}

// Text decodes a string; ok is false for any other value.
func Text(v []byte) (s string, ok bool) {
	if Kind(v) != '"' {
		return "", false
	}
	if bytes.IndexByte(v, '\\') < 0 {
		s = string(v[1 : len(v)-1])
		if !utf8.ValidString(s) {
			s = string([]rune(s)) // each wrong byte becomes a mark, as in the standard library
		}
		return s, true
	}
	return unquote(v[1 : len(v)-1]), true
}

// unquote takes the escapes out of what stands between quotes. A surrogate
// without its other half becomes a mark, and so does each wrong byte, as in the
// standard library, which takes six times as long: every text of a conversation
// is read with each of its requests.
func unquote(v []byte) string {
	var b strings.Builder
	b.Grow(len(v))
	for {
		i := bytes.IndexByte(v, '\\')
		if i < 0 {
			break
		}
		b.Write(v[:i])
		c := v[i+1]
		v = v[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := unit(v)
			v = v[4:]
			if utf16.IsSurrogate(r) {
				pair := utf8.RuneError
				if len(v) >= 6 && v[0] == '\\' && v[1] == 'u' {
					pair = utf16.DecodeRune(r, unit(v[2:]))
				}
				if r = pair; pair != utf8.RuneError {
					v = v[6:]
				}
			}
			b.WriteRune(r)
			continue
		}
		b.WriteByte(c)
	}
	b.Write(v)
	if !utf8.ValidString(b.String()) {
		return string([]rune(b.String()))
	}
	return b.String()
}

// unit reads four hexadecimal digits.
func unit(v []byte) (r rune) {
	for _, d := range v[:4] {
		if d > '9' {
			d += 9 // a letter, of either case
		}
		r = r<<4 | rune(d&15)
	}
	return r
}

// Bare are the bytes of the string v, empty if it is none. They stand in v if
// nothing in them is escaped.
func Bare(v []byte) []byte {
	if Kind(v) != '"' {
		return nil
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	return []byte(String(v))
}

// String is the string v, empty if it is none.
func String(v []byte) string {
	s, _ := Text(v)
	return s
}

// Whole reads a whole number that fits; a number with a fraction of nothing,
// or an exponent, is one too.
func Whole(v []byte) (int64, bool) {
	if Kind(v) != '0' {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != float64(int64(f)) || f >= 1<<53 || f <= -1<<53 {
		return 0, false
	}
	return int64(f), true
}

// Quote writes s as JSON without the escapes that are meant for HTML.
func Quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes, and a Buffer always writes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Clip keeps a quoted value in an error short.
func Clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
