//go:build unix

package workspace

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// The promise under test: whatever dies when, the tree is as before or as
// after, to the byte, mode, time and link, and it is "after" exactly when the
// caller's journal says so.
//
// Mutants that these tests kill (each was made, seen to fail, and unmade):
//   - undo leaves modes and times alone
//   - the swap's old content is not looked for in slot.old (link mode)
//   - recovery sweeps the slots of the commit in doubt
//   - slots, or the pack, are not synced before the intent (power)
//   - the log is not synced (power)
//   - directories are not synced before Publish returns (power)
//   - directories are not synced before "undone" (power)
//
// One that lives: undoing forward instead of backward. No two operations of a
// commit depend on each other's order, so it is not wrong; backward is habit.

const childEnv = "KERN_WORKSPACE_CHILD"

// A job is what a child process does before it dies.
type job struct {
	Dir, Store, Journal string
	Do                  string // commit, publish, rollback, recover
	View                View
	Link                bool // as on a file system without exchange
	KillAt              int  // die at this step; -1: live
	Trace               string
	Boots               bool // each on another boot of the machine
	Uid                 int  // run as this user; 0: as the test
}

// child runs in a process of its own and kills itself at a step.
func child() {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &j); err != nil {
		panic(err)
	}
	if j.Boots {
		boot, fsys.Parallel = rand.Text, 1
	}
	if j.Uid != 0 {
		if err := syscall.Setuid(j.Uid); err != nil {
			panic(err)
		}
	}
	n := 0
	step := func(p string) {
		if n == j.KillAt {
			if j.Trace != "" {
				os.WriteFile(j.Trace, []byte(p), 0o600)
			}
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		n++
	}
	if err := j.run(step); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if j.Trace != "" {
		os.WriteFile(j.Trace, []byte("lived"), 0o600)
	}
}

func (j *job) run(step func(string)) error {
	ctx := context.Background()
	w, err := open(j.Dir, Config{Store: j.Store})
	if err != nil {
		return err
	}
	w.committer.publisher.Step, w.committer.publisher.Link = step, j.Link
	if err := w.start(ctx); err != nil {
		return err
	}
	if j.Do == "recover" {
		return errors.Join(j.recover(w), w.Close())
	}
	tx, err := w.Begin(ctx, Options{View: j.View})
	if err != nil {
		return err
	}
	if j.Do == "modes" {
		return errors.Join(j.modes(w), tx.Rollback(), w.Close())
	}
	if err := rework(filesOf(tx)); err != nil {
		return err
	}
	switch j.Do {
	case "commit":
		_, err = tx.Commit(ctx, Note{ID: "1.1"})
	case "publish":
		if _, err = tx.Publish(ctx, Note{ID: "1.1", PID: 1, Call: 1, Tool: "t"}); err == nil {
			step("journal")
			err = fsys.Replace(j.Journal, []byte("committed"), 0o600, true)
			step("journalled")
			err = errors.Join(err, tx.Seal())
		}
	case "rollback":
		if _, err = tx.Publish(ctx, Note{ID: "1.1"}); err == nil {
			err = tx.Rollback()
		}
	}
	return errors.Join(err, w.Close())
}

// modes takes the owner's permissions away from files and directories. The
// workspace refuses that, because it could not read them any more.
func (j *job) modes(w *Workspace) error {
	for name, mode := range map[string]fs.FileMode{"mode": 0, "edit": 0o200, "empty": 0o300, "dir": 0o600, "made": 0} {
		tx, err := w.Begin(context.Background(), Options{View: j.View})
		if err != nil {
			return err
		}
		if name == "made" || name == "edit" {
			err = filesOf(tx).WriteFile(name, []byte("made"), 0o600)
		}
		if err = errors.Join(err, filesOf(tx).Chmod(name, mode)); err == nil {
			_, err = tx.Commit(context.Background(), Note{})
		}
		if !isCode(err, Refused) || !strings.Contains(err.Error(), name) {
			return fmt.Errorf("%s with mode %v: expected %s, found %v", name, mode, Refused, err)
		}
	}
	return nil
}

// recover does what a kernel does when it starts: its journal decides.
func (j *job) recover(w *Workspace) error {
	if _, ok := w.Pending(); !ok {
		return nil
	}
	v := Undo
	if _, err := os.Stat(j.Journal); err == nil {
		v = Finish
	}
	rescued, err := w.Resolve(context.Background(), "1.1", v)
	if err == nil && len(rescued) > 0 {
		err = fmt.Errorf("rescued %v", rescued)
	}
	return err
}

var when = time.Unix(1_700_000_000, 123456789)

