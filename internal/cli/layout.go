// Package cli lays text out for a width: tables, names with what is to be
// said of them, and prose. A width of 0 is that of a pipe or a file: nothing is
// shortened or wrapped for a program that reads.
package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Column of a table says what becomes of it where there is not room for all.
type Column struct {
	Head  string
	Least int  // it is cut to no fewer characters; 0: it is not cut
	Spare int  // when cutting does not do, columns go, the lowest of these first; 0: it stays
	End   bool // it is cut at its beginning: its end says more
}

// Table lays rows out below the heads of their columns, which are as wide as
// they need to be. The last is not filled up.
func Table(columns []Column, rows [][]string, width int) string {
	var heads []string
	need := make([]int, len(columns))
	for i, c := range columns {
		heads = append(heads, c.Head)
		need[i] = utf8.RuneCountInString(c.Head)
		for _, r := range rows {
			need[i] = max(need[i], utf8.RuneCountInString(r[i]))
		}
	}
	if strings.Join(heads, "") != "" {
		rows = slices.Insert(slices.Clone(rows), 0, heads)
	}
	widths := fitted(columns, need, width)
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			if widths[i] > 0 {
				cell = columns[i].cut(cell, widths[i])
				line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func (c *Column) cut(s string, n int) string {
	if over := utf8.RuneCountInString(s) - n; c.End && over > 0 {
		return "…" + string([]rune(s)[over+1:])
	}
	return Cut(s, n)
}

// Cut shortens a line to n characters.
func Cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// fitted is how wide columns are that need so much, where there is so much room
// in all: the widest are cut first, and one that goes has no width.
func fitted(columns []Column, need []int, room int) []int {
	widths := slices.Clone(need)
	for room > 0 {
		over, slack, spare := -2-room, 0, -1
		for i, c := range columns {
			if widths[i] == 0 {
				continue
			}
			over += widths[i] + 2
			if c.Least > 0 {
				slack += max(0, widths[i]-c.Least)
			}
			if c.Spare > 0 && (spare < 0 || c.Spare < columns[spare].Spare) {
				spare = i
			}
		}
		if over > slack && spare >= 0 {
			widths[spare] = 0
			continue
		}
		for over = min(over, slack); over > 0; over-- {
			widest := -1
			for i, c := range columns {
				if c.Least > 0 && widths[i] > c.Least && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			widths[widest]--
		}
		break
	}
	return widths
}

// Facts lays out names and what is to be said of each, which goes on below
// itself.
func Facts(rows [][]string, width int) string {
	var b strings.Builder
	most := 0
	for _, r := range rows {
		most = max(most, utf8.RuneCountInString(r[0]))
	}
	for _, r := range rows {
		name := r[0] + strings.Repeat(" ", most-utf8.RuneCountInString(r[0])+2)
		b.WriteString(Wrap(strings.TrimRight(name+r[1], " "), width, most+2) + "\n")
	}
	return b.String()
}

// second is where the second column of an indented line begins.
var second = regexp.MustCompile(`^\s+(\S+  +)?`)

// Fill breaks the paragraphs of a text anew. A line that is indented is none of
// a paragraph.
func Fill(text string, width int) string {
	var b strings.Builder
	paragraph := ""
	flush := func() {
		if paragraph != "" {
			b.WriteString(Wrap(paragraph, width, 0) + "\n")
			paragraph = ""
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if at := len(second.FindString(line)); at > 0 || line == "" {
			flush()
			b.WriteString(Wrap(line, width, at) + "\n")
		} else {
			paragraph = strings.TrimLeft(paragraph+" "+line, " ")
		}
	}
	flush()
	return b.String()
}

// Wrap breaks a line, and goes on at column indent. A word is never broken, so
// an address can be copied.
func Wrap(line string, width, indent int) string {
	if width == 0 || seen(line) <= width {
		return line
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Split(line, " ") {
		n := seen(word)
		switch {
		case i == 0:
		case n > 0 && at > indent && at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// seen is how many characters of s are seen: colours are not.
func seen(s string) int {
	n := utf8.RuneCountInString(s)
	for {
		_, code, coloured := strings.Cut(s, "\x1b[")
		if !coloured {
			return n
		}
		end := strings.IndexByte(code, 'm') + 1
		n, s = n-2-end, code[end:]
	}
}

// Clean makes one harmless line of a text from outside. Agents choose their names
// and words, and a terminal obeys control characters.
func Clean(s string) string { return clean(s, "") }

// CleanText is [Clean] for a text of many lines.
func CleanText(s string) string { return clean(s, "\n\t") }

// clean replaces control characters that are not in keep.
func clean(s, keep string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
