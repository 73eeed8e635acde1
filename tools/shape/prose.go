package shape

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// MaxWords is the longest sentence that Prose accepts.
const MaxWords = 28

// avoid lists words that a reader must decode, with what to say instead.
var avoid = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{word(`mend(s|ed|ing)?`), "fix"},
	{word(`anew`), "again"},
	{word(`(tells?|told|telling) of`), "describe"},
	{word(`stands? in for`), "replaces"},
	{word(`(give|gives|gave|given|giving) free`), "release"},
	{word(`whoever|whom|who`), "name the thing"},
	{word(`(bears?|bore|borne)`), "tolerate, or carry"},
	{word(`(lest|thereof|naught|hence|whence|thereby|wherein|whereupon)`), "plain words"},
	{word(`(party|parties|guests?|inmates?|habits?|crowds?|lulls?)`), "a word of GLOSSARY.md"},
}

func word(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + pattern + `)\b`) }

var riddle = regexp.MustCompile(`^(Who|What|Whoever|Whatever|That of|Those|One that|One who)\b`)

// Prose returns what is wrong with a text, in the mechanical part of the rules
// for prose: how a sentence begins, how long it is, and which words it avoids.
func Prose(text string) (faults []string) {
	for _, s := range sentences(text) {
		if m := riddle.FindString(s); m != "" && !strings.Contains(s, "?") {
			faults = append(faults, "a sentence begins with "+m+": name the thing: "+start(s))
		}
		if n := len(strings.Fields(s)); n > MaxWords {
			faults = append(faults, itoa(n)+" words in a sentence, at most "+itoa(MaxWords)+": "+start(s))
		}
		for _, a := range avoid {
			if m := a.pattern.FindString(s); m != "" && !strings.Contains(s, "?") {
				faults = append(faults, "the word "+m+", say "+a.instead+": "+start(s))
			}
		}
	}
	return faults
}

// sentences splits the running text of a comment or a Markdown file. Indented
// lines, tables, headings and code are left out; items of a list are separate.
func sentences(text string) (all []string) {
	var now []string
	flush := func() {
		text := strings.Join(now, " ")
		for text != "" {
			sentence, rest := text, ""
			if end := ends.FindStringIndex(text); end != nil {
				sentence, rest = text[:end[1]], text[end[1]:]
			}
			if s := strings.Trim(sentence, "*_ "); s != "" {
				all = append(all, s)
			}
			text = rest
		}
		now = nil
	}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			flush()
			continue
		}
		switch {
		case fenced || trimmed == "" || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ") && len(now) == 0,
			strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "<"):
			flush()
			continue
		// An item of a list often has no full stop, so it would run into the next one.
		case item.MatchString(trimmed):
			flush()
			trimmed = item.ReplaceAllString(trimmed, "")
		}
		now = append(now, trimmed)
	}
	flush()
	return all
}

var (
	item = regexp.MustCompile(`^([-*•]|\d+[.)])\s+`)
	ends = regexp.MustCompile(`[.!?:;]["')\]*]*(\s+|$)`)
)

func start(s string) string {
	if f := strings.Fields(s); len(f) > 9 {
		return strings.Join(f[:9], " ") + " ..."
	}
	return s
}

// ProseFaults returns the faults of every comment, of every text in code and of
// every Markdown file below root, each with file and line.
func ProseFaults(root, module string) (faults []string, err error) {
	c, err := Read(root, module)
	if err != nil {
		return nil, err
	}
	// Errors and help are strings in the code, and a person reads them too.
	for _, t := range append(c.Comments, c.Strings...) {
		for _, f := range Prose(t.Text) {
			faults = append(faults, t.Where+": "+f)
		}
	}
	pages, err := markdown(root)
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		b, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			return nil, err
		}
		for _, f := range Prose(string(b)) {
			faults = append(faults, p+": "+f)
		}
		faults = append(faults, longLines(p, string(b))...)
	}
	return faults, nil
}

// maxColumn is the width of Markdown. Tables and code cannot be wrapped.
const maxColumn = 100

func longLines(page, text string) (faults []string) {
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		// A table or code cannot be wrapped without changing it.
		loose := fenced || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ")
		if n := utf8.RuneCountInString(line); n > maxColumn && !loose {
			faults = append(faults, page+":"+itoa(i+1)+": "+itoa(n)+" columns, at most "+itoa(maxColumn))
		}
	}
	return faults
}

// markdown lists the Markdown files below root.
func markdown(root string) (pages []string, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) == ".md" && d.Name() != "GLOSSARY.md" {
			rel, _ := filepath.Rel(root, name)
			pages = append(pages, filepath.ToSlash(rel))
		}
		return nil
	})
	return pages, err
}
