//go:build unix

package main

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

var rewriteReadme = flag.Bool("rewrite-readme", false, "write what the tour prints into README.md")

// tourPort is the port of the mock in the tour. It is the only thing in the commands
// that the test replaces, because another program may use the port.
const tourPort = "4010"

// varying matches what differs from run to run: times, and what a date is.
var varying = []struct {
	pattern *regexp.Regexp
	becomes string
}{
	{regexp.MustCompile(`\d+(\.\d+)?s\b`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?`), "DATE"},
	{regexp.MustCompile(` +`), " "}, // columns are as wide as their cells
}

func normalised(s string) string {
	for _, v := range varying {
		s = v.pattern.ReplaceAllString(s, v.becomes)
	}
	return strings.TrimSpace(s)
}

// TestReadme runs the tour of README.md word for word, in a copy of the repository and
// with a fresh data directory, and compares what README shows. With -rewrite-readme it
// writes what it saw into README.md.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	dir := filepath.Join(w.dir, "tour")
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../../examples")); err != nil {
		t.Fatal(err)
	}
	const begin, end = "```console\n", "```\n"
	var commands []string
	blocks := strings.Split(string(readme), begin)
	for i, b := range blocks[1:] {
		text, _, closed := strings.Cut(b, end)
		if !closed {
			t.Fatalf("block %d of README.md does not end", i+1)
		}
		for line := range strings.Lines(text) {
			if c, ok := strings.CutPrefix(line, "$ "); ok {
				commands = append(commands, strings.TrimSpace(c))
			}
		}
	}
	if len(commands) < 10 {
		t.Fatalf("README.md has %d commands", len(commands))
	}
	printed := tour(t, w, dir, commands)
	for i, b := range blocks[1:] {
		text, rest, _ := strings.Cut(b, end)
		shown, seen := "", ""
		for line := range strings.Lines(text) {
			if c, ok := strings.CutPrefix(line, "$ "); ok {
				seen += "$ " + c + printed[strings.TrimSpace(c)]
			}
			shown += line
		}
		if normalised(shown) != normalised(seen) {
			t.Errorf("README.md shows\n%s\nand the tour prints\n%s", shown, seen)
		}
		blocks[i+1] = seen + end + rest
	}
	if *rewriteReadme {
		if err := os.WriteFile("../../README.md", []byte(strings.Join(blocks, begin)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tour runs commands in one shell, and returns what each printed.
func tour(t *testing.T, w *world, dir string, commands []string) map[string]string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	var script strings.Builder
	const mark = "\x01"
	for _, c := range commands {
		fmt.Fprintf(&script, "printf '%s'\n%s\n", mark, strings.ReplaceAll(c, tourPort, port))
		if strings.HasPrefix(c, "kern mock ") { // a person needs longer for the next line
			fmt.Fprintf(&script, "until test -s mock.log; do sleep 0.02; done\n")
		}
	}
	cmd := exec.Command("bash", "-c", script.String())
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.Env = append(w.command("ps").Env, leaktest.Env())
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	parts := strings.Split(out.String(), mark)[1:]
	printed := make(map[string]string)
	for i, part := range parts {
		printed[commands[i]] = strings.ReplaceAll(part, port, tourPort)
	}
	return printed
}
