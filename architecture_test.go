package kern_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const (
	walkFile  = "internal/kernel/testdata/life_of_a_call.txt"
	walkBegin = "<!-- begin: internal/kernel/testdata/life_of_a_call.txt -->\n"
	walkEnd   = "<!-- end -->\n"
)

// TestWalkthrough holds that ARCHITECTURE.md shows the records of a real run: the
// comments and the output of a transcript of the kernel. The flag -update copies
// them.
func TestWalkthrough(t *testing.T) {
	script, err := os.ReadFile(walkFile)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), walkBegin)
	_, after, ends := strings.Cut(rest, walkEnd)
	if !begins || !ends {
		t.Fatalf("ARCHITECTURE.md has no lines %q and %q", walkBegin, walkEnd)
	}
	want := []byte(before + walkBegin + walkthrough(string(script)) + walkEnd + after)
	if bytes.Equal(page, want) {
		return
	}
	if !*update {
		t.Fatalf("ARCHITECTURE.md differs from %s; go test -run Walkthrough -update . copies it", walkFile)
	}
	if err := os.WriteFile("ARCHITECTURE.md", want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// walkthrough turns a transcript into Markdown: comments become text, and the output
// becomes code. The commands are left out.
func walkthrough(script string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(script, "\n\n") {
		command, output, _ := strings.Cut(part, "\n----\n")
		for line := range strings.Lines(command) {
			if text, ok := strings.CutPrefix(line, "# "); ok {
				b.WriteString(strings.TrimRight(text, "\n") + "\n")
			}
		}
		if output != "" {
			b.WriteString("\n```\n" + strings.TrimRight(output, "\n") + "\n```\n\n")
		} else {
			b.WriteString("\n")
		}
	}
	return b.String()
}
