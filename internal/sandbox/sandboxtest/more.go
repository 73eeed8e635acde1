package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

func echo(_ context.Context, args json.RawMessage) (json.RawMessage, error) { return args, nil }

// workspace: a named directory keeps its files, and no path leads out of it.
func workspace(t *testing.T, b sandbox.Backend) {
	here, other, outside := t.TempDir(), t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Three runs: the files stay in their directory, are seen by the next run there, and by no other.
	printed(t, b, sandbox.Spec{Dir: here, Code: "import os\nos.makedirs('a/b')\nopen('a/b/f.txt', 'w').write('kept')"})
	equal(t, printed(t, b, sandbox.Spec{Dir: here, Code: "print(open('/workspace/a/b/f.txt').read())"}), "kept\n")
	equal(t, printed(t, b, sandbox.Spec{Dir: other, Code: "import os\nprint(os.listdir('.'))"}), "[]\n")
	if got, err := os.ReadFile(filepath.Join(here, "a", "b", "f.txt")); err != nil || string(got) != "kept" {
		t.Fatalf("on the host: %q, %v", got, err)
	}

	// The host made these links, as a program of an earlier run could have. None of them may lead outside.
	for link, to := range map[string]string{"file": secret, "dir": outside, "up": "../../../../../../../.."} {
		if err := os.Symlink(to, filepath.Join(here, link)); err != nil {
			t.Fatal(err)
		}
	}
	code := `
import os
for path in ['file', 'dir/secret', 'up' + SECRET, '../..' + SECRET, SECRET, '/workspace/../' + SECRET, 'a/../../..' + SECRET]:
    for mode in 'r', 'w', 'a', 'x':
        try:
            f = open(path, mode)
            print('out', path, mode, f.read() if mode == 'r' else f.write('broken'))
        except OSError:
            pass
for change in (lambda: os.remove('dir/secret'), lambda: os.rename('dir/secret', 'mine'), lambda: os.rename('a', 'dir/a'),
               lambda: os.mkdir('dir/new'), lambda: os.utime('dir/secret'), lambda: os.truncate('file', 0), lambda: print(os.listdir('dir'))):
    try:
        change()
        print('out', change)
    except OSError:
        pass
`
	out := run(t, b, sandbox.Spec{Dir: here, Code: "SECRET = " + quote(secret) + code})
	if strings.Contains(string(out.Stdout), "canary") || strings.Contains(string(out.Stdout), "out dir") || strings.Contains(string(out.Stdout), "out up") {
		t.Errorf("a way out of the workspace:\n%s", out.Stdout)
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "canary" {
		t.Errorf("what lies outside is now %q, %v", got, err)
	}
	if l, err := os.ReadDir(outside); err != nil || len(l) != 1 {
		t.Errorf("outside there is now %v, %v", l, err)
	}

	ordinary(t, b, here)
}

// ordinary: the usual operations on files work.
func ordinary(t *testing.T, b sandbox.Backend, dir string) {
	code := `
import os, shutil, glob, pathlib, tempfile
os.makedirs('d/e/f', exist_ok=True)
p = pathlib.Path('d/e/f/x.txt')
p.write_text('hi\n' * 3)
print(glob.glob('d/**/*.txt', recursive=True), p.stat().st_size, p.read_text().splitlines())
os.rename(p, 'd/y.txt')
with open('d/y.txt', 'a') as f: f.write('more')
with open('d/y.txt', 'r+') as f:
    f.seek(2); f.write('!'); f.truncate(5); f.seek(0); print(repr(f.read()), f.tell())
print(sorted(os.listdir('d')), os.path.isdir('d/e'), os.path.isfile('d/y.txt'), os.path.exists('none'))
shutil.copy('d/y.txt', 'd/z.txt'); shutil.copytree('d', 'd2'); shutil.move('d2', 'd3')
print(sorted(str(q) for q in pathlib.Path('d3').rglob('*')))
print([(r, sorted(ds), sorted(fs)) for r, ds, fs in sorted(os.walk('d3'))])
with tempfile.TemporaryDirectory() as t:
    open(os.path.join(t, 'f'), 'w').write('x'); print(os.listdir(t))
print(os.path.exists(t))
os.utime('d/y.txt', (1000, 2000)); print(os.stat('d/y.txt').st_mtime)
for bad in (lambda: os.rmdir('d'), lambda: os.remove('d'), lambda: open('d'), lambda: os.mkdir('d'), lambda: open('none'), lambda: os.rmdir('none'), lambda: open('d/y.txt/x'), lambda: open('d/y.txt', 'x')):
    try: bad(); print('no error')
    except OSError as e: print(type(e).__name__)
shutil.rmtree('d'); shutil.rmtree('d3'); print([n for n in os.listdir('.') if n.startswith('d') and n != 'dir'])
`
	// The output is that of CPython on Linux, so programs need not know that they are in a sandbox.
	equal(t, printed(t, b, sandbox.Spec{Dir: dir, Code: code}), `['d/e/f/x.txt'] 9 ['hi', 'hi', 'hi']
'hi!hi' 5
['e', 'y.txt'] True True False
['d3/e', 'd3/e/f', 'd3/y.txt', 'd3/z.txt']
[('d3', ['e'], ['y.txt', 'z.txt']), ('d3/e', ['f'], []), ('d3/e/f', [], [])]
['f']
False
2000.0
OSError
IsADirectoryError
IsADirectoryError
FileExistsError
FileNotFoundError
FileNotFoundError
NotADirectoryError
FileExistsError
[]
`)
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func functions(t *testing.T, b sandbox.Backend, c Capabilities) {
	fs := []sandbox.Function{
		// The quotes would end a docstring in generated source, so they test that the text is passed as data.
		{Namespace: "fs", Name: "read", Doc: "Reads a file.\n\nOr not: 'quoted' \"\"\"text\"\"\".", Call: echo,
			Params: []sandbox.Param{{Name: "path", Type: "str"}, {Name: "size", Type: "int | None", Optional: true}}},
		{Namespace: "fs", Name: "fail", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, &sandbox.CallError{Code: "denied", Message: "not today", Fields: map[string]any{"path": "/x", "n": 3}}
		}},
		{Namespace: "fs", Name: "crash", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("plain")
		}},
		{Namespace: "math", Name: "add", Params: []sandbox.Param{{Name: "a", Type: "int"}, {Name: "b", Type: "int"}},
			Call: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
				var in struct{ A, B int }
				if err := json.Unmarshal(args, &in); err != nil {
					return nil, err
				}
				return json.Marshal(in.A + in.B)
			}},
		{Namespace: "bin", Name: "flip", Params: []sandbox.Param{{Name: "data", Type: "bytes"}}, Call: flip},
		{Namespace: "bin", Name: "big", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.Marshal(strings.Repeat("ü", 1<<20))
		}},
		{Namespace: "bin", Name: "nothing", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }},
	}
	code := `
import inspect, tools
from tools.fs import read, fail, crash
from tools.math import add
import tools.bin as bin
print(inspect.signature(read), repr(read.__doc__), read.__name__, read.__module__)
print(read('a'), read(path='b', size=2), read('c', None))
print(read({'k': [1, 2.5, True, None, 'ü\n"']}))
total = 0
for i in range(100): total = add(total, i)
print(total, tools.math.add(1, 2))
print(bin.flip(b'\x00\x01\xff'), len(bin.big()), bin.nothing())
for f in fail, crash:
    try: f()
    except tools.ToolError as e: print(type(e).__module__, type(e).__name__, e.code, e.message, e.fields)
for bad in (lambda: read(), lambda: read(1, 2, 3), lambda: read(path=1, nope=2), lambda: read({1, 2}), lambda: read(float('nan'))):
    try: print('no error', bad())
    except (TypeError, ValueError) as e: print(type(e).__name__)
try: from tools.fs import none
except ImportError: print('ImportError')
try: import tools.none
except ModuleNotFoundError: print('ModuleNotFoundError')
loop = []; loop.append(loop)
try: read(loop)
except (ValueError, RecursionError) as e: print('loop')
`
	equal(t, printed(t, b, sandbox.Spec{Code: code, Functions: fs}), `(path: str, size: int | None = Ellipsis) 'Reads a file.\n\nOr not: \'quoted\' """text""".' read tools.fs
{'path': 'a'} {'path': 'b', 'size': 2} {'path': 'c', 'size': None}
{'path': {'k': [1, 2.5, True, None, 'ü\n"']}}
4950 3
b'\xff\x01\x00' 1048576 None
tools ToolError denied not today {'n': 3, 'path': '/x'}
tools ToolError failed plain {}
TypeError
TypeError
TypeError
TypeError
ValueError
ImportError
ModuleNotFoundError
loop
`)
	want(t, b, sandbox.Failed, sandbox.Spec{Code: "import tools.fs\ntools.fs.fail()", Functions: fs})
	// Without functions there is no module: code that needs one must fail and not call nothing.
	want(t, b, sandbox.Failed, sandbox.Spec{Code: "import tools.fs"})
	t.Run("killed while it waits", func(t *testing.T) { killedInCall(t, b, c) })
}

