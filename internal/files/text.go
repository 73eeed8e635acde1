package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// binary reports whether b is not text. Binary content has a zero byte near its
// beginning, or is mostly not UTF-8.
func binary(b []byte) bool {
	const look = 8000
	b = b[:min(len(b), look)]
	if bytes.IndexByte(b, 0) >= 0 {
		return true
	}
	bad := 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 && len(b)-i >= utf8.UTFMax { // not at the end, where a character may be cut
			bad++
		}
		i += n
	}
	return bad*10 > len(b)
}

// kindNote returns a guess at the kind of a binary file.
func kindNote(b []byte) string {
	kind, _, _ := strings.Cut(http.DetectContentType(b), ";")
	switch kind {
	case "application/octet-stream", "text/plain":
		return ""
	}
	return ", " + kind
}

// splitLines cuts text after each newline. The last line may have no newline.
func splitLines(b []byte) (lines [][]byte) {
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			n = len(b)
		}
		lines = append(lines, b[:n])
		b = b[n:]
	}
	return lines
}

// trimLineEnd returns a line without its line end.
func trimLineEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// crlf reports whether every line end of b is CR LF.
func crlf(b []byte) bool {
	n := bytes.Count(b, []byte("\n"))
	return n > 0 && n == bytes.Count(b, []byte("\r\n"))
}

// clipLine returns a line as it appears in an answer: UTF-8, and at most most bytes.
func clipLine(line []byte, most int) string {
	line = trimLineEnd(line)
	if len(line) <= most {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	cut := line[:most]
	// A character may not be cut in half.
	for n := 0; n < utf8.UTFMax-1 && len(cut) > 0; n++ {
		if r, size := utf8.DecodeLastRune(cut); r != utf8.RuneError || size != 1 {
			break
		}
		cut = cut[:len(cut)-1]
	}
	return fmt.Sprintf("%s ... [%d more bytes]", strings.ToValidUTF8(string(cut), "\uFFFD"), len(line)-len(cut))
}

// quote returns text as a JSON string with as few escapes as possible.
func quote(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // encoding a string never fails
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// A sheet is an answer that takes lines up to a limit in bytes of JSON.
type sheet struct {
	b    strings.Builder
	left int64
}

// footer is the number of bytes that a sheet keeps free for notes at its end.
const footer = 300

func newSheet(most int64) *sheet { return &sheet{left: most - footer} }

// line adds a line and reports whether the limit allowed it.
func (s *sheet) line(text string) bool {
	// Escapes make a line longer in JSON, and the limit counts JSON.
	n := int64(len(quote(text)))
	if n > s.left {
		return false
	}
	s.left -= n
	s.b.WriteString(text)
	s.b.WriteByte('\n')
	return true
}

// end returns the answer. It appends each note as a line in brackets.
func (s *sheet) end(notes ...string) string {
	for _, n := range notes {
		if n != "" {
			s.b.WriteString("[" + n + "]\n")
		}
	}
	return strings.TrimSuffix(s.b.String(), "\n")
}

// plural returns a number with its noun, in the plural unless the number is 1.
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	case strings.HasSuffix(noun, "ch"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// similarNames returns the names that are most similar to want, the best first.
func similarNames(want string, names []string, most int) []string {
	type scored struct {
		name  string
		score float64
	}
	var list []scored
	w := pairsOf(strings.ToLower(want))
	for _, n := range names {
		// Below one half the names have little in common, and a hint would mislead.
		if s := w.similarity(pairsOf(strings.ToLower(n))); s >= 0.5 {
			list = append(list, scored{n, s})
		}
	}
	slices.SortStableFunc(list, func(a, b scored) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	var out []string
	for _, s := range list[:min(most, len(list))] {
		out = append(out, s.name)
	}
	return out
}

// pairs counts the pairs of neighbouring bytes of a text. Two texts are similar if they
// share many pairs.
type pairs struct {
	count map[[2]byte]int
	n     int
}

func pairsOf(s string) pairs {
	p := pairs{count: make(map[[2]byte]int, len(s))}
	for i := 1; i < len(s); i++ {
		p.count[[2]byte{s[i-1], s[i]}]++
		p.n++
	}
	if len(s) == 1 {
		p.count[[2]byte{s[0]}]++
		p.n++
	}
	return p
}

// similarity returns the similarity of two texts, from 0 to 1.
func (p pairs) similarity(q pairs) float64 {
	if p.n+q.n == 0 {
		return 1
	}
	both := 0
	for k, n := range p.count {
		both += min(n, q.count[k])
	}
	return 2 * float64(both) / float64(p.n+q.n)
}
