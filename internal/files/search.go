package files

import (
	"bytes"
	"fmt"
	"math"
	"regexp"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/workspace/fsys"
)

// Bounds of a search.
const (
	maxSearched  = 256 << 20 // bytes that one search reads
	maxMatchLine = 300       // bytes that the answer shows of a matching line
)

// search runs fs.search.
func (c *call) search() (string, *abi.Error) {
	re, err := regexp.Compile(c.Pattern)
	if err != nil {
		bad := c.errorf(abi.InvalidArguments, "/pattern", "not a regular expression: %v", err)
		bad.Hint = "the syntax is RE2, without lookaround and backreferences; \\ makes a character plain, as in \\("
		return "", bad
	}
	e, bad := c.target()
	if bad != nil {
		return "", bad
	}
	q := &query{c: c, re: re, sheet: newSheet(c.max)}
	q.prefix, _ = re.LiteralPrefix()
	switch e.Kind {
	case fsys.Dir:
		err = c.walk(c.Path, math.MaxInt, func(name string, e fsys.Entry, _ bool) bool {
			// A link is not followed: its target would be found twice, or lies outside.
			return e.Kind != fsys.File || q.searchFile(name, e.Size)
		})
	case fsys.File:
		q.searchFile(c.Path, e.Size)
	default:
		return "", c.errorf(abi.FileKind, "/path", "%s is neither a file nor a directory", c.Path)
	}
	if err == nil {
		err = q.err
	}
	if err != nil {
		return "", c.errorOf(err)
	}
	return q.answer(), nil
}

// A query is a running search.
type query struct {
	c       *call
	re      *regexp.Regexp
	prefix  string // every match begins with this text, so a file without it has no match
	sheet   *sheet
	files   int
	lines   int // matching lines
	skipped int // files that are binary or too large
	bytes   int64
	stopped string // why the search ended early; "": it did not
	err     error
}

// searchFile searches a file and reports whether to continue.
func (q *query) searchFile(name string, size int64) bool {
	if size > maxFile {
		q.skipped++
		return true
	}
	// A call must end in bounded time, and half an answer is better than none.
	if q.bytes += size; q.bytes > maxSearched {
		q.stopped = fmt.Sprintf("stopped after %s", plural(q.files, "file"))
		return false
	}
	b, err := q.c.fs.ReadFile(name)
	if err != nil {
		q.err = err
		return false
	}
	if binary(b) {
		q.skipped++
		return true
	}
	q.files++
	// Most files have no match, and this is much faster than the expression.
	if q.prefix != "" && !bytes.Contains(b, []byte(q.prefix)) {
		return true
	}
	for i := 1; len(b) > 0; i++ {
		line := b
		if n := bytes.IndexByte(b, '\n'); n >= 0 {
			line = b[:n+1]
		}
		b = b[len(line):]
		if m := q.re.FindIndex(trimLineEnd(line)); m != nil && !q.addMatch(name, i, trimLineEnd(line), m) {
			return false
		}
	}
	return true
}

// addMatch adds a matching line to the answer. From a long line it takes the part
// around the match.
func (q *query) addMatch(name string, n int, line []byte, m []int) bool {
	if q.lines >= maxMatches {
		q.stopped = fmt.Sprintf("the first %s", plural(maxMatches, "line"))
		return false
	}
	text := clipLine(line, maxMatchLine)
	if len(line) > maxMatchLine && m[0] > maxMatchLine/2 {
		text = "... " + clipLine(line[m[0]-maxMatchLine/3:], maxMatchLine)
	}
	if !q.sheet.line(fmt.Sprintf("%s:%d:%s", clean(name), n, text)) {
		q.stopped = fmt.Sprintf("the first %s", plural(q.lines, "line"))
		return false
	}
	q.lines++
	return true
}

func (q *query) answer() string {
	var notes []string
	switch {
	case q.stopped != "":
		notes = append(notes, q.stopped+"; there are more: search below a directory, or for less")
	case q.lines == 0:
		notes = append(notes, "no match in "+plural(q.files, "file"))
	}
	if q.skipped > 0 {
		notes = append(notes, fmt.Sprintf("%s not searched: binary, or larger than %d bytes", plural(q.skipped, "file"), maxFile))
	}
	return q.sheet.end(notes...)
}