// furnish puts one of everything into a new workspace.
func furnish(t testing.TB, dir string) {
	d := native(dir)
	for i, name := range []string{"keep", "edit", "gone", "tofile", "mode", "old name", "dir/a", "dir/b", "away/x/deep", "away/y", "file2dir", "twin1", "sparse"} {
		must(t, os.MkdirAll(filepath.Dir(d.at(name)), 0o755))
		must(t, d.WriteFile(name, []byte(strings.Repeat(name+"\n", i+1)), 0o640))
	}
	must(t, d.Link("twin1", "dir/twin2"))
	must(t, d.Symlink("keep", "link"))
	must(t, d.Symlink("/nowhere", "dir/far"))
	must(t, os.MkdirAll(d.at("dir2file/in"), 0o755))
	must(t, d.WriteFile("dir2file/in/f", []byte("f"), 0o600))
	must(t, os.Mkdir(d.at("empty"), 0o700))
	must(t, os.Truncate(d.at("sparse"), 1<<20))
	settle(t, dir, when)
}

func settle(t testing.TB, dir string, at time.Time) {
	n := 0
	must(t, filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.Type()&os.ModeSymlink == 0 {
			n++
			tm := at.Add(time.Duration(n) * time.Second)
			err = os.Chtimes(p, tm, tm)
		}
		return err
	}))
}

// rework changes one of everything; times are set so that every run ends alike.
func rework(f files) error {
	at := when.Add(1000 * time.Hour)
	var errs []error
	do := func(err error) { errs = append(errs, err) }
	do(f.WriteFile("edit", []byte("edited"), 0o640))
	do(f.Remove("gone"))
	do(f.Chmod("mode", 0o755))
	do(f.Rename("old name", "dir/new name"))
	do(f.WriteFile("twin1", []byte("both"), 0o640))
	do(f.RemoveAll("away"))
	do(f.RemoveAll("dir2file"))
	do(f.WriteFile("dir2file", []byte("now a file"), 0o600))
	do(f.Remove("file2dir"))
	do(f.Mkdir("file2dir", 0o750))
	do(f.WriteFile("file2dir/z", []byte("z"), 0o444))
	do(f.Mkdir("new", 0o755))
	do(f.Mkdir("new/sub", 0o500))
	do(f.Mkdir("new/empty", 0o711))
	do(f.Mkdir("readonly", 0o500))
	do(f.WriteFile("new/one", []byte("one"), 0o600))
	do(f.Link("new/one", "new/two"))
	do(f.Symlink("../keep", "new/up"))
	do(f.Remove("link"))
	do(f.Symlink("edit", "link"))
	do(f.Chmod("empty", 0o755))
	for i, name := range []string{"edit", "mode", "twin1", "dir2file", "file2dir/z", "new/one", "file2dir", "new/sub", "new/empty", "new", "readonly", "dir", "."} {
		do(f.Chtimes(name, at.Add(time.Duration(i)*time.Minute)))
	}
	return errors.Join(errs...)
}

// spawn runs a job in a process of its own.
func spawn(t testing.TB, j job) (died bool) {
	t.Helper()
	b, _ := json.Marshal(j)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var ee *exec.ExitError
	if errors.As(err, &ee) && ee.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("%+v: %v\n%s", j, err, out.String())
	}
	return false
}

// symlinkTimes takes the times of symlinks out of a dump: they cannot be set
// through a view, so they differ from run to run.
func symlinkTimes(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.Contains(l, " -> ") {
			f := strings.Fields(l)
			for k, x := range f {
				if len(x) > 15 && strings.Trim(x, "0123456789") == "" {
					f[k] = "T"
				}
			}
			lines[i] = strings.Join(f, " ")
		}
	}
	return strings.Join(lines, "\n")
}

// after is what a job leaves when nothing dies.
func after(t *testing.T, j job) (before, done string) {
	dir, store := pair(t)
	furnish(t, dir)
	before = dump(t, dir)
	j.Dir, j.Store, j.Journal, j.KillAt = dir, store, store+".journal", -1
	if spawn(t, j) {
		t.Fatal("died")
	}
	return before, dump(t, dir)
}

func TestCrashEverywhere(t *testing.T) {
	type run struct {
		do   string
		view View
		link bool
	}
	runs := []run{{"publish", Layered, false}, {"publish", Layered, true}, {"commit", Layered, false}, {"rollback", Layered, true}}
	if soak {
		runs = nil
		for _, do := range []string{"publish", "commit", "rollback"} {
			for _, v := range views() {
				runs = append(runs, run{do, v, false}, run{do, v, true})
			}
		}
	}
	for _, r := range runs {
		t.Run(fmt.Sprintf("%s/%s/link=%t", r.do, r.view, r.link), func(t *testing.T) {
			t.Parallel()
			crashAll(t, job{Do: r.do, View: r.view, Link: r.link})
		})
	}
}