// flip returns bytes in reverse order.
func flip(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
	var in struct{ Data sandbox.Bytes }
	if err := json.Unmarshal(args, &in); err != nil {
		return nil, err
	}
	for i, j := 0, len(in.Data)-1; i < j; i, j = i+1, j-1 {
		in.Data[i], in.Data[j] = in.Data[j], in.Data[i]
	}
	return json.Marshal(in.Data)
}

// killedInCall: the end of a run ends the wait for a function, whether the function
// looks at its context or not.
func killedInCall(t *testing.T, b sandbox.Backend, c Capabilities) {
	release, ended := make(chan struct{}), make(chan struct{}, 2)
	defer close(release)
	for name, call := range map[string]func(ctx context.Context){
		// A function that ignores its context must not keep the run alive.
		"deaf":   func(context.Context) { <-release },
		"polite": func(ctx context.Context) { <-ctx.Done(); ended <- struct{}{} },
	} {
		f := sandbox.Function{Namespace: "a", Name: "wait", Call: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			call(ctx)
			return nil, nil
		}}
		from := time.Now()
		code := "from tools.a import wait\ntry: wait()\nexcept BaseException as e: print('went on', e)\nprint('went on')"
		out := want(t, b, sandbox.Timeout, sandbox.Spec{Code: code, Functions: []sandbox.Function{f}, Limits: sandbox.Limits{Wall: 3 * time.Second}})
		if d := time.Since(from); d > 3*time.Second+c.start() || len(out.Stdout) > 0 {
			t.Errorf("%s: ended after %v with %q", name, d, out.Stdout)
		}
	}
	select {
	case <-ended:
	case <-time.After(c.start()):
		t.Error("the function's context did not end with the run")
	}
}

