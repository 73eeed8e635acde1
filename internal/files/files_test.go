package files

// What these tests were seen to catch, each by breaking the code on purpose:
//
//   - edit: the first of several occurrences replaced                TestEdit, FuzzEdit
//   - edit: overlapping occurrences counted as one                   TestEdit, FuzzEdit
//   - edit: LF written into a file of CR LF                          TestEdit, FuzzEdit
//   - read: numbers from the start of the range                      TestRead, TestReadInParts
//   - sheet.line: bound on the text, not on the JSON                 TestAnswerFits
//   - remove: a directory removed unasked                            TestRemove
//   - write: the same content written again                          TestWrite
//   - walk: links followed                                           TestLinks
//   - descend: the end of the context not looked at                  TestInterrupted
//   - numbered: left out                                             TestEdit
//   - declare: schema left open                                      TestDeclared

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/workspace"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var _ FS = (*workspace.Layer)(nil)

// bench is a workspace with an open transaction.
type bench struct {
	t   testing.TB
	dir string
	ws  *workspace.Workspace
	tx  *workspace.Tx
}

// start makes a workspace of files: a name that ends with a slash is a
// directory, a content that begins with -> is a link.
func start(t testing.TB, files map[string]string) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	for name, content := range files {
		full := filepath.Join(b.dir, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(full, 0o755))
		} else if to, link := strings.CutPrefix(content, "-> "); link {
			must(t, os.Symlink(to, full))
		} else {
			must(t, os.WriteFile(full, []byte(content), 0o644))
		}
	}
	ws, err := workspace.Open(t.Context(), b.dir, workspace.Config{Store: t.TempDir()})
	must(t, err)
	b.ws = ws
	b.begin()
	t.Cleanup(func() {
		must(t, b.tx.Rollback())
		must(t, ws.Close())
	})
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) begin() {
	b.t.Helper()
	tx, err := b.ws.Begin(context.Background(), workspace.Options{})
	must(b.t, err)
	b.tx = tx
}

// use runs a tool and returns its text, or its error.
func (b *bench) use(name string, args map[string]any) (string, *abi.Error) {
	b.t.Helper()
	raw, err := json.Marshal(args)
	must(b.t, err)
	v, e := Find(name).Run(context.Background(), b.tx.Layer(), raw, 0)
	if e != nil {
		return "", e
	}
	var s string
	must(b.t, json.Unmarshal(v, &s))
	return s, nil
}

func (b *bench) want(want, name string, args map[string]any) {
	b.t.Helper()
	got, e := b.use(name, args)
	if e != nil {
		b.t.Fatalf("%s %v: %s: %v; hint %q", name, args, e.Code, e, e.Hint)
	}
	if got != want {
		b.t.Errorf("%s %v:\n%s\nwant:\n%s", name, args, got, want)
	}
}

// refuse wants an error that holds these words in its message or hint.
func (b *bench) refuse(code abi.Code, name string, args map[string]any, words ...string) {
	b.t.Helper()
	got, e := b.use(name, args)
	if e == nil {
		b.t.Fatalf("%s %v: %q, expected the error %s", name, args, got, code)
	}
	if e.Code != code {
		b.t.Errorf("%s %v: code %s, want %s (%v)", name, args, e.Code, code, e)
	}
	for _, w := range words {
		if !strings.Contains(e.Error()+"\n"+e.Hint, w) {
			b.t.Errorf("%s %v: nothing of %q in\n%v\n%s", name, args, w, e, e.Hint)
		}
	}
}

func (b *bench) holds(name, content string) {
	b.t.Helper()
	got, err := b.tx.Layer().ReadFile(name)
	must(b.t, err)
	if string(got) != content {
		b.t.Errorf("%s holds %q, want %q", name, got, content)
	}
}

type m = map[string]any