// crashAll kills a job at every step, then the recovery at every step of it
// (in short runs at a moving one), then recovers, twice.
func crashAll(t *testing.T, j job) {
	before, done := after(t, j)
	if (before == done) != (j.Do == "rollback") {
		t.Fatalf("without a crash:\n%s", unlike(before, done))
	}
	for k := 0; ; k++ {
		lived := crashAt(t, j, k, -1, before, done)
		if lived {
			if k < 20 {
				t.Fatalf("only %d steps", k)
			}
			t.Logf("%d steps", k)
			return
		}
		if racing && !soak {
			k += 2
		}
		for r := range 60 {
			if !soak {
				r = (k*7 + r*11) % 40
			}
			if crashAt(t, j, k, r, before, done) || !soak && r > 0 {
				break
			}
		}
	}
}

// memory is a directory on a file system where a sync costs nothing: what is
// on disk at which moment is TestPowerLoss's to prove.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kern")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { // also when the test failed half way
		fsys.Unmount(dir)
		os.RemoveAll(dir)
	})
	return dir
}

// crashAt kills the job at step k and recovery at step r, if that is not
// negative, and tells whether the job (or else recovery) lived.
func crashAt(t *testing.T, j job, k, r int, before, done string) (lived bool) {
	t.Helper()
	top := memory(t)
	defer os.RemoveAll(top)
	j.Dir, j.Store, j.Journal, j.KillAt, j.Trace = filepath.Join(top, "work"), filepath.Join(top, "store"), filepath.Join(top, "journal"), k, filepath.Join(top, "trace")
	must(t, os.Mkdir(j.Dir, 0o755))
	furnish(t, j.Dir)
	lived = !spawn(t, j)
	at, _ := os.ReadFile(j.Trace)
	where := fmt.Sprintf("killed at step %d (%s)", k, at)
	rec := j
	rec.Do = "recover"
	if r >= 0 {
		rec.KillAt = r
		lived = !spawn(t, rec)
		at, _ = os.ReadFile(j.Trace)
		where += fmt.Sprintf(", recovery at %d (%s)", r, at)
	}
	rec.KillAt = -1
	for range 2 { // the second finds nothing to do
		spawn(t, rec)
		want := before
		if _, err := os.Stat(j.Journal); err == nil {
			want = done
		}
		got := dump(t, j.Dir)
		if j.Do == "commit" { // the workspace alone decides
			want = before
			if committed(t, j) {
				want = done
			}
		}
		if got, want := symlinkTimes(got), symlinkTimes(want); got != want {
			t.Fatalf("%s: neither before nor after:\n%s", where, unlike(want, got))
		}
	}
	checkStore(t, j, where)
	return lived
}

// checkStore looks at what must hold of the store after any recovery.
func checkStore(t *testing.T, j job, where string) {
	t.Helper()
	w, err := Open(context.Background(), j.Dir, Config{Store: j.Store})
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	defer w.Close()
	if _, ok := w.Pending(); ok {
		t.Fatalf("%s: still in doubt", where)
	}
	state, _, err := w.Outcome("1.1")
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if _, jerr := os.Stat(j.Journal); j.Do == "publish" && (jerr == nil) != (state == Committed) {
		t.Fatalf("%s: journal %v, workspace %s", where, jerr, state)
	}
	if !soak && j.KillAt%5 != 0 {
	} else if out, err := exec.Command("git", "--git-dir", w.GitDir(), "fsck", "--strict").CombinedOutput(); err != nil {
		t.Fatalf("%s: git fsck: %s", where, out)
	}
	w.scratch.background.Wait()
	ents, err := os.ReadDir(filepath.Join(j.Store, "scratch"))
	if err != nil || len(ents) > 0 {
		t.Fatalf("%s: left in scratch: %v %v", where, ents, err)
	}
}

func committed(t *testing.T, j job) bool {
	w, err := Open(context.Background(), j.Dir, Config{Store: j.Store})
	must(t, err)
	defer w.Close()
	state, _, err := w.Outcome("1.1")
	must(t, err)
	return state == Committed
}

// killedAt runs a job that dies at the first step of this name.
func killedAt(t *testing.T, j job, point string) job {
	t.Helper()
	for k := range 100 {
		top := memory(t)
		j.Dir, j.Store, j.Journal, j.KillAt, j.Trace = filepath.Join(top, "work"), filepath.Join(top, "store"), filepath.Join(top, "journal"), k, filepath.Join(top, "trace")
		must(t, os.Mkdir(j.Dir, 0o755))
		furnish(t, j.Dir)
		if !spawn(t, j) {
			break
		}
		if at, _ := os.ReadFile(j.Trace); string(at) == point {
			return j
		}
		os.RemoveAll(top)
	}
	t.Fatalf("no step %q", point)
	return j
}

