//go:build linux

package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
)

// A space is a world with a workspace in it, and an agent file.
type space struct {
	*world
	files string // the workspace
}

// newSpace makes a workspace that holds kept.txt and config.json.
func newSpace(t testing.TB, script string) *space {
	s := &space{newWorld(t, script), filepath.Join(t.TempDir(), "files")}
	if err := os.Mkdir(s.files, 0o755); err != nil {
		t.Fatal(err)
	}
	s.put("kept.txt", "as it was\n")
	s.put("config.json", "{\"a\": 1}\n")
	old := time.Unix(1_700_000_000, 123_456_789)
	for _, name := range []string{"kept.txt", "config.json"} {
		if err := os.Chtimes(filepath.Join(s.files, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *space) put(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.files, name), []byte(text), 0o640); err != nil {
		s.t.Fatal(err)
	}
}

// agent reads an agent file of which only what follows the workspace is given.
func (s *space) agent(rest string) host.Agent {
	s.t.Helper()
	name := filepath.Join(filepath.Dir(s.script), "agent.yaml")
	if err := os.WriteFile(name, []byte("model: script:replies.yaml\n"+rest), 0o600); err != nil {
		s.t.Fatal(err)
	}
	a, err := host.ReadAgent(name)
	if err != nil {
		s.t.Fatal(err)
	}
	if a.Workspace == "" {
		a.Workspace = s.files
	}
	return a
}

// open opens a kernel that runs command tools.
func (s *space) open() *host.Kernel {
	s.t.Helper()
	k, err := host.Open(host.Config{Dir: s.dir, Getenv: func(string) string { return "" }})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := k.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return k
}

// do runs an agent to its end.
func (s *space) do(k *host.Kernel, a host.Agent) (host.Result, []*abi.Record) {
	s.t.Helper()
	r, err := k.Run(s.t.Context(), a, "go")
	if err != nil {
		s.t.Fatal(err)
	}
	return r, answers(s.t, k, r.Pid)
}

// tree is the workspace to the byte, the mode and the time.
func (s *space) tree() string {
	s.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(s.files, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(s.files, p)
		text := []byte(nil)
		if fi.Mode().IsRegular() {
			if text, err = os.ReadFile(p); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "%s %s %d %q\n", name, fi.Mode(), fi.ModTime().UnixNano(), text)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

// views are the ways in which programs can see a workspace on this host.
func views(t *testing.T) []string {
	if os.Geteuid() == 0 {
		return []string{"copy", "overlay"}
	}
	t.Log("not root: overlay is left out")
	return []string{"copy"}
}

func sh(name, effect, script, more string) string {
	return fmt.Sprintf("  - {name: %s, effect: %s, command: [sh, -c, %q], schema: {type: object}%s}\n", name, effect, script, more)
}

// TestScenario17Rollback: what a tool changed that failed, or whose result or
// files are not as declared, never becomes visible; what went well does, whole.
func TestScenario17Rollback(t *testing.T) {
	for _, view := range views(t) {
		t.Run(view, func(t *testing.T) {
			s := newSpace(t, `
replies:
  - calls: [{tool: fails, args: {}}]
  - calls: [{tool: lies, args: {}}]
  - calls: [{tool: spoils, args: {}}]
  - calls: [{tool: reads, args: {}}]
  - calls: [{tool: unlucky, args: {}}]
  - text: nothing was done
`)
			a := s.agent("invariants:\n  - {paths: '*.json', check: json}\n  - {paths: '**/*.sh', command: [sh, -n, '{path}']}\ntools:\n" +
				sh("fails", "transactional", "echo half > kept.txt; mkdir d; echo x > d/e; rm config.json; exit 3", "") +
				sh("lies", "transactional", "echo other > kept.txt; echo 5", ", result: {type: object}") +
				sh("spoils", "irreversible", "echo other > kept.txt; echo '{\"a\": ' > config.json", "") +
				sh("reads", "pure", "cat kept.txt; echo other > kept.txt; pwd", "") +
				sh("unlucky", "transactional", "mkdir bin; echo 'if true' > bin/run.sh; echo other > kept.txt", ""))
			a.Space.View = view
			before := s.tree()
			r, got := s.do(s.open(), a)
			if r.Output != "nothing was done" {
				t.Fatalf("%+v", r)
			}
			want := []string{"TOOL_FAILED", "INVALID_RESULT", "INVARIANT_FAILED", "ok", "INVARIANT_FAILED"}
			if c := codes(got); !slices.Equal(c, want) {
				t.Errorf("%v, want %v", c, want)
			}
			if e := got[2].Answer.Err; e.Where != "config.json" || !strings.Contains(e.Message, "json") {
				t.Errorf("the error does not say which file and why: %+v", e)
			}
			if e := got[4].Answer.Err; e.Where != "bin/run.sh" {
				t.Errorf("the error does not say which file: %+v", e)
			}
			for i, r := range got {
				if !r.Answer.Commit.IsZero() || r.Answer.Digest.IsZero() || r.Answer.Digest != got[0].Answer.Digest {
					t.Errorf("call %d: commit %s, digest %x", i+1, r.Answer.Commit, r.Answer.Digest)
				}
			}
			if now := s.tree(); now != before {
				t.Errorf("the workspace was\n%sand is\n%s", before, now)
			}
		})
	}
}

// TestPublished: what went well is there, in the order of the calls, with the
// commit that the journal names.
func TestPublished(t *testing.T) {
	for _, view := range views(t) {
		t.Run(view, func(t *testing.T) {
			s := newSpace(t, `
replies:
  - calls: [{tool: writes, args: {}}]
  - calls: [{tool: own, args: {}}]
  - calls: [{tool: fs.read, args: {path: d/new.txt}}]
  - calls: [{tool: fs.edit, args: {path: d/new.txt, old: two, new: three}}]
  - text: done
`)
			a := s.agent("tools:\n" + sh("writes", "transactional", "mkdir d; echo one two > d/new.txt; chmod 600 d/new.txt; rm kept.txt", ""))
			a.Space.View = view
			a.Tools = []host.Callable{host.Tool("own", "Write.", func(ctx context.Context, _ struct{}) (string, error) {
				return "fine", host.Files(ctx).WriteFile("own.txt", []byte("mine"), 0o644)
			})}
			k := s.open()
			_, got := s.do(k, a)
			if c := codes(got); !slices.Equal(c, []string{"ok", "ok", "ok", "ok"}) {
				t.Fatalf("%v %+v", c, got[0].Answer.Err)
			}
			for i, published := range []bool{true, true, false, true} {
				if got[i].Answer.Commit.IsZero() == published {
					t.Errorf("call %d: commit %s", i+1, got[i].Answer.Commit)
				}
			}
			if d := []abi.Key{got[0].Answer.Digest, got[1].Answer.Digest, got[3].Answer.Digest}; d[0] == d[1] || d[1] == d[2] || got[2].Answer.Digest != d[1] {
				t.Errorf("digests %x", d)
			}
			b, err := os.ReadFile(filepath.Join(s.files, "d/new.txt"))
			if err != nil || string(b) != "one three\n" {
				t.Errorf("%q %v", b, err)
			}
			if _, err := os.Stat(filepath.Join(s.files, "kept.txt")); !os.IsNotExist(err) {
				t.Error("what was removed is there:", err)
			}
			at, err := k.Files.CommitAt(t.Context(), got[0].Pid, got[2].N)
			if err != nil || at != got[1].Answer.Commit {
				t.Errorf("at record %d the commit was %s (%v), want %s", got[2].N, at, err, got[1].Answer.Commit)
			}
		})
	}
}

// TestScenario28Conflict: a file that somebody else changed while the tool
// worked is not overwritten, and what they did elsewhere survives.
func TestScenario28Conflict(t *testing.T) {
	s := newSpace(t, "replies:\n  - calls: [{tool: slow, args: {}}]\n  - text: done\n")
	working, goOn := make(chan struct{}), make(chan struct{})
	a := s.agent("")
	a.Tools = []host.Callable{host.Tool("slow", "Write.", func(ctx context.Context, _ struct{}) (string, error) {
		f := host.Files(ctx)
		err := errors.Join(f.WriteFile("kept.txt", []byte("mine"), 0o644), f.WriteFile("new.txt", []byte("mine"), 0o644))
		close(working)
		<-goOn
		return "", err
	}).As(abi.Transactional)}
	k := s.open()
	pid, err := k.Spawn(t.Context(), a, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-working
	s.put("kept.txt", "theirs")
	s.put("other.txt", "theirs too")
	before := s.tree()
	close(goOn)
	if _, err := k.Wait(t.Context(), pid); err != nil {
		t.Fatal(err)
	}
	got := answers(t, k, pid)
	if e := got[0].Answer.Err; e == nil || e.Code != abi.WorkspaceConflict || e.Where != "kept.txt" || !got[0].Answer.Rolled {
		t.Errorf("%+v", e)
	}
	if now := s.tree(); now != before {
		t.Errorf("the workspace was\n%sand is\n%s", before, now)
	}
}

// TestScenario28Killed kills a process in the middle of a tool that has written
// half of what it wants to.
func TestScenario28Killed(t *testing.T) {
	for _, view := range views(t) {
		t.Run(view, func(t *testing.T) {
			s := newSpace(t, "replies:\n  - calls: [{tool: slow, args: {}}]\n  - text: done\n")
			flag := filepath.Join(t.TempDir(), "half")
			a := s.agent("tools:\n" + sh("slow", "transactional", "echo half > kept.txt; rm config.json; touch "+flag+"; sleep 600", ""))
			a.Space.View = view
			before := s.tree()
			k := s.open()
			pid, err := k.Spawn(t.Context(), a, "go")
			if err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { _, err := os.Stat(flag); return err == nil })
			if now := s.tree(); now != before {
				t.Errorf("before the end of the tool the workspace is\n%s", now)
			}
			s.put("theirs.txt", "an unrelated file")
			before = s.tree()
			if err := k.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
				t.Fatal(err)
			}
			r, err := k.Wait(t.Context(), pid)
			if err != nil || r.Exit != abi.ExitKilled {
				t.Fatalf("%+v %v", r, err)
			}
			if now := s.tree(); now != before {
				t.Errorf("the workspace was\n%sand is\n%s", before, now)
			}
		})
	}
}

// TestManyAtOnce: twenty calls of one reply, each on a view of its own. Those
// on different files all go through; of those on one file that began together,
// who is later is told.
func TestManyAtOnce(t *testing.T) {
	calls := func(path string) (list string) {
		for i := range 20 {
			list += fmt.Sprintf("      - {tool: put, args: {path: %q, text: \"%d\"}}\n", strings.ReplaceAll(path, "N", fmt.Sprint(i)), i)
		}
		return list
	}
	s := newSpace(t, "replies:\n  - calls:\n"+calls("N.txt")+"  - calls:\n"+calls("one.txt")+"  - text: done\n")
	type in struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}
	var mu sync.Mutex
	arrived, all := 0, make(chan struct{})
	a := s.agent("")
	a.Watchdog.Profile = "off"
	a.Tools = []host.Callable{host.Tool("put", "Write.", func(ctx context.Context, v in) (string, error) {
		err := host.Files(ctx).WriteFile(v.Path, []byte(v.Text), 0o644)
		mu.Lock()
		if arrived++; arrived%20 == 0 {
			close(all)
			all = make(chan struct{})
			mu.Unlock()
			return "", err
		}
		wait := all
		mu.Unlock()
		<-wait
		return "", err
	}).As(abi.Transactional)}
	_, got := s.do(s.open(), a)
	if len(got) != 40 {
		t.Fatalf("%d answers", len(got))
	}
	won := 0
	for i, c := range codes(got) {
		switch {
		case i < 20 && c != "ok":
			t.Errorf("call %d on a file of its own: %s", i, c)
		case i >= 20 && c == "ok":
			won++
		case i >= 20 && c != "WORKSPACE_CONFLICT":
			t.Errorf("call %d on the same file: %s", i, c)
		}
	}
	if won != 1 {
		t.Errorf("%d calls wrote the same file, want 1", won)
	}
}

// TestThreeRollbacks: a tool whose changes are taken back three times in a row
// ends the process, and a restart in between forgives nothing.
func TestThreeRollbacks(t *testing.T) {
	s := newSpace(t, `
replies:
  - calls: [{tool: bad, args: {n: 1}}]
  - calls: [{tool: bad, args: {n: 2}}]
  - calls: [{tool: gate, args: {}}]
  - calls: [{tool: bad, args: {n: 3}}]
  - text: done
`)
	at := make(chan struct{}, 2)
	a := s.agent("invariants: [{paths: '*.json', check: json}]\ntools:\n" + sh("bad", "transactional", "echo '{' > config.json", ""))
	var open sync.WaitGroup
	open.Add(1)
	gate := host.Tool("gate", "Wait.", func(ctx context.Context, _ struct{}) (string, error) {
		at <- struct{}{}
		done := make(chan struct{})
		go func() { open.Wait(); close(done) }()
		select {
		case <-done:
			return "", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}).As(abi.Idempotent)
	a.Name, a.Tools = "keeper", []host.Callable{gate}
	k := s.open()
	pid, err := k.Spawn(t.Context(), a, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-at
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	open.Done()
	k, err = host.Open(host.Config{Dir: s.dir, Getenv: func(string) string { return "" },
		Tools: host.ToolsOf(host.Agent{Name: "keeper", Tools: []host.Callable{gate}})})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	r, err := k.Wait(t.Context(), pid)
	if err != nil || r.Exit != abi.ExitLoop || r.Err == nil || !strings.Contains(r.Err.Message, "rolled back 3 times") {
		t.Errorf("%+v %v", r, err)
	}
}

// TestCodeInWorkspace: code works on the workspace, with the file tools on the
// same view, and is taken back whole when it ends with an exception.
func TestCodeInWorkspace(t *testing.T) {
	for _, box := range []string{"wasm", "jail"} {
		for _, view := range []string{"auto", "copy"} {
			t.Run(box+" "+view, func(t *testing.T) {
				s := newSpace(t, `
replies:
  - calls:
      - tool: code
        args:
          source: |
            from tools.fs import read, write, edit
            with open("made.txt", "w") as f:
                f.write("by code\n")
            print(read(path="made.txt", from_=1))
            write(path="d/tool.txt", content="by a tool")
            print(open("d/tool.txt").read())
            edit(path="kept.txt", old="as it was", new="as it is")
            import os, shutil
            assert sorted(os.listdir("/workspace")) == ["config.json", "d", "kept.txt", "made.txt"], os.listdir("/workspace")
            with open("log.txt", "a") as f: f.write("one\n")
            with open("log.txt", "a") as f: f.write("two\n")
            with open("log.txt", "r+") as f:
                f.seek(4); f.write("2wo"); f.truncate()
            os.rename("log.txt", "d/log.txt")
            shutil.copyfile("d/log.txt", "d/copy.txt")
            os.mkdir("gone"); os.rmdir("gone")
            try:
                os.rmdir("d")
                raise SystemExit("a directory that is not empty was removed")
            except OSError as e:
                print(e)
            try:
                open("../out.txt", "w")
                raise SystemExit("a file outside was opened")
            except OSError as e:
                print(e)
            os.remove("config.json")
            assert os.stat("made.txt").st_size == 8 and not os.path.samefile("made.txt", "kept.txt")
  - calls:
      - tool: code
        args:
          source: |
            from tools.fs import write
            write(path="d/tool.txt", content="never")
            open("kept.txt", "w").write("half")
            raise ValueError("no")
  - text: done
`)
				a := s.agent("")
				a.Calls, a.Sandbox, a.Space.View = []string{"code"}, box, view
				k := s.open()
				_, got := s.do(k, a)
				if c := codes(got); !slices.Equal(c, []string{"ok", "CODE_FAILED"}) {
					if c[0] == "CODE_REFUSED" && box == "jail" {
						t.Skip("no jail on this host:", got[0].Answer.Err)
					}
					t.Fatalf("%v %+v", c, *got[0].Answer.Err)
				}
				for name, want := range map[string]string{"d/copy.txt": "one\n2wo", "made.txt": "by code\n", "d/tool.txt": "by a tool", "kept.txt": "as it is\n"} {
					if b, err := os.ReadFile(filepath.Join(s.files, name)); err != nil || string(b) != want {
						t.Errorf("%s: %q %v, want %q", name, b, err, want)
					}
				}
				if got[0].Answer.Commit.IsZero() || !got[1].Answer.Commit.IsZero() || got[0].Answer.Digest != got[1].Answer.Digest {
					t.Errorf("commits %s and %s", got[0].Answer.Commit, got[1].Answer.Commit)
				}
			})
		}
	}
}

// TestChildWorks: a child works in the workspace of its parent, and its calls
// are its own in the history.
func TestChildWorks(t *testing.T) {
	s := newSpace(t, `
replies:
  - calls: [{tool: spawn, args: {task: write, model: "script:child.yaml"}}]
  - calls: [{tool: wait, args: {}}]
  - text: done
`)
	a := s.agent("")
	a.Calls = []string{"spawn", "wait"}
	child := "replies:\n  - calls: [{tool: fs.write, args: {path: child.txt, content: from below}}]\n  - text: written\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.script), "child.yaml"), []byte(child), 0o600); err != nil {
		t.Fatal(err)
	}
	k := s.open()
	r, _ := s.do(k, a)
	if b, err := os.ReadFile(filepath.Join(s.files, "child.txt")); err != nil || string(b) != "from below" {
		t.Fatalf("%q %v %+v", b, err, r)
	}
	w, err := k.Space(s.files)
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range w.History() {
		if err != nil {
			t.Fatal(err)
		}
		if c.PID != 2 || c.Tool != "fs.write" || c.Call == 0 {
			t.Errorf("the last commit is %+v", c.Note)
		}
		break
	}
}

// TestElsewhere: a workspace on another file system than the data is staged
// beside itself.
func TestElsewhere(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "kern-test-")
	if err != nil {
		t.Skip("no other file system:", err)
	}
	defer os.RemoveAll(dir)
	s := newSpace(t, "replies:\n  - calls: [{tool: fs.write, args: {path: a.txt, content: there}}]\n  - text: done\n")
	s.files = filepath.Join(dir, "files")
	if err := os.Mkdir(s.files, 0o755); err != nil {
		t.Fatal(err)
	}
	_, got := s.do(s.open(), s.agent(""))
	if b, err := os.ReadFile(filepath.Join(s.files, "a.txt")); err != nil || string(b) != "there" {
		t.Errorf("%q %v %v", b, err, codes(got))
	}
	if list, err := os.ReadDir(s.files); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

// TestRefusedSpaces: what cannot be kept is refused before anything runs.
func TestRefusedSpaces(t *testing.T) {
	s := newSpace(t, "replies: [{text: done}]")
	k := s.open()
	within := filepath.Join(s.dir, "x")
	if err := os.MkdirAll(within, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*host.Agent)
		want   string
	}{
		"no such directory": {func(a *host.Agent) { a.Workspace = filepath.Join(s.files, "none") }, "no such file"},
		"a file":            {func(a *host.Agent) { a.Workspace = filepath.Join(s.files, "kept.txt") }, "is no directory"},
		"around the data":   {func(a *host.Agent) { a.Workspace = s.dir }, "neither lies in the workspace"},
		"no such view":      {func(a *host.Agent) { a.Space.View = "layer" }, "expected one of auto, overlay, copy"},
		"no such check":     {func(a *host.Agent) { a.Space.Invariants = []abi.Invariant{{Paths: "*", Check: "xml"}} }, "expected one of json"},
		"nothing to hold in": {func(a *host.Agent) {
			a.Workspace = ""
			a.Space.Invariants = []abi.Invariant{{Paths: "*", Check: "json"}}
		}, "no workspace for them"},
		"a negative quota": {func(a *host.Agent) { a.Space.Quota.Bytes = -1 }, "expected 0 or more"},
	} {
		a := s.agent("")
		c.change(&a)
		if _, err := k.Spawn(t.Context(), a, "go"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if list := k.List(); len(list) != 0 {
		t.Errorf("%d processes were made", len(list))
	}
}

// TestQuota: a call that would stage too much is told so, and leaves nothing.
func TestQuota(t *testing.T) {
	for _, view := range views(t) {
		t.Run(view, func(t *testing.T) {
			s := newSpace(t, "replies:\n  - calls: [{tool: floods, args: {}}]\n  - calls: [{tool: fs.write, args: {path: b.txt, content: '0123456789abcdef'}}]\n  - text: done\n")
			a := s.agent("tools:\n" + sh("floods", "irreversible", "head -c 100000 /dev/zero > big", ""))
			a.Space.View, a.Space.Quota.Bytes = view, 10
			before := s.tree()
			_, got := s.do(s.open(), a)
			for _, r := range got {
				if e := r.Answer.Err; e == nil || e.Code != abi.WorkspaceQuota && e.Code != abi.ToolFailed {
					t.Errorf("%+v", e)
				}
			}
			if now := s.tree(); now != before || len(got) != 2 {
				t.Errorf("%d answers; the workspace was\n%sand is\n%s", len(got), before, now)
			}
		})
	}
}

// BenchmarkCall is a step of an agent: a script that answers at once asks for
// one tool. Without a workspace it is a Go function; with one it is fs.write,
// published and journalled, on a workspace of so many files.
func BenchmarkCall(b *testing.B) {
	for _, files := range []int{-1, 2, 1000} {
		name := fmt.Sprintf("write/%d files", files)
		script := "repeat: true\nreplies:\n"
		for i := range 300 { // another text each time, as agents write
			script += fmt.Sprintf("  - calls: [{tool: fs.write, args: {path: a.txt, content: text %d}}]\n", i)
		}
		if files < 0 {
			name, script = "no workspace", "repeat: true\nreplies:\n  - calls: [{tool: count, args: {n: 1}}]\n"
		}
		b.Run(name, func(b *testing.B) {
			s := newSpace(b, script)
			for i := range files - 2 {
				s.put(fmt.Sprintf("f%d", i), "x")
			}
			k := s.open()
			a := host.Agent{Model: "script:" + s.script, Limits: host.Limits{abi.Steps: int64(b.N)}, Watchdog: abi.Watchdog{Profile: "off"}}
			if a.Workspace = s.files; files < 0 {
				a.Workspace = ""
				a.Tools = []host.Callable{host.Tool("count", "Count.", func(context.Context, number) (string, error) { return "", nil })}
			}
			b.ResetTimer()
			if r, err := k.Run(b.Context(), a, "go"); err != nil || r.Usage.ToolCalls != int64(b.N) {
				b.Fatalf("%+v %v", r, err)
			}
		})
	}
}