func TestDeclared(t *testing.T) {
	effects := map[string]abi.Effect{"fs.read": abi.Pure, "fs.list": abi.Pure, "fs.search": abi.Pure,
		"fs.write": abi.Transactional, "fs.edit": abi.Transactional, "fs.remove": abi.Transactional}
	if len(Names()) != len(effects) || len(tools) != len(effects) {
		t.Errorf("tools %v, want those of %v", Names(), effects)
	}
	for name, effect := range effects {
		tool := Find(name)
		if tool == nil || tool.Effect != effect || tool.Description == "" {
			t.Fatalf("%s: %+v, want the effect %s", name, tool, effect)
		}
		if _, e := tool.Run(t.Context(), nil, json.RawMessage(`{"path":"a","pattern":"a","old":"a","new":"b","content":"","surprise":1}`), 0); e == nil || e.Code != abi.InvalidArguments {
			t.Errorf("%s takes a key that it does not know: %v", name, e)
		}
	}
	if Find("fs.format") != nil {
		t.Error("there is a tool fs.format")
	}
}

func TestRead(t *testing.T) {
	b := start(t, map[string]string{
		"a.txt": "one\ntwo\nthree\n", "open.txt": "one\ntwo", "dos.txt": "one\r\ntwo\r\n", "empty": "",
		"bin": "MZ\x00\x01\x02", "pic": "\x89PNG\r\n\x1a\n\x00\x00", "latin": "caf\xe9 au lait, monsieur\n",
		"sub/b.txt": "b\n", "long": strings.Repeat("x", 5000) + "\n", "many": strings.Repeat("l\n", 3000),
	})
	b.want("1\tone\n2\ttwo\n3\tthree", "fs.read", m{"path": "a.txt"})
	b.want("2\ttwo\n[lines 2 to 2 of 3; go on with from: 3]", "fs.read", m{"path": "a.txt", "from": 2, "lines": 1})
	b.want("3\tthree\n[lines 3 to 3, the last]", "fs.read", m{"path": "./a.txt", "from": 3.0, "lines": 9})
	b.want("1\tone\n2\ttwo\n[no newline at the end]", "fs.read", m{"path": "open.txt"})
	b.want("1\tone\n2\ttwo\n[lines end with CR LF, which fs.edit keeps]", "fs.read", m{"path": "dos.txt"})
	b.want("[the file is empty]", "fs.read", m{"path": "empty"})
	b.want("1\tcaf\uFFFD au lait, monsieur\n[not UTF-8 everywhere: such bytes are shown as \uFFFD]", "fs.read", m{"path": "latin"})
	b.want("1\t"+strings.Repeat("x", maxLine)+" ... [3000 more bytes]", "fs.read", m{"path": "long"})
	got, _ := b.use("fs.read", m{"path": "many"})
	if !strings.HasSuffix(got, "\n2000\tl\n[lines 1 to 2000 of 3000; go on with from: 2001]") {
		t.Errorf("a long file ends with %q", got[len(got)-80:])
	}
	b.refuse(abi.InvalidArguments, "fs.read", m{"path": "a.txt", "from": 4}, "3 lines", "line 4")
	b.refuse(abi.InvalidArguments, "fs.read", m{"path": "a.txt", "from": 0})
	b.refuse(abi.FileKind, "fs.read", m{"path": "bin"}, "binary", "5 bytes")
	b.refuse(abi.FileKind, "fs.read", m{"path": "pic"}, "image/png")
	b.refuse(abi.FileKind, "fs.read", m{"path": "sub"}, "is a directory", "fs.list")
	b.refuse(abi.FileMissing, "fs.read", m{"path": "sub/c.txt"}, "no sub/c.txt", "sub/b.txt")
	b.refuse(abi.FileMissing, "fs.read", m{"path": "sbu/b.txt"}, "no sbu")
	b.refuse(abi.FileMissing, "fs.read", m{"path": "a.txt/x"}, "a.txt is a file")
}

