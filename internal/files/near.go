package files

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/kern-run/kern/abi"
)

// near is the run of lines that is most like what an edit looked for.
type near struct {
	from, to int // line numbers
	like     float64
}

// Bounds of what is compared and shown.
const (
	nearEnough = 0.4
	nearLines  = 60    // of old that are compared
	nearShown  = 12    // lines that are shown
	nearTried  = 40    // places that are compared in full
	nearMost   = 50000 // lines of the file that are looked at
)

// noMatch is the error for an edit whose old text is not in the file: with the
// lines that are most like it, and what is different when that can be told.
func (c *call) noMatch(b []byte) *abi.Error {
	e := c.errorf(abi.EditNoMatch, "/old", "old does not occur in %s", c.Path)
	if why := c.numbered(b); why != "" {
		e.Hint = why
		return e
	}
	lines := splitLines(b)
	n := nearest(lines, splitLines([]byte(c.Old)))
	if n.like < nearEnough {
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
		fmt.Fprintf(&s, "\n%d\t%s", i, shown(lines[i-1], 200))
	}
	e.Hint = s.String()
	return e
}

var numberPattern = regexp.MustCompile(`(?m)^ *[0-9]+\t`)

// numbered says that old holds the numbers that fs.read puts before lines, when
// it would match without them.
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

// difference says in which way two texts differ, when it is a simple one.
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

// nearest finds the run of as many lines as want has that is most like it. It
// looks for the longest line of want first, and compares in full where that is
// found best.
func nearest(lines, want [][]byte) near {
	want = want[:min(len(want), nearLines)]
	lines = lines[:min(len(lines), nearMost)]
	key, keyAt := "", 0
	for i, l := range want {
		if t := strings.TrimSpace(string(l)); len(t) > len(key) {
			key, keyAt = t, i
		}
	}
	if key == "" || len(lines) == 0 {
		return near{}
	}
	var best near
	for _, at := range candidates(lines, key) {
		from := max(at-keyAt, 0)
		to := min(from+len(want), len(lines))
		sum := 0.0
		for i := from; i < to; i++ {
			sum += similar(lines[i], want[i-from])
		}
		if like := sum / float64(len(want)); like > best.like {
			best = near{from + 1, to, like}
		}
	}
	return best
}

// candidates are the lines that are most like key.
func candidates(lines [][]byte, key string) (at []int) {
	k := pairsOf(strings.ToLower(key))
	scores := make([]float64, len(lines))
	top := 0.0
	for i, l := range lines {
		t := strings.ToLower(strings.TrimSpace(string(l[:min(len(l), maxLine)])))
		if t == "" {
			continue
		}
		if scores[i] = k.like(pairsOf(t)); scores[i] > top {
			top = scores[i]
		}
	}
	for i, s := range scores {
		if s > 0 && s >= top-0.15 && len(at) < nearTried {
			at = append(at, i)
		}
	}
	return at
}

// similar compares two lines, white space around them aside.
func similar(a, b []byte) float64 {
	x, y := strings.TrimSpace(string(a)), strings.TrimSpace(string(b))
	if x == y {
		return 1
	}
	if x != "" && y != "" && (strings.Contains(x, y) || strings.Contains(y, x)) {
		return 0.9
	}
	return pairsOf(strings.ToLower(x)).like(pairsOf(strings.ToLower(y)))
}
