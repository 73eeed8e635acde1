// Package cli is what the verbs of the command line share: the terminal, tables
// and wrapped text, errors with hints, and following a process.
//
// A width of 0 is the width of a pipe or a file: lines are neither shortened nor
// wrapped, because a program reads them.
package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Column says how a table shortens it when the terminal is too narrow.
type Column struct {
	Head  string
	Least int  // shortened to no fewer characters; 0: never shortened
	Spare int  // if shortening does not suffice, columns are omitted, lowest Spare first; 0: never omitted
	End   bool // shortened at its beginning, because its end says more

	Colour func(cell string) string // the colour of a cell; nil or empty: none
}

// Table lays out rows below the heads of their columns. Columns are as wide as
// their longest cell; the last is not padded. Paint colours a cell, and the heads.
func Table(columns []Column, rows [][]string, width int, paint func(colour, s string) string) string {
	var heads []string
	need := make([]int, len(columns))
	for i, c := range columns {
		heads = append(heads, c.Head)
		need[i] = utf8.RuneCountInString(c.Head)
		for _, r := range rows {
			need[i] = max(need[i], utf8.RuneCountInString(r[i]))
		}
	}
	headed := strings.Join(heads, "") != ""
	if headed {
		rows = slices.Insert(slices.Clone(rows), 0, heads)
	}
	widths := fitted(columns, need, width)
	var b strings.Builder
	for n, r := range rows {
		line, pad := "", ""
		for i, cell := range r {
			if widths[i] == 0 {
				continue
			}
			cell = columns[i].cut(cell, widths[i])
			colour := columns[i].colour(r[i], headed && n == 0)
			shown := cell
			if colour != "" && cell != "" {
				shown = paint(colour, cell)
			}
			line += pad + shown
			pad = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// colour is the colour of a cell, or of a head.
func (c *Column) colour(cell string, head bool) string {
	switch {
	case head:
		return Bold
	case c.Colour == nil:
		return ""
	}
	return c.Colour(cell)
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

// fitted computes the widths of columns that need so much, in a room for all of
// them. The widest are shortened first; an omitted column has width 0.
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

// Facts lays out pairs of a name and a text. A long text wraps below itself.
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

// second matches an indented line up to its second column.
var second = regexp.MustCompile(`^\s+(\S+  +)?`)

// Fill wraps the paragraphs of a text to a width. An indented line stays a line
// of its own.
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

// Wrap breaks a line between words, and continues at column indent. It never
// breaks a word, so addresses can be copied.
func Wrap(line string, width, indent int) string {
	if width == 0 || visible(line) <= width {
		return line
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Split(line, " ") {
		n := visible(word)
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

// visible counts the characters of s without its colour codes.
func visible(s string) int {
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