// TestReadInParts reads random files in the parts that the answers offer, and
// puts them together.
func TestReadInParts(t *testing.T) {
	b := start(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(rt, "lines")
		var lines []string
		for range n {
			lines = append(lines, rapid.StringMatching(`[a-z\\"\t ]{0,200}`).Draw(rt, "line"))
		}
		must(t, b.tx.Layer().WriteFile("f", []byte(strings.Join(lines, "\n")+"\n"), 0o644))
		if n == 0 {
			lines = []string{""}
		}
		limit := rapid.Int64Range(1000, 4000).Draw(rt, "limit")
		var got []string
		for from := 1; from <= len(lines); {
			v, e := Find("fs.read").Run(context.Background(), b.tx.Layer(), json.RawMessage(fmt.Sprintf(`{"path":"f","from":%d}`, from)), limit)
			if e != nil {
				rt.Fatal(e)
			}
			var s string
			must(t, json.Unmarshal(v, &s))
			for line := range strings.Lines(s) {
				num, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
				if !ok || num != fmt.Sprint(from) {
					if !strings.HasPrefix(line, "[lines ") {
						rt.Fatalf("from %d: %q", from, line)
					}
					continue
				}
				got, from = append(got, text), from+1
			}
		}
		if !slices.Equal(got, lines) {
			rt.Fatalf("%q, want %q", got, lines)
		}
	})
}

// TestAnswerFits holds that no answer is larger than allowed, as it is written.
func TestAnswerFits(t *testing.T) {
	nasty := strings.Repeat("\x01\"\\<\u2028é", 4000)
	files := map[string]string{"nasty": strings.ReplaceAll(nasty, "<", "<\n")}
	for i := range 300 {
		files[fmt.Sprintf("dir/%c%d", 'a'+i%26, i)] = "find \x02\x03me\n"
	}
	b := start(t, files)
	for _, limit := range []int64{400, 500, 1000, 5000} {
		for name, args := range map[string]string{"fs.read": `{"path":"nasty"}`, "fs.list": `{"path":"dir"}`, "fs.search": `{"pattern":"find"}`} {
			v, e := Find(name).Run(t.Context(), b.tx.Layer(), json.RawMessage(args), limit)
			if e != nil {
				t.Errorf("%s in %d bytes: %v", name, limit, e)
			} else if int64(len(v)) > limit || !json.Valid(v) {
				t.Errorf("%s in %d bytes gave %d", name, limit, len(v))
			} else if !bytes.Contains(v, []byte("more")) && !bytes.Contains(v, []byte("go on")) && !bytes.Contains(v, []byte("no room")) {
				t.Errorf("%s in %d bytes does not say that it was cut: %s", name, limit, v)
			}
		}
	}
	if _, e := Find("fs.write").Run(t.Context(), b.tx.Layer(), json.RawMessage(`{"path":"x","content":"y"}`), 5); e == nil || e.Code != abi.LimitOutputBytes {
		t.Errorf("an answer without room: %v", e)
	}
}

func TestList(t *testing.T) {
	b := start(t, map[string]string{"a.txt": "12345", "d/x/deep": "1", "d/y": "", "link": "-> a.txt", ".git/config": "c", "odd\nname": "z", "void/": ""})
	must(t, os.Chmod(filepath.Join(b.dir, "d/y"), 0o755))
	b.want(".git/\na.txt  (5 bytes)\nd/\nlink -> a.txt\n\"odd\\nname\"  (1 byte)\nvoid/", "fs.list", m{})
	b.want("d/x/\nd/y  (0 bytes, executable)", "fs.list", m{"path": "d"})
	b.want(".git/  (not looked into)\na.txt  (5 bytes)\nd/\nd/x/\nd/x/deep  (1 byte)\nd/y  (0 bytes, executable)\nlink -> a.txt\n\"odd\\nname\"  (1 byte)\nvoid/", "fs.list", m{"depth": 3})
	b.want(".git/config  (1 byte)", "fs.list", m{"path": ".git"})
	b.want("[the directory is empty]", "fs.list", m{"path": "void"})
	b.refuse(abi.FileKind, "fs.list", m{"path": "a.txt"}, "not a directory", "fs.read")
	b.refuse(abi.FileMissing, "fs.list", m{"path": "voids"}, "void")
}

