package jsontext

import (
	"bytes"
	"unicode/utf8"
)

// Canonical appends the canonical form of the value src to dst. The form has no
// blanks, keys in the order of their bytes, and strings with the fewest
// escapes. Each number has one form: 1.0 is 1, 1e2 is 100, -0 is 0, and
// integers keep all their digits. Two texts mean the same if and only if their
// canonical forms are equal. Canonical returns dst unchanged if Check refuses
// src under Strict.
//
// It does not allocate if dst has room for twice the text and no object has
// more than a dozen keys.
func Canonical(dst, src []byte) ([]byte, error) {
	if bad := Check(src, Strict); bad != nil {
		return dst, bad
	}
	r := NewReader(src)
	return appendCanonical(dst, &r), nil
}

// appendCanonical appends the canonical form of the next value of r. The output is a
// parameter and not a field, so that it can live on the caller's stack.
func appendCanonical(out []byte, r *Reader) []byte {
	switch r.Kind() {
	case '{':
		return appendObject(out, r)
	case '[':
		out = append(out, '[')
		for ok := r.Enter(); ok; {
			out = appendCanonical(out, r)
			if ok = r.More(); ok {
				out = append(out, ',')
			}
		}
		return append(out, ']')
	case '"':
		return appendString(out, r.Next())
	case '0':
		var room [40]byte
		d := ParseDecimal(room[:0], r.Next())
		return d.Append(out)
	}
	return append(out, r.Next()...)
}

// A member is the place of a member in the output: its quoted key begins at from
// and ends at key; a colon and its value follow.
type member struct{ from, key, to int }

// appendObject writes the members in the order of the text and remembers their
// places. If that is not their order, it appends sorted copies and moves these
// back over the unsorted members.
func appendObject(out []byte, r *Reader) []byte {
	out = append(out, '{')
	var room [12]member
	members, sorted, start := room[:0], true, len(out)
	for ok := r.Enter(); ok; ok = r.More() {
		if len(members) > 0 {
			out = append(out, ',')
		}
		m := member{from: len(out)}
		out = appendString(out, r.Key())
		m.key = len(out)
		out = appendCanonical(append(out, ':'), r)
		m.to = len(out)
		if n := len(members); n > 0 && sorted {
			sorted = compareKeys(out, members[n-1], m) < 0
		}
		members = append(members, m)
	}
	if !sorted {
		sortMembers(out, members)
		end := len(out)
		for i, m := range members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, out[m.from:m.to]...)
		}
		// The copies are as long as the members themselves, so they fit exactly over them.
		copy(out[start:end], out[end:])
		out = out[:end]
	}
	return append(out, '}')
}

// compareKeys orders two keys without their quotes, because with them "a" would
// come after "a!".
func compareKeys(out []byte, a, b member) int {
	return bytes.Compare(out[a.from+1:a.key-1], out[b.from+1:b.key-1])
}

// sortMembers is a shell sort. A comparison passed to the standard library would
// move the buffer of each caller to the heap.
func sortMembers(out []byte, members []member) {
	for _, gap := range [...]int{1149241, 510774, 227011, 100894, 44842, 19930, 8858, 3937, 1750,
		701, 301, 132, 57, 23, 10, 4, 1} {
		for i := gap; i < len(members); i++ {
			m, j := members[i], i
			for ; j >= gap && compareKeys(out, m, members[j-gap]) < 0; j -= gap {
				members[j] = members[j-gap]
			}
			members[j] = m
		}
	}
}

// appendString appends a quoted string with the fewest escapes.
func appendString(out, v []byte) []byte {
	i := bytes.IndexByte(v, '\\')
	// Without a backslash the text has no escape, and so is canonical already.
	if i < 0 {
		return append(out, v...)
	}
	const hex = "0123456789abcdef"
	for ; i >= 0; i = bytes.IndexByte(v, '\\') {
		out = append(out, v[:i]...)
		char, n := decodeEscape(v[i:])
		switch {
		case char == '"' || char == '\\':
			out = append(out, '\\', byte(char))
		// JSON allows no control character without an escape.
		case char < ' ':
			out = append(out, '\\', 'u', '0', '0', hex[char>>4], hex[char&15])
		default:
			out = utf8.AppendRune(out, char)
		}
		v = v[i+n:]
	}
	return append(out, v...)
}
