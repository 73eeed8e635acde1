package files

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/kern-run/kern/abi"
)

// A nearMatch is the run of lines that is most similar to the old text of an edit.
type nearMatch struct {
	from, to   int // line numbers
	similarity float64
}

// Bounds of the comparison and of the hint.
const (
	nearEnough = 0.4
	nearLines  = 60    // lines of old to compare
	nearShown  = 12    // lines in the hint
	nearTried  = 40    // places to compare in full
	nearMost   = 50000 // lines of the file to search
)

// noMatch returns the error for an edit whose old text is not in the file. Its hint
// shows the most similar lines. The message names the difference if it is a simple one.
func (c *call) noMatch(b []byte) *abi.Error {
	e := c.errorf(abi.EditNoMatch, "/old", "old does not occur in %s", c.Path)
	// The usual mistake is to copy the line numbers of fs.read.
	if why := c.numbered(b); why != "" {
		e.Hint = why
		return e
	}
	lines := splitLines(b)
	n := nearest(lines, splitLines([]byte(c.Old)))
	// A bad guess would lead the model to the wrong place.
	if n.similarity < nearEnough {
		e.Hint = fmt.Sprintf("nothing in the file is like it; fs.read shows its %s", plural(len(lines), "line"))
		return e
	}
	e.Message += difference(bytes.Join(lines[n.from-1:n.to], nil), []byte(c.Old))
	var s strings.Builder
	if n.to == n.from {
		fmt.Fprintf(&s, "the nearest is line %d:", n.from)
	} else {
		fmt.Fprintf(&s, "the nearest are lines %d to %d:", n.from, n.to)
	}
	for i := n.from; i <= n.to; i++ {
		if i-n.from == nearShown {
			fmt.Fprintf(&s, "\n... fs.read shows the rest")
			break
		}
		fmt.Fprintf(&s, "\n%d\t%s", i, clipLine(lines[i-1], 200))
	}
	e.Hint = s.String()
	return e
}

var numberPattern = regexp.MustCompile(`(?m)^ *[0-9]+\t`)

// numbered returns a hint if old would match without the line numbers of fs.read.
func (c *call) numbered(b []byte) string {
	plain := numberPattern.ReplaceAllString(c.Old, "")
	if plain == c.Old {
		return ""
	}
	for _, p := range []string{plain, strings.ReplaceAll(plain, "\n", "\r\n")} {
		if p != "" && bytes.Contains(b, []byte(p)) {
			return "it does without the numbers and tabs before its lines, which fs.read adds: leave them out"
		}
	}
	return ""
}

// difference describes the difference of two texts if it is a simple one; else "".
func difference(have, want []byte) string {
	fold := func(b []byte) string { return strings.Join(strings.Fields(string(b)), " ") }
	h, w := fold(have), fold(want)
	switch {
	case h == w || strings.Contains(h, w):
		return ": only white space differs"
	case strings.EqualFold(h, w):
		return ": only upper and lower case differ"
	}
	return ""
}

// nearest returns the run of lines that is most similar to want and as long. It first
// looks for the longest line of want. It compares all lines only at the best places.
func nearest(lines, want [][]byte) nearMatch {
	// Both bounds keep the work small: the hint must not cost more than the edit.
	want = want[:min(len(want), nearLines)]
	lines = lines[:min(len(lines), nearMost)]
	key, keyAt := "", 0
	// The longest line is the least likely to occur by chance.
	for i, l := range want {
		if t := strings.TrimSpace(string(l)); len(t) > len(key) {
			key, keyAt = t, i
		}
	}
	if key == "" || len(lines) == 0 {
		return nearMatch{}
	}
	var best nearMatch
	for _, at := range candidates(lines, key) {
		from := max(at-keyAt, 0)
		to := min(from+len(want), len(lines))
		sum := 0.0
		for i := from; i < to; i++ {
			sum += similar(lines[i], want[i-from])
		}
		if like := sum / float64(len(want)); like > best.similarity {
			best = nearMatch{from + 1, to, like}
		}
	}
	return best
}

// candidates returns the indexes of the lines that are most similar to key.
func candidates(lines [][]byte, key string) (at []int) {
	k := pairsOf(strings.ToLower(key))
	scores := make([]float64, len(lines))
	top := 0.0
	for i, l := range lines {
		t := strings.ToLower(strings.TrimSpace(string(l[:min(len(l), maxLine)])))
		if t == "" {
			continue
		}
		if scores[i] = k.similarity(pairsOf(t)); scores[i] > top {
			top = scores[i]
		}
	}
	for i, s := range scores {
		// The best line alone may be a copy elsewhere, so near ones are compared too.
		if s > 0 && s >= top-0.15 && len(at) < nearTried {
			at = append(at, i)
		}
	}
	return at
}

// similar returns the similarity of two lines, from 0 to 1. It ignores white space
// around them.
func similar(a, b []byte) float64 {
	x, y := strings.TrimSpace(string(a)), strings.TrimSpace(string(b))
	if x == y {
		return 1
	}
	if x != "" && y != "" && (strings.Contains(x, y) || strings.Contains(y, x)) {
		return 0.9
	}
	return pairsOf(strings.ToLower(x)).similarity(pairsOf(strings.ToLower(y)))
}