func TestSearch(t *testing.T) {
	long := strings.Repeat("y", 1000) + "needle" + strings.Repeat("y", 1000)
	b := start(t, map[string]string{
		"a.go": "package a\nfunc Alpha() {}\n\nfunc Beta() {}\r\n", "sub/b.go": "func alpha() {}", "bin": "func\x00", ".git/x": "func",
		"long": long, "node_modules/m.js": "func",
	})
	b.want("a.go:2:func Alpha() {}\na.go:4:func Beta() {}\nsub/b.go:1:func alpha() {}\n[1 file not searched: binary, or larger than 16777216 bytes]", "fs.search", m{"pattern": "^func"})
	b.want("a.go:2:func Alpha() {}\nsub/b.go:1:func alpha() {}\n[1 file not searched: binary, or larger than 16777216 bytes]", "fs.search", m{"pattern": `(?i)func alpha\(\) {}$`, "path": "."})
	b.want("a.go:4:func Beta() {}", "fs.search", m{"pattern": `ta\(\) {}$`, "path": "a.go"})
	b.want("[no match in 1 file]", "fs.search", m{"pattern": "Gamma", "path": "sub"})
	b.refuse(abi.InvalidArguments, "fs.search", m{"pattern": "a("}, "regular expression", "RE2")
	got, _ := b.use("fs.search", m{"pattern": "needle"})
	if !strings.HasPrefix(got, "long:1:... yyy") || !strings.Contains(got, "needle") || len(got) > 500 {
		t.Errorf("a match in a long line: %q", got)
	}
	must(t, b.tx.Layer().WriteFile("many", []byte(strings.Repeat("hit\n", 300)), 0o644))
	got, _ = b.use("fs.search", m{"pattern": "hit", "path": "many"})
	if !strings.HasSuffix(got, "many:200:hit\n[the first 200 lines; there are more: search below a directory, or for less]") {
		t.Errorf("many matches end with %q", got[len(got)-120:])
	}
}

func TestWrite(t *testing.T) {
	b := start(t, map[string]string{"a.txt": "old", "d/x": ""})
	b.want("wrote n/e/w.txt, a new file: 2 lines, 4 bytes", "fs.write", m{"path": "n/e/w.txt", "content": "1\n2\n"})
	b.want("wrote a.txt: 1 line, 5 bytes in place of 3", "fs.write", m{"path": "a.txt", "content": "newer"})
	b.want("wrote empty, a new file: 0 lines, 0 bytes", "fs.write", m{"path": "empty", "content": ""})
	b.holds("a.txt", "newer")
	b.holds("n/e/w.txt", "1\n2\n")
	b.refuse(abi.FileKind, "fs.write", m{"path": "d", "content": ""}, "directory")
	b.refuse(abi.FileMissing, "fs.write", m{"path": "a.txt/b", "content": ""}, "a.txt is a file")
	b.refuse(abi.InvalidArguments, "fs.write", m{"path": "new/", "content": ""}, "directory")
	b.refuse(abi.FileRefused, "fs.write", m{"path": ".git/config", "content": ""}, "repository")

	must(t, b.tx.Rollback())
	b.begin()
	b.want("a.txt holds exactly this already: nothing was changed", "fs.write", m{"path": "a.txt", "content": "old"})
	changes, err := b.tx.Diff()
	if err != nil || len(changes) != 0 {
		t.Errorf("writing what is there changed %v (%v)", changes, err)
	}
}

