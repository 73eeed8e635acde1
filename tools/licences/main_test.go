package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestLicences looks for every module of the binary in the text that is built into it,
// and compares that with what the module cache has.
func TestLicences(t *testing.T) {
	const file = "../../internal/manual/licences.txt"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-C", "../..", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/kern").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, module := range strings.Fields(strings.ReplaceAll(string(out), " ", "@")) {
		n++
		if !strings.Contains(string(b), "\n==== "+strings.Replace(module, "@", " ", 1)+", ") && !strings.HasPrefix(string(b), "==== "+strings.Replace(module, "@", " ", 1)+", ") {
			t.Errorf("%s is not in %s: go run ./tools/licences >internal/manual/licences.txt", module, file)
		}
	}
	parts, err := List("../..")
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 || len(parts) < 10 {
		t.Errorf("%d packages, %d parts", n, len(parts))
	}
	without := func(text string) string { // the version of Go is that of the build
		_, after, _ := strings.Cut(text, "\n==== Go ")
		_, after, _ = strings.Cut(after, ",")
		before, _, _ := strings.Cut(text, "\n==== Go ")
		return before + after
	}
	if without(Text(parts)) != without(string(b)) {
		t.Errorf("%s is old: go run ./tools/licences >internal/manual/licences.txt", file)
	}
	for _, name := range []string{"==== CPython 3.", "==== Go "} {
		if !strings.Contains(string(b), name) {
			t.Errorf("%s is not in %s", name, file)
		}
	}
	list, err := json.Marshal(bill(parts))
	if err != nil || strings.Count(string(list), `"purl":"pkg:golang/`) != len(parts)-3 {
		t.Errorf("%s, %v", list, err)
	}
}
