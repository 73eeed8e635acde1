package sandboxtest

import (
	"bytes"
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

//go:embed testdata/programs
var programFiles embed.FS

// A Program is an ordinary one, as a model writes it, and what it prints. The
// output was made by CPython 3.11 and 3.13, which agree on it to the byte.
type Program struct {
	Name   string
	Code   string
	Output string
}

// Programs is the corpus of testdata/programs.
func Programs() ([]Program, error) {
	names, err := fs.Glob(programFiles, "testdata/programs/*.py")
	if err != nil {
		return nil, err
	}
	var out []Program
	for _, n := range names {
		code, err := programFiles.ReadFile(n)
		if err != nil {
			return nil, err
		}
		output, err := programFiles.ReadFile(strings.TrimSuffix(n, ".py") + ".out")
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(n[strings.LastIndexByte(n, '/')+1:], ".py")
		out = append(out, Program{name, string(code), string(output)})
	}
	return out, nil
}

// RunPrograms runs the corpus on a backend.
func RunPrograms(t *testing.T, b sandbox.Backend) {
	ps, err := Programs()
	if err != nil {
		t.Fatal(err)
	}
	if len(ps) < 150 {
		t.Fatalf("%d programs, want 150 or more", len(ps))
	}
	for _, p := range ps {
		t.Run(p.Name, func(t *testing.T) {
			out := want(t, b, sandbox.OK, sandbox.Spec{Code: p.Code, Limits: sandbox.Limits{Wall: time.Minute, CPU: time.Minute}})
			same(t, string(out.Stdout), p.Output)
		})
	}
}

// RunNative runs the corpus on a Python of this host, so that the expected
// output stays an observed one.
func RunNative(t *testing.T, python string) {
	ps, err := Programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		t.Run(p.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, python, "-X", "utf8", "-I", "-c", p.Code)
			cmd.Dir = t.TempDir()
			cmd.Env = []string{"TZ=UTC", "PATH=" + os.Getenv("PATH")}
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %.600s", err, stderr.String())
			}
			same(t, stdout.String(), p.Output)
		})
	}
}

// same shows the first line that differs.
func same(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("line %d is\n%.400s\nwant\n%.400s", i+1, g[i], w[i])
		}
	}
	t.Fatalf("%d lines, want %d", len(g), len(w))
}