func TestEdit(t *testing.T) {
	const code = "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 1\n}\n"
	b := start(t, map[string]string{"a.go": code, "dos": "one\r\ntwo\r\nthree", "mixed": "one\r\ntwo\n", "aaa": "xaaay", "bin": "a\x00b"})
	b.want("edited a.go at line 5", "fs.edit", m{"path": "a.go", "old": "func b() {\n\treturn 1", "new": "func b() {\n\treturn 2"})
	b.holds("a.go", strings.Replace(code, "b() {\n\treturn 1", "b() {\n\treturn 2", 1))
	b.want("edited a.go at 2 places", "fs.edit", m{"path": "a.go", "old": "return", "new": "yield", "all": true})
	b.want("edited a.go at line 4", "fs.edit", m{"path": "a.go", "old": "\nfunc b() {\n\tyield 2\n}\n", "new": ""})
	b.holds("a.go", "func a() {\n\tyield 1\n}\n")

	b.want("edited dos at line 1", "fs.edit", m{"path": "dos", "old": "one\ntwo", "new": "1\n1a\n2"})
	b.holds("dos", "1\r\n1a\r\n2\r\nthree")
	b.want("edited dos at line 3", "fs.edit", m{"path": "dos", "old": "2\r\nthree", "new": "2\n3"})
	b.holds("dos", "1\r\n1a\r\n2\n3")
	b.want("edited mixed at line 2", "fs.edit", m{"path": "mixed", "old": "two\n", "new": "2\n"})
	b.holds("mixed", "one\r\n2\n")

	must(t, b.tx.Rollback())
	b.begin()
	b.refuse(abi.EditAmbiguous, "fs.edit", m{"path": "a.go", "old": "return 1", "new": "x"}, "2 times", "lines 2, 6", "all")
	b.refuse(abi.EditAmbiguous, "fs.edit", m{"path": "aaa", "old": "aa", "new": "x"}, "2 times")
	b.want("edited aaa at line 1", "fs.edit", m{"path": "aaa", "old": "aa", "new": "x", "all": true})
	b.holds("aaa", "xxay")
	b.refuse(abi.EditNoMatch, "fs.edit", m{"path": "a.go", "old": "func b() {\n    return 1\n}", "new": "x"}, "only white space differs", "lines 5 to 7:\n5\tfunc b() {\n6\t\treturn 1\n7\t}")
	b.refuse(abi.EditNoMatch, "fs.edit", m{"path": "a.go", "old": "FUNC A() {", "new": "x"}, "upper and lower case", "line 1:\n1\tfunc a() {")
	b.refuse(abi.EditNoMatch, "fs.edit", m{"path": "a.go", "old": "\tretrun 1", "new": "x"}, "nearest is line 2:\n2\t\treturn 1")
	b.refuse(abi.EditNoMatch, "fs.edit", m{"path": "a.go", "old": "1\tfunc a() {\n2\t\treturn 1\n", "new": "x"}, "numbers")
	b.refuse(abi.EditNoMatch, "fs.edit", m{"path": "a.go", "old": "zzz", "new": "x"}, "nothing in the file is like it", "7 lines")
	b.refuse(abi.EditNoMatch, "fs.edit", m{"path": "a.go", "old": " \n \n", "new": "x"}, "nothing")
	b.refuse(abi.InvalidArguments, "fs.edit", m{"path": "a.go", "old": "a", "new": "a"}, "expected a change")
	b.refuse(abi.InvalidArguments, "fs.edit", m{"path": "a.go", "old": "", "new": "a"})
	b.refuse(abi.FileKind, "fs.edit", m{"path": "bin", "old": "a", "new": "b"}, "binary")
	b.refuse(abi.FileMissing, "fs.edit", m{"path": "b.go", "old": "a", "new": "b"}, "a.go")
	b.holds("a.go", code)
}

func TestRemove(t *testing.T) {
	b := start(t, map[string]string{"a": "1", "d/x/y": "1", "d/z": "1", "void/": "", "link": "-> d", ".git/config": ""})
	b.want("removed a", "fs.remove", m{"path": "a"})
	b.refuse(abi.FileKind, "fs.remove", m{"path": "d/"}, "3 entries", "recursive")
	b.refuse(abi.FileKind, "fs.remove", m{"path": "void"}, "0 entries")
	b.want("removed link", "fs.remove", m{"path": "link"})
	b.want("removed d/ with 3 entries below it", "fs.remove", m{"path": "d", "recursive": true})
	b.refuse(abi.FileMissing, "fs.remove", m{"path": "d/z"}, "no d/z")
	b.refuse(abi.InvalidArguments, "fs.remove", m{"path": "void/..", "recursive": true}, "itself")
	b.refuse(abi.FileRefused, "fs.remove", m{"path": ".git", "recursive": true}, "repository")
}