func sessions(t *testing.T, b sandbox.Sessioner, c Capabilities) {
	ctx := context.Background()
	open := func(s sandbox.Spec) sandbox.Session {
		t.Helper()
		ses, err := b.Open(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ses.Close() })
		return ses
	}
	step := func(s sandbox.Session, code string) sandbox.Outcome {
		t.Helper()
		out, err := s.Run(ctx, sandbox.Spec{Code: code, Limits: sandbox.Limits{Wall: 4 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one, two := open(sandbox.Spec{Env: map[string]string{"E": "1"}}), open(sandbox.Spec{})
	// Variables, files and descriptors of one session stay, and the other session never sees them.
	step(one, "import os, json\nx = 41\ndef f(): return x + 1\nopen('kept', 'w').write('k')\nf2 = open('kept')")
	step(two, "x = 1")
	equal(t, string(step(one, "print(f(), open('kept').read(), f2.read(), json.dumps(x), os.environ['E'])").Stdout), "42 k k 41 1\n")
	equal(t, string(step(two, "print(x, 'f' in globals())").Stdout), "1 False\n")
	if out := step(one, "x = 50\nraise ValueError('oops')"); out.Cause != sandbox.Failed || !strings.Contains(string(out.Stderr), "oops") {
		t.Errorf("an exception in a session: %+v", out)
	}
	if out := step(one, "import sys\nsys.exit(3)"); out.Cause != sandbox.Failed || out.Exit != 3 {
		t.Errorf("exit in a session: %+v", out)
	}
	equal(t, string(step(one, "print(f())").Stdout), "51\n")

	// A stopped interpreter is in an unknown state, so the session must end and say so.
	if out := step(one, "while True: pass"); out.Cause != sandbox.Timeout {
		t.Errorf("a loop in a session: %+v", out)
	}
	_, err := one.Run(ctx, sandbox.Spec{Code: "print(x)"})
	var r *sandbox.Refusal
	if !errors.As(err, &r) {
		t.Errorf("a run after one that was stopped: %v, want a refusal", err)
	}
	equal(t, string(step(two, "print(x)").Stdout), "1\n")
	if err := errors.Join(one.Close(), two.Close(), two.Close()); err != nil {
		t.Error(err)
	}
	if _, err := two.Run(ctx, sandbox.Spec{Code: "pass"}); !errors.As(err, &r) {
		t.Errorf("a run after Close: %v, want a refusal", err)
	}
}
