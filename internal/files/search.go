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
	maxMatchLine = 300       // of a line that matches
)

// search is fs.search.
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
	q := &query{call: c, re: re, sheet: newSheet(c.max)}
	q.prefix, _ = re.LiteralPrefix()
	switch e.Kind {
	case fsys.Dir:
		err = c.walk(c.Path, math.MaxInt, func(name string, e fsys.Entry, _ bool) bool {
			return e.Kind != fsys.File || q.look(name, e.Size)
		})
	case fsys.File:
		q.look(c.Path, e.Size)
	default:
		return "", c.errorf(abi.FileKind, "/path", "%s is neither a file nor a directory", c.Path)
	}
	if err == nil {
		err = q.err
	}
	if err != nil {
		return "", c.failed(err)
	}
	return q.answer(), nil
}

// A query is a search under way.
type query struct {
	*call
	re     *regexp.Regexp
	prefix string // every match begins with it
	sheet  *sheet
	files  int
	lines  int // that match
	left   int // files passed over: binary, or too large
	bytes  int64
	full   string // why it ended early
	err    error
}

// look searches a file and reports whether to go on.
func (q *query) look(name string, size int64) bool {
	if size > maxFile {
		q.left++
		return true
	}
	if q.bytes += size; q.bytes > maxSearched {
		q.full = fmt.Sprintf("stopped after %s", plural(q.files, "file"))
		return false
	}
	b, err := q.fs.ReadFile(name)
	if err != nil {
		q.err = err
		return false
	}
	if binary(b) {
		q.left++
		return true
	}
	q.files++
	if q.prefix != "" && !bytes.Contains(b, []byte(q.prefix)) {
		return true
	}
	for i := 1; len(b) > 0; i++ {
		line := b
		if n := bytes.IndexByte(b, '\n'); n >= 0 {
			line = b[:n+1]
		}
		b = b[len(line):]
		if m := q.re.FindIndex(bare(line)); m != nil && !q.add(name, i, bare(line), m) {
			return false
		}
	}
	return true
}

// add notes a line that matches, around the match when it is long.
func (q *query) add(name string, n int, line []byte, m []int) bool {
	if q.lines >= maxMatches {
		q.full = fmt.Sprintf("the first %s", plural(maxMatches, "line"))
		return false
	}
	text := shown(line, maxMatchLine)
	if len(line) > maxMatchLine && m[0] > maxMatchLine/2 {
		text = "... " + shown(line[m[0]-maxMatchLine/3:], maxMatchLine)
	}
	if !q.sheet.line(fmt.Sprintf("%s:%d:%s", clean(name), n, text)) {
		q.full = fmt.Sprintf("the first %s", plural(q.lines, "line"))
		return false
	}
	q.lines++
	return true
}

func (q *query) answer() string {
	var notes []string
	switch {
	case q.full != "":
		notes = append(notes, q.full+"; there are more: search below a directory, or for less")
	case q.lines == 0:
		notes = append(notes, "no match in "+plural(q.files, "file"))
	}
	if q.left > 0 {
		notes = append(notes, fmt.Sprintf("%s not searched: binary, or larger than %d bytes", plural(q.left, "file"), maxFile))
	}
	return q.sheet.end(notes...)
}
