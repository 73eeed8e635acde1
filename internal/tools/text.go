package tools

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// The sizes to which an error cuts the output of a tool.
const (
	maxGot  = 200     // a value
	maxText = 2 << 10 // a message, the end of stderr
)

// head returns the beginning of s, in whole characters.
func head(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	s = s[:most-len("...")]
	for n := 0; n < utf8.UTFMax && s != "" && !endsWhole(s); n++ {
		s = s[:len(s)-1]
	}
	return strings.ToValidUTF8(s, "\uFFFD") + "..."
}

func endsWhole(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return r != utf8.RuneError || n > 1
}

// tail returns the end of s, in whole characters.
func tail(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	s = s[len(s)-most+len("..."):]
	for n := 0; n < utf8.UTFMax && s != "" && !utf8.RuneStart(s[0]); n++ {
		s = s[1:]
	}
	return "..." + strings.ToValidUTF8(s, "\uFFFD")
}

// quoted returns text as a JSON string, nil if it is empty. It replaces bytes that
// are not UTF-8.
func quoted(text []byte) json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	b, _ := marshal(strings.ToValidUTF8(string(text), "\uFFFD")) // a string always encodes
	return b
}

// valid replaces bytes that are not UTF-8.
func valid(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("\uFFFD")) }

// mask replaces a secret.
const mask = "[secret]"

// minSecret is the length of the shortest secret that a censor replaces. A shorter text
// also occurs within ordinary words.
const minSecret = 6

// A censor replaces secrets in the output of a tool. It works on whole texts before
// they are cut, because half a secret is still a secret.
type censor []string

// newCensor makes a censor of secrets. It puts long secrets first, so that the censor
// replaces a secret that contains another one as a whole.
func newCensor(secrets []string) censor {
	c := censor(slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return s == "" }))
	slices.SortFunc(c, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(c)
}

// text returns b without secrets. If b was cut, text also replaces an end of b that may
// be the beginning of a secret.
func (c censor) text(b []byte, cut bool) []byte {
	for _, s := range c {
		if bytes.Contains(b, []byte(s)) {
			b = bytes.ReplaceAll(b, []byte(s), []byte(mask))
		}
	}
	if cut {
		for _, s := range c {
			for n := min(len(s)-1, len(b)); n >= minSecret/2; n-- {
				if bytes.HasSuffix(b, []byte(s[:n])) {
					return append(bytes.Clone(b[:len(b)-n]), mask...)
				}
			}
		}
	}
	return b
}

// withoutRest drops a beginning of b that may be the end of a secret.
func (c censor) withoutRest(b []byte) []byte {
	for _, s := range c {
		for n := min(len(s)-1, len(b)); n >= minSecret/2; n-- {
			if bytes.HasPrefix(b, []byte(s[len(s)-n:])) {
				return b[n:]
			}
		}
	}
	return b
}

// value returns a JSON value without secrets. It finds a secret also in keys, and where
// the JSON writes it with escapes.
func (c censor) value(v json.RawMessage) json.RawMessage {
	if len(c) == 0 {
		return v
	}
	if bytes.IndexByte(v, '\\') < 0 && !slices.ContainsFunc(c, func(s string) bool { return strings.ContainsAny(s, "\\\"") }) {
		return c.text(v, false)
	}
	out := make([]byte, 0, len(v))
	for len(v) > 0 {
		i := bytes.IndexByte(v, '"')
		if i < 0 {
			break
		}
		out = append(out, v[:i]...)
		v = v[i:]
		end := 1
		for v[end] != '"' {
			if v[end] == '\\' {
				end++
			}
			end++
		}
		out = append(out, c.stringToken(v[:end+1])...)
		v = v[end+1:]
	}
	return append(out, v...)
}

func (c censor) stringToken(t []byte) []byte {
	var s string
	if json.Unmarshal(t, &s) != nil {
		return t
	}
	if clean := c.text([]byte(s), false); string(clean) != s {
		b, _ := marshal(string(clean)) // a string always encodes
		return b
	}
	return t
}
