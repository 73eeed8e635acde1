//go:build linux

package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/workspace"
)

// Mutants that die in TestCrashAtEveryStep:
//
//	the commit is sealed before the journal has it          (settle: Kept before Wait)
//	what is in doubt is always finished                     (stood: true)
//	what is in doubt is always taken back                   (stood: false)
//	a workspace that was open is not looked at at start     (recover left out; TestDoubtOfTheDead)
//	any OK answer of the call decides, whatever its commit  (stood without the hash): lives, because a call
//	                                                        whose answer is OK has no other attempt

// crashEnv holds the job of a process that is to die.
const crashEnv = "KERN_TEST_CRASH"

type crashJob struct {
	Dir, Files, Script string
	Effect             abi.Effect
	KillAt             int    // die at this step; -1: live
	KillOn             string // or at the first of this name
	Ran                string
	Trace              string // where to say how far it came
	Dies               string // the ticket whose cancellation dies; empty: the job is on a workspace
}

// crashChild runs the process of a job until it exits, or dies at a step of its
// workspace.
func crashChild(text string) {
	var j crashJob
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	n := 0
	host.OnSpace(func(w *workspace.Workspace) {
		setStep(w, func(point string) {
			if n == j.KillAt || point == j.KillOn {
				os.WriteFile(j.Trace, []byte(point), 0o600)
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			n++
		})
	})
	err := j.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.WriteFile(j.Trace, []byte("lived"), 0o600)
	os.Exit(0)
}

// setStep sets the fail-point of a workspace, which has no exported name.
func setStep(w *workspace.Workspace, step func(string)) {
	f := reflect.ValueOf(w).Elem().FieldByName("committer").FieldByName("publisher").FieldByName("Step")
	*(*func(string))(unsafe.Pointer(f.UnsafeAddr())) = step
}

func (j *crashJob) agent() host.Agent {
	if j.Files == "" {
		return host.Agent{Name: "worker", Model: "script:" + j.Script, Parallel: 1, Tools: travel(j.Ran, j.Effect, j.Dies)}
	}
	rework := host.Tool("rework", "Change a few files.", func(ctx context.Context, _ struct{}) (string, error) {
		f, err := os.OpenFile(j.Ran, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString("x")
		l := host.Files(ctx)
		when := time.Unix(1_800_000_000, 5)
		return "fine", errors.Join(err, f.Close(), l.WriteFile("kept.txt", []byte("changed"), 0o600), l.Remove("config.json"),
			l.Mkdir("d", 0o700), l.WriteFile("d/new", []byte("new"), 0o640), l.Symlink("new", "d/link"),
			l.Chtimes("kept.txt", when), l.Chtimes("d/new", when), l.Chtimes("d", when))
	}).As(j.Effect)
	return host.Agent{Name: "worker", Model: "script:" + j.Script, Workspace: j.Files, Tools: []host.Callable{rework}}
}

func (j *crashJob) run() error {
	a := j.agent()
	k, err := host.Open(host.Config{Dir: j.Dir, Getenv: func(string) string { return "" }, Tools: host.ToolsOf(a)})
	if err != nil {
		return err
	}
	pid := abi.Pid(1)
	if len(k.List()) == 0 {
		if pid, err = k.Spawn(context.Background(), a, "go"); err != nil {
			return err
		}
	}
	if _, err = k.Wait(context.Background(), pid); err != nil {
		return err
	}
	return k.Close()
}

// die runs the job in a process of its own and says at which point it died, or
// that it lived.
func (j *crashJob) die(t *testing.T, at int) string {
	t.Helper()
	j.KillAt, j.Trace = at, filepath.Join(t.TempDir(), "trace")
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), crashEnv+"="+string(b))
	out, err := c.CombinedOutput()
	point, rerr := os.ReadFile(j.Trace)
	if rerr != nil && j.Dies == "" || err != nil && string(point) == "lived" {
		t.Fatalf("%v, %v: %s", err, rerr, out)
	}
	return string(point)
}