// The intent may reach the disk before the slots it speaks of: nothing was
// done then, and recovery finds that out whatever is left of them. When
// something was done, it does not pretend.
func TestSlotsNeverArrived(t *testing.T) {
	lose := map[string]func(t *testing.T, slots string){
		"all":     func(t *testing.T, slots string) { must(t, os.RemoveAll(filepath.Dir(slots))) },
		"slots":   func(t *testing.T, slots string) { must(t, os.RemoveAll(slots)) },
		"content": eachSlot(func(name string) error { return os.Truncate(name, 0) }),
		"names": func(t *testing.T, slots string) {
			must(t, os.RemoveAll(slots))
			must(t, os.Mkdir(slots, 0o700))
		},
	}
	for what, f := range lose {
		for _, link := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/link=%t", what, link), func(t *testing.T) {
				j := killedAt(t, job{Do: "publish", View: Layered, Link: link}, "log first")
				before := dump(t, j.Dir)
				f(t, slotsOf(t, j))
				w := opened(t, j.Dir, j.Store)
				rescued, err := w.Resolve(context.Background(), "1.1", Undo)
				if err != nil || len(rescued) > 0 {
					t.Fatalf("rescued %v, %v", rescued, err)
				}
				if got := dump(t, j.Dir); got != before {
					t.Errorf("something was changed:\n%s", unlike(before, got))
				}
				commit(t, begin(t, w, Options{}))
			})
		}
	}
	j := killedAt(t, job{Do: "publish", View: Layered}, "ops")
	must(t, os.RemoveAll(filepath.Dir(slotsOf(t, j))))
	w := opened(t, j.Dir, j.Store)
	if _, err := w.Resolve(context.Background(), "1.1", Undo); !isCode(err, Damaged) {
		t.Errorf("expected %s, found %v", Damaged, err)
	}
}

// A person may remove or replace a file of which a commit in doubt changed the
// mode. That never keeps recovery from deciding the commit.
func TestRecoveryWithoutFile(t *testing.T) {
	person := map[string]func(name string) error{
		"removed":   os.Remove,
		"link":      func(name string) error { return errors.Join(os.Remove(name), os.Symlink("keep", name)) },
		"fifo":      func(name string) error { return errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600)) },
		"directory": func(name string) error { return errors.Join(os.Remove(name), os.Mkdir(name, 0o700)) },
	}
	for what, f := range person {
		for do, verdicts := range map[string][]Verdict{"publish": {Undo, Finish}, "commit": {Undo}} {
			for _, v := range verdicts {
				t.Run(fmt.Sprintf("%s/%s/%d", what, do, v), func(t *testing.T) {
					j := killedAt(t, job{Do: do, View: Layered}, "ops")
					must(t, f(filepath.Join(j.Dir, "mode")))
					w := opened(t, j.Dir, j.Store)
					if do == "publish" {
						rescued, err := w.Resolve(context.Background(), "1.1", v)
						if err != nil || len(rescued) > 0 {
							t.Fatalf("rescued %v, %v", rescued, err)
						}
					}
					if _, ok := w.Pending(); ok {
						t.Fatal("still in doubt")
					}
					commit(t, begin(t, w, Options{}))
				})
			}
		}
	}
}

// A user who is not root has no permission that the modes do not grant.
func TestNotRoot(t *testing.T) {
	user := job{}
	if os.Geteuid() == 0 {
		user.Uid = 65534
	}
	give := func(t *testing.T, j job) {
		must(t, filepath.WalkDir(filepath.Dir(j.Dir), func(p string, d fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(p, max(user.Uid, os.Getuid()), -1))
		}))
	}
	for _, v := range []View{Layered, Copied} {
		j := user
		j.Dir, j.Store = pair(t)
		furnish(t, j.Dir)
		give(t, j)
		j.Do, j.View, j.KillAt = "modes", v, -1
		spawn(t, j)
	}
	// The new read-only directory is in place when recovery must move it back.
	j := killedAt(t, job{Do: "publish", View: Layered}, "ops")
	before := dump(t, j.Dir)
	give(t, j)
	j.Uid, j.Do, j.KillAt = user.Uid, "recover", -1
	spawn(t, j)
	if dump(t, j.Dir) == before {
		t.Error("recovery undid nothing")
	}
}

func slotsOf(t *testing.T, j job) string {
	found := get(filepath.Glob(filepath.Join(j.Store, "scratch", "tx-*", "slots")))(t)
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	return found[0]
}

func eachSlot(f func(name string) error) func(t *testing.T, slots string) {
	return func(t *testing.T, slots string) {
		n := 0
		for _, e := range get(os.ReadDir(slots))(t) {
			if fi := get(e.Info())(t); fi.Mode().IsRegular() && fi.Sys().(*syscall.Stat_t).Nlink == 1 { // not one of the workspace's own
				n++
				must(t, f(filepath.Join(slots, e.Name())))
			}
		}
		if n == 0 {
			t.Fatal("no slots")
		}
	}
}
