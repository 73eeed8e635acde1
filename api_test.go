package kern_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite api.txt")

// TestAPI compares the exported API of this package with api.txt, so that a change
// of it is seen in review. No type of an internal package may be a part of it.
func TestAPI(t *testing.T) {
	got, err := exportedAPI()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range got {
		for _, pkg := range []string{"host.", "api.", "config.", "tools.", "workspace.", "staging.", "kernel."} {
			if strings.Contains(line, pkg) {
				t.Errorf("a type of an internal package is exported: %s", line)
			}
		}
	}
	text := strings.Join(got, "\n") + "\n"
	if *update {
		if err := os.WriteFile("api.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile("api.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("- %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("+ %s", line)
		}
	}
	if t.Failed() {
		t.Log("the exported API changed; if that is meant: go test -run TestAPI . -update")
	}
}

// exportedAPI lists everything exported, one line each, sorted.
func exportedAPI() (lines []string, err error) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		return nil, err
	}
	write := func(prefix string, node any) {
		var b bytes.Buffer
		if err := printer.Fprint(&b, fset, node); err != nil {
			panic(err)
		}
		lines = append(lines, prefix+strings.Join(strings.Fields(b.String()), " "))
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.FileExports(f)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				d.Body = nil
				write("", d)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						write(d.Tok.String()+" ", s)
					case *ast.TypeSpec:
						st, ok := s.Type.(*ast.StructType)
						if !ok {
							write("type ", s)
							continue
						}
						lines = append(lines, "type "+s.Name.Name+" struct")
						for _, field := range st.Fields.List {
							for _, name := range field.Names {
								write("type "+s.Name.Name+" struct, "+name.Name+" ", field.Type)
							}
							if len(field.Names) == 0 {
								write("type "+s.Name.Name+" struct, embeds ", field.Type)
							}
						}
					}
				}
			}
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// TestReadmeSnippet holds that the Go code of the README compiles.
func TestReadmeSnippet(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```go\n")
	snippet, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the README shows no Go code")
	}
	const program = `package main

import (
	"context"
	"time"

	"github.com/kern-run/kern"
	"github.com/kern-run/kern/abi"
)

type pair struct{ A, B int }

func add(_ context.Context, in pair) (int, error) { return in.A + in.B, nil }

func main() {
	ctx := context.Background()
	_, _, _, _ = ctx, add, time.Second, abi.Pure
%s
	_, _, _ = k, r, err
}
`
	// It is built inside this module, because its imports are found only there.
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("testdata", "readme")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), fmt.Appendf(nil, program, snippet), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput(); err != nil {
		t.Errorf("the Go code of the README does not compile: %v\n%s", err, out)
	}
}