// TestLinks: links inside the workspace lead where they say, and one that leads
// out is an error of every tool. What lies outside stays as it is.
func TestLinks(t *testing.T) {
	out := t.TempDir()
	secret := filepath.Join(out, "secret")
	must(t, os.WriteFile(secret, []byte("secret\n"), 0o644))
	b := start(t, map[string]string{"in/a": "a\n", "l": "-> in/a", "dir": "-> in", "abs": "-> " + secret, "up": "-> ../../../../etc", "self": "-> self"})
	b.want("1\ta", "fs.read", m{"path": "l"})
	b.want("edited dir/a at line 1", "fs.edit", m{"path": "dir/a", "old": "a", "new": "b"})
	b.holds("in/a", "b\n")
	b.want("in/a:1:b", "fs.search", m{"pattern": "."})
	outside := []string{"abs", "up/passwd", "../x", "/etc/passwd", secret, "in/../../x", "dir/../../x"}
	for _, p := range outside {
		b.refuse(abi.FileRefused, "fs.read", m{"path": p}, "relative to the workspace")
		b.refuse(abi.FileRefused, "fs.write", m{"path": p, "content": "x"})
		b.refuse(abi.FileRefused, "fs.edit", m{"path": p, "old": "secret", "new": "x"})
		b.refuse(abi.FileRefused, "fs.list", m{"path": p})
		b.refuse(abi.FileRefused, "fs.search", m{"pattern": "secret", "path": p})
		if p != "abs" { // the link itself may go
			b.refuse(abi.FileRefused, "fs.remove", m{"path": p, "recursive": true})
		}
	}
	b.refuse(abi.ToolFailed, "fs.read", m{"path": "self"}, "too many links")
	must(t, b.tx.Rollback())
	b.begin()
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret\n" {
		t.Errorf("outside: %q, %v", got, err)
	}
}

// TestPublished follows changes to the disk: permissions stay, and a new file
// has those of a new file.
func TestPublished(t *testing.T) {
	b := start(t, map[string]string{"run.sh": "#!/bin/sh\necho a\n", "key": "k"})
	must(t, os.Chmod(filepath.Join(b.dir, "run.sh"), 0o750))
	must(t, os.Chmod(filepath.Join(b.dir, "key"), 0o600))
	must(t, b.tx.Rollback())
	b.begin()
	b.want("edited run.sh at line 2", "fs.edit", m{"path": "run.sh", "old": "echo a", "new": "echo b"})
	b.want("wrote key: 1 line, 2 bytes in place of 1", "fs.write", m{"path": "key", "content": "kk"})
	b.want("wrote d/new, a new file: 0 lines, 0 bytes", "fs.write", m{"path": "d/new", "content": ""})
	_, err := b.tx.Commit(t.Context(), workspace.Note{ID: "1", Tool: "fs.edit"})
	must(t, err)
	for name, mode := range map[string]os.FileMode{"run.sh": 0o750, "key": 0o600, "d/new": 0o644, "d": 0o755 | os.ModeDir} {
		fi, err := os.Stat(filepath.Join(b.dir, name))
		must(t, err)
		if fi.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, fi.Mode(), mode)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(b.dir, "run.sh")); string(got) != "#!/bin/sh\necho b\n" {
		t.Errorf("run.sh: %q", got)
	}
	b.begin()
}

// TestQuota: what a transaction may not stage is refused with its code.
func TestQuota(t *testing.T) {
	b := start(t, nil)
	must(t, b.tx.Rollback())
	tx, err := b.ws.Begin(t.Context(), workspace.Options{Bytes: 100, Files: 3})
	must(t, err)
	b.tx = tx
	b.refuse("WORKSPACE_QUOTA", "fs.write", m{"path": "a", "content": strings.Repeat("x", 101)}, "100 bytes")
}

// TestConflict: a file that somebody else changed since the tool first looked
// is not read as if it were still the same.
func TestConflict(t *testing.T) {
	b := start(t, map[string]string{"a": "one\n"})
	b.want("a  (4 bytes)", "fs.list", m{})
	must(t, os.WriteFile(filepath.Join(b.dir, "a"), []byte("three\n"), 0o644))
	b.refuse("WORKSPACE_CONFLICT", "fs.read", m{"path": "a"}, "changed by somebody else", "look at it again")
}

