package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/manual"
)

// TestHelp holds that the help of every command fits a terminal, wide or narrow:
// no line is longer, unless it is one word that cannot be broken.
func TestHelp(t *testing.T) {
	var all []*cobra.Command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, c)
		for _, b := range c.Commands() {
			walk(b)
		}
	}
	walk(rootCommand(&cli.Terminal{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}, new(bool)))
	if len(all) < 30 {
		t.Fatalf("%d commands", len(all))
	}
	for _, c := range all {
		c.InitDefaultHelpFlag()
		for _, room := range []int{80, 132} {
			for line := range strings.Lines(cli.Fill(c.Long, room) + usageOf(c, room)) {
				line = strings.TrimRight(line, "\n")
				if n := utf8.RuneCountInString(line); n > room {
					t.Errorf("%s in %d columns: %d: %q", c.CommandPath(), room, n, line)
				}
			}
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || utf8.RuneCountInString(c.Short) > 66 {
			t.Errorf("%s in a line: %q", c.CommandPath(), c.Short)
		}
		if c.HasParent() && c.Parent() == c.Root() && c.GroupID == "" && c.Runnable() {
			t.Errorf("%s is in no group", c.CommandPath())
		}
	}
}

// TestHelpNamesTools: the help of agent files names the system calls that a model may
// use as tools, each of them and no other.
func TestHelpNamesTools(t *testing.T) {
	for _, p := range manual.Pages() {
		if p.Name != "agent" {
			continue
		}
		_, list, _ := strings.Cut(p.Text, "# a system call: ")
		list, _, _ = strings.Cut(list, "\n    - name:")
		names := strings.FieldsFunc(list, func(r rune) bool { return r == '#' || r == ',' || unicode.IsSpace(r) })
		if want := abi.ModelRows(); !slices.Equal(names, want) {
			t.Errorf("the help names %q, want %q", names, want)
		}
	}
}
