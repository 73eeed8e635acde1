package jsontext

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A Reader goes through a checked text once, from left to right:
//
//	for ok := r.Enter(); ok; ok = r.More() {
//		key := r.Key()    // in an object
//		value := r.Next() // or Enter again, for an array or object
//	}
//
// A copy of a Reader reads the same value again.
type Reader struct {
	text []byte
	at   int
}

// NewReader returns a Reader in front of the value of a text.
func NewReader(text []byte) Reader { return Reader{text, Blank(text, 0)} }

// Kind returns the kind of the next value; see [Kind].
func (r *Reader) Kind() byte { return Kind(r.text[r.at:]) }

// Next steps over the next value and returns it.
func (r *Reader) Next() []byte {
	from := r.at
	r.at = Skip(r.text, from)
	return r.text[from:r.at]
}

// Enter steps into an array or object. It returns false if that is empty, and
// has then stepped over it.
func (r *Reader) Enter() bool {
	r.at = Blank(r.text, r.at+1)
	if c := r.text[r.at]; c == ']' || c == '}' {
		r.at++
		return false
	}
	return true
}

// More steps to the next element or member. It returns false behind the last
// one, and has then left the array or object.
func (r *Reader) More() bool {
	r.at = Blank(r.text, r.at)
	comma := r.text[r.at] == ','
	if r.at++; comma {
		r.at = Blank(r.text, r.at)
	}
	return comma
}

// Key steps over the key of a member and returns it in quotes.
func (r *Reader) Key() []byte {
	key := r.Next()
	r.at = Blank(r.text, Blank(r.text, r.at)+1) // the colon
	return key
}

// Skip returns the end of the value that begins at i.
func Skip(b []byte, i int) int {
	switch b[i] {
	case '"':
		return i + 1 + endOfString(b[i+1:])
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				// A bracket within a string does not count.
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

// endOfString returns the place after the quote that ends the string. A quote
// ends the string if an even number of backslashes stands before the quote.
func endOfString(b []byte) int {
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

// Blank returns the first place from i on that is not blank.
func Blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// Kind returns the kind of v by its first character: one of {["0tfn, where 0
// is any number. An absent value is null.
func Kind(v []byte) byte {
	if len(v) == 0 {
		return 'n'
	}
	if v[0] == '-' || v[0] >= '0' && v[0] <= '9' {
		return '0'
	}
	return v[0]
}

// A Span is a part of a text.
type Span struct{ From, To int }

// Spans yields the places of an object's keys and values; nothing for any other
// kind of value.
func Spans(v []byte) iter.Seq2[Span, Span] {
	return func(yield func(key, val Span) bool) {
		if Kind(v) != '{' {
			return
		}
		r := Reader{text: v}
		for ok := r.Enter(); ok; ok = r.More() {
			key := Span{From: r.at}
			key.To = key.From + len(r.Key())
			from := r.at
			if r.Next(); !yield(key, Span{from, r.at}) {
				return
			}
		}
	}
}

// Members yields the names and the values of an object; nothing for any other
// kind of value.
//
// A function that calls itself for the values reads a deep text once for each
// level. A [Reader] reads each byte once.
func Members(v []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, val []byte) bool) {
		if Kind(v) != '{' {
			return
		}
		r := Reader{text: v}
		for ok := r.Enter(); ok; ok = r.More() {
			name := Bare(r.Key())
			if !yield(name, r.Next()) {
				return
			}
		}
	}
}

// Elements yields the values of an array; nothing for any other kind of value.
func Elements(v []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if Kind(v) != '[' {
			return
		}
		r := Reader{text: v}
		n := 0
		for ok := r.Enter(); ok; ok = r.More() {
			if !yield(n, r.Next()) {
				return
			}
			n++
		}
	}
}

// Get returns the member name of an object, nil if there is none. If a key comes
// twice it returns the last value, as most readers do.
func Get(v []byte, name string) (found []byte) {
	for k, val := range Members(v) {
		if string(k) == name {
			found = val
		}
	}
	return found
}

// Text decodes a string; ok is false for any other kind of value. A byte that is
// not UTF-8 and half a surrogate pair become U+FFFD, as in encoding/json.
func Text(v []byte) (s string, ok bool) {
	if Kind(v) != '"' {
		return "", false
	}
	return unquote(v[1 : len(v)-1]), true
}

// String decodes a string; it is empty for any other kind of value.
func String(v []byte) string {
	s, _ := Text(v)
	return s
}

// Bare returns the bytes of a decoded string; nil for any other kind of value. It copies only a string with escapes.
func Bare(v []byte) []byte {
	if Kind(v) != '"' {
		return nil
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	return []byte(String(v))
}

// unquote decodes the text between quotes. encoding/json takes six times as
// long, and every text of a conversation is read with each request.
func unquote(v []byte) string {
	var b strings.Builder
	for i := bytes.IndexByte(v, '\\'); i >= 0; i = bytes.IndexByte(v, '\\') {
		if b.Len() == 0 {
			b.Grow(len(v))
		}
		b.Write(v[:i])
		char, n := decodeEscape(v[i:])
		b.WriteRune(char)
		v = v[i+n:]
	}
	s := string(v)
	if b.Len() > 0 {
		b.Write(v)
		s = b.String()
	}
	if !utf8.ValidString(s) {
		return string([]rune(s))
	}
	return s
}

// decodeEscape returns the character of the escape that v begins with, and the
// length of the escape.
func decodeEscape(v []byte) (char rune, n int) {
	switch c := v[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		char = unit(v[2:])
		if !utf16.IsSurrogate(char) {
			return char, 6
		}
		// Half a pair is possible here, because Lenient accepts it.
		if len(v) >= 12 && v[6] == '\\' && v[7] == 'u' {
			if pair := utf16.DecodeRune(char, unit(v[8:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	default:
		return rune(c), 2
	}
}

// unit reads four hexadecimal digits.
func unit(v []byte) (char rune) {
	for _, d := range v[:4] {
		if d > '9' {
			d += 9 // a letter, of either case
		}
		char = char<<4 | rune(d&15)
	}
	return char
}

// Whole reads a whole number that fits into an int64. The numbers 1.0 and 1e3
// are whole too.
func Whole(v []byte) (int64, bool) {
	if Kind(v) != '0' {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	// Beyond 2^53 a float no longer holds every integer, so the number could be another one.
	if err != nil || f != float64(int64(f)) || f >= 1<<53 || f <= -1<<53 {
		return 0, false
	}
	return int64(f), true
}