func TestInterrupted(t *testing.T) {
	b := start(t, map[string]string{"a": "1", "d/b": "1"})
	why := &abi.Error{Code: abi.LimitWall, Message: "the time is up"}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for _, name := range []string{"fs.search", "fs.list"} {
		args := `{"pattern":"1"}`
		if name == "fs.list" {
			args = `{}`
		}
		if v, e := Find(name).Run(ctx, b.tx.Layer(), json.RawMessage(args), 0); e == nil || e.Code != abi.LimitWall || e == why {
			t.Errorf("%s after the end: %s, %v", name, v, e)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, e := Find("fs.search").Run(ctx, b.tx.Layer(), json.RawMessage(`{"pattern":"1"}`), 0); e == nil || e.Code != abi.Interrupted {
		t.Errorf("interrupted: %v", e)
	}
	walked := 0
	c := &call{ctx: ctx, tool: Find("fs.list"), fs: b.tx.Layer()}
	if err := c.walk(".", 9, func(string, workspace.Entry, bool) bool { walked++; return true }); !errors.Is(err, context.Canceled) || walked > 0 {
		t.Errorf("a walk that was stopped went over %d names: %v", walked, err)
	}
}

// held is a file system of one file, for what needs many rounds.
type held struct {
	FS
	b []byte
}

func (h *held) Stat(string) (workspace.Entry, error) {
	return workspace.Entry{Kind: workspace.File, Size: int64(len(h.b)), Mode: 0o644}, nil
}
func (h *held) ReadFile(string) ([]byte, error)                   { return bytes.Clone(h.b), nil }
func (h *held) WriteFile(_ string, b []byte, _ os.FileMode) error { h.b = bytes.Clone(b); return nil }

// checkEdit edits content and holds the outcome to what an edit promises.
func checkEdit(t interface{ Fatalf(string, ...any) }, content, old, with string, all bool) {
	h := &held{b: []byte(content)}
	args, err := json.Marshal(map[string]any{"path": "f", "old": old, "new": with, "all": all})
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, e := Find("fs.edit").Run(context.Background(), h, args, 0)
	got := string(h.b)
	dos := crlf([]byte(content)) && !strings.Contains(old+with, "\r")
	if dos {
		old, with = strings.ReplaceAll(old, "\n", "\r\n"), strings.ReplaceAll(with, "\n", "\r\n")
	}
	places := 0
	for i := range content {
		if strings.HasPrefix(content[i:], old) {
			places++
		}
	}
	if e != nil {
		if got != content {
			t.Fatalf("%q: an edit that failed with %v left %q", content, e, got)
		}
		switch e.Code {
		case abi.EditNoMatch:
			if places != 0 {
				t.Fatalf("%q: no match of %q, which is there", content, old)
			}
		case abi.EditAmbiguous:
			if places < 2 || all {
				t.Fatalf("%q: %q is said to be ambiguous", content, old)
			}
		}
		return
	}
	want := strings.ReplaceAll(content, old, with)
	if places == 0 || !all && places != 1 || got != want {
		t.Fatalf("%q: %q -> %q (all %v, %d places) gave %q, want %q", content, old, with, all, places, got, want)
	}
	if dos && !crlf([]byte(got)) && strings.Contains(got, "\n") {
		t.Fatalf("%q -> %q: line ends were not kept", content, got)
	}
}

func FuzzEdit(f *testing.F) {
	f.Add("one\ntwo\n", "two", "2", false)
	f.Add("one\r\ntwo\r\n", "one\ntwo", "1\n2", true)
	f.Add("aaa", "aa", "b", false)
	f.Add("\xff\xfe", "\xff", "x", false)
	f.Add("1\tx\n", "1\tx\n2\ty", "", false)
	f.Fuzz(func(t *testing.T, content, old, with string, all bool) {
		if !json.Valid(quote(old)) || strings.ToValidUTF8(old+with, "") != old+with {
			return // JSON cannot say it
		}
		if old == "" || old == with || binary([]byte(content)) {
			return
		}
		checkEdit(t, content, old, with, all)
	})
}

// TestEditRandom makes edits that are likely to match.
func TestEditRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"a", "aa", "b", "\n", "\r\n", "\t", "ab", "é"}
	text := func(n int) string {
		var s strings.Builder
		for range r.IntN(n) {
			s.WriteString(words[r.IntN(len(words))])
		}
		return s.String()
	}
	for range 20000 {
		content, old, with := text(12), text(3), text(3)
		if r.IntN(3) == 0 {
			content, old, with = strings.ReplaceAll(strings.ReplaceAll(content, "\r", ""), "\n", "\r\n"), strings.ReplaceAll(old, "\r", ""), strings.ReplaceAll(with, "\r", "")
		}
		if old != "" && old != with {
			checkEdit(t, content, old, with, r.IntN(2) == 0)
		}
	}
}