// TestCrashAtEveryStep kills the kernel with -9 at every step of a commit, and
// its recovery at a step of that (in the long form at every one), and lets it
// go on. The files are as they were or as they should be, never between, and
// the journal and the workspace say the same.
func TestCrashAtEveryStep(t *testing.T) {
	for _, effect := range []abi.Effect{abi.Transactional, abi.Irreversible} {
		t.Run(string(effect), func(t *testing.T) {
			points := map[string]bool{}
			for at := 0; ; at++ {
				again := []int{at % 7}
				if soak {
					again = nil
					for m := range 30 {
						again = append(again, m)
					}
				}
				died := ""
				for _, m := range again {
					recovered := false
					if died, recovered = crashOnce(t, effect, at, m); died == "lived" || recovered {
						break
					}
				}
				points[died] = true
				if died == "lived" {
					break
				}
			}
			for _, p := range []string{"intent", "op", "dirs", "sealing", "sealed"} {
				if !points[p] {
					t.Errorf("never died at %s: %v", p, points)
				}
			}
		})
	}
}

var soak = os.Getenv("KERN_SOAK") != ""

// crashOnce kills at one step, then in recovery at another, and looks at what
// came of it. It says where it died, and whether the recovery lived.
func crashOnce(t *testing.T, effect abi.Effect, at, again int) (died string, recovered bool) {
	t.Helper()
	s := newSpace(t, "replies:\n  - calls: [{tool: rework, args: {}}]\n  - text: done\n")
	j := &crashJob{Dir: s.dir, Files: s.files, Script: s.script, Effect: effect, Ran: filepath.Join(t.TempDir(), "ran")}
	before := s.tree()
	if died = j.die(t, at); died == "lived" {
		return died, true
	}
	second := j.die(t, again)
	where := fmt.Sprintf("killed at step %d (%s), then at %d (%s)", at, died, again, second)
	if p := j.die(t, -1); p != "lived" {
		t.Fatalf("%s: %s", where, p)
	}
	now := s.tree()

	k := s.open()
	defer k.Close()
	i, err := k.Info(1)
	if err != nil || i.Exit == nil || i.Exit.Exit != abi.ExitDone {
		t.Fatalf("%s: %+v %v", where, i.Exit, err)
	}
	got := answers(t, k, 1)
	if len(got) != 1 {
		t.Fatalf("%s: %d answers", where, len(got))
	}
	a := got[0].Answer
	var commits []*workspace.Commit
	w, err := k.Space(s.files)
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range w.History() {
		if err != nil {
			t.Fatal(err)
		}
		if c.PID == 1 {
			commits = append(commits, c)
		}
	}
	ran, _ := os.ReadFile(j.Ran)
	switch {
	case a.Outcome == abi.OK:
		if len(commits) != 1 || abi.Hash(commits[0].Hash) != a.Commit || strings.Contains(now, "config.json") || !strings.Contains(now, `d/new -rw-r----- 1800000000000000005 "new"`) {
			t.Errorf("%s: the journal says OK with commit %s, and the workspace has %d commits:\n%s", where, a.Commit, len(commits), now)
		}
	case effect == abi.Transactional:
		t.Errorf("%s: what was taken back was not done again: %+v", where, a)
	default:
		if a.Err.Code != abi.OutcomeUnknown || len(commits) != 0 || now != before {
			t.Errorf("%s: %+v, %d commits; it was\n%sand is\n%s", where, a.Err, len(commits), before, now)
		}
		if len(ran) > 1 {
			t.Errorf("%s: it ran %d times", where, len(ran))
		}
	}
	return died, second == "lived"
}

// TestDoubtOfTheDead: what a kernel left in doubt is decided when the next one
// opens, whether or not anybody needs the workspace again.
func TestDoubtOfTheDead(t *testing.T) {
	for point, stands := range map[string]bool{"dirs": false, "sealing": true} {
		t.Run(point, func(t *testing.T) {
			s := newSpace(t, "replies:\n  - calls: [{tool: rework, args: {}}]\n  - text: done\n")
			j := &crashJob{Dir: s.dir, Files: s.files, Script: s.script, Effect: abi.Irreversible, Ran: filepath.Join(t.TempDir(), "ran"), KillOn: point}
			before := s.tree()
			if died := j.die(t, -1); died != point {
				t.Fatal("it died at", died)
			}
			if s.tree() == before {
				t.Fatal("nothing was published when it died")
			}
			s.open()
			if now := s.tree(); (now == before) == stands {
				t.Errorf("the workspace was\n%sand is\n%s", before, now)
			}
		})
	}
}
