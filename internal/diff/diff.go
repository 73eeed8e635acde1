// Package diff writes the difference between two versions of a file as a patch. Both
// git apply and patch accept its form.
//
// The package is pure. Applying a patch to the old version gives the new version,
// byte for byte. The exception is content that is not text: the patch only says that
// the files differ.
package diff

import (
	"bytes"
	"fmt"
	"strings"
)

// A Version is the state of a file. Mode is a mode of Git: 100644, 100755, or 120000
// for a link. The Content of a link is its target.
type Version struct {
	Mode    uint32
	Content []byte
}

// Stat counts the lines of a patch.
type Stat struct {
	Added, Removed int
	Binary         bool // the patch only says that the files differ
}

// context is the number of unchanged lines on each side of a change.
const context = 3

// maxText is the size in bytes of the largest file that File compares line by line.
const maxText = 8 << 20

// File returns the patch that turns one version of path into the other. A nil version
// means that the file does not exist. The patch is empty if the versions are equal.
func File(path string, from, to *Version) (string, Stat) {
	if from == nil && to == nil || from != nil && to != nil && from.Mode == to.Mode && bytes.Equal(from.Content, to.Content) {
		return "", Stat{}
	}
	if from != nil && to != nil && from.Mode&^0o777 != to.Mode&^0o777 { // a file became a link, or the reverse: remove it, then add it
		removal, s := File(path, from, nil)
		addition, t := File(path, nil, to)
		return removal + addition, Stat{s.Added + t.Added, s.Removed + t.Removed, s.Binary || t.Binary}
	}
	var b strings.Builder
	a, z := name("a/"+path), name("b/"+path)
	fmt.Fprintf(&b, "diff --git %s %s\n", a, z)
	var was, is []byte
	switch {
	case from == nil:
		fmt.Fprintf(&b, "new file mode %06o\n", to.Mode)
		a, is = "/dev/null", to.Content
	case to == nil:
		fmt.Fprintf(&b, "deleted file mode %06o\n", from.Mode)
		z, was = "/dev/null", from.Content
	default:
		if from.Mode != to.Mode {
			fmt.Fprintf(&b, "old mode %06o\nnew mode %06o\n", from.Mode, to.Mode)
		}
		was, is = from.Content, to.Content
	}
	if bytes.Equal(was, is) { // only the mode differs, or the file is empty
		return b.String(), Stat{}
	}
	// A zero byte or a huge file makes a patch that nobody reads and that costs much to compute.
	if binary(was) || binary(is) || len(was) > maxText || len(is) > maxText {
		fmt.Fprintf(&b, "Binary files %s and %s differ\n", a, z)
		return b.String(), Stat{Binary: true}
	}
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", a+tab(a), z+tab(z))
	stat := hunks(&b, split(was), split(is))
	return b.String(), stat
}

// tab returns the tab that Git writes after a name with a space, because patch needs
// it; "" for other names.
func tab(name string) string {
	if strings.ContainsRune(name, ' ') {
		return "\t"
	}
	return ""
}

// name returns a path as Git writes it: in quotes if it has special characters.
func name(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r >= 0x7f }) {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func binary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// split cuts text after each newline.
func split(b []byte) (lines []string) {
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			n = len(b)
		}
		lines = append(lines, string(b[:n]))
		b = b[n:]
	}
	return lines
}

// A run says that lines [a0,a1) of the old text became lines [b0,b1) of the new one.
type run struct{ a0, a1, b0, b1 int }

// hunks writes the runs in which a and b differ, with context lines around them.
func hunks(w *strings.Builder, a, b []string) (s Stat) {
	runs := runsOf(a, b)
	for i := 0; i < len(runs); {
		j := i + 1
		// Runs whose context would overlap share a hunk, because a patch may name each line once.
		for j < len(runs) && runs[j].a0-runs[j-1].a1 <= 2*context {
			j++
		}
		hunk(w, a, b, runs[i:j])
		for _, r := range runs[i:j] {
			s.Removed += r.a1 - r.a0
			s.Added += r.b1 - r.b0
		}
		i = j
	}
	return s
}

func hunk(w *strings.Builder, a, b []string, runs []run) {
	first, last := runs[0], runs[len(runs)-1]
	before := min(context, first.a0)
	after := min(context, len(a)-last.a1)
	a0, a1, b0, b1 := first.a0-before, last.a1+after, first.b0-before, last.b1+after
	fmt.Fprintf(w, "@@ -%s +%s @@\n", span(a0, a1), span(b0, b1))
	at := a0
	for _, r := range runs {
		put(w, " ", a[at:r.a0])
		put(w, "-", a[r.a0:r.a1])
		put(w, "+", b[r.b0:r.b1])
		at = r.a1
	}
	put(w, " ", a[at:a1])
}

// span returns a range of lines as the head of a hunk shows it.
func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

func put(w *strings.Builder, mark string, lines []string) {
	for _, l := range lines {
		w.WriteString(mark)
		w.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			w.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
