package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk is an ext4 file system in a file. What the file holds while the file
// system is in use is what a disk would hold if the power failed now: all that
// was synced, and only by chance anything else.
type disk struct {
	image, at string
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func (d disk) mount(t testing.TB) {
	t.Helper()
	must(t, os.MkdirAll(d.at, 0o755))
	run(t, "mount", "-o", "loop,commit=300", d.image, d.at)
}

// unmount writes everything first: a process that is just being put into a
// mount namespace of its own keeps the file system mounted for a while.
func (d disk) unmount(t testing.TB) {
	t.Helper()
	run(t, "sync", "-f", d.at)
	run(t, "umount", d.at)
}

// TestPowerLoss cuts the power at every step of a commit, and at steps of the
// recovery after it.
func TestPowerLoss(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	for _, link := range []bool{false, true} {
		for _, do := range []string{"publish", "commit", "rollback"} {
			if link && do != "publish" && !soak {
				continue
			}
			t.Run(fmt.Sprintf("%s/link=%t", do, link), func(t *testing.T) { powerAll(t, job{Do: do, View: Layered, Link: link, Boots: true}) })
		}
	}
}

func powerAll(t *testing.T, j job) {
	top := memory(t)
	fresh := filepath.Join(top, "fresh")
	must(t, os.WriteFile(fresh, nil, 0o600))
	must(t, os.Truncate(fresh, 24<<20))
	run(t, "mkfs.ext4", "-q", "-O", "^resize_inode", fresh)
	d := disk{fresh, filepath.Join(top, "mnt")}
	j.Dir, j.Store, j.Journal, j.Trace = filepath.Join(d.at, "work"), filepath.Join(d.at, "store"), filepath.Join(top, "journal"), filepath.Join(top, "trace")
	d.mount(t)
	must(t, os.Mkdir(j.Dir, 0o755))
	furnish(t, j.Dir)
	do := j.Do
	j.Do, j.KillAt = "recover", -1
	spawn(t, j) // the first commit: what was there
	before := dump(t, j.Dir)
	d.unmount(t)
	j.Do = do
	done := lastState(t, d, j, before)
	for k := 0; ; k++ {
		image := filepath.Join(top, "image")
		os.Remove(j.Journal) // on another disk, which syncs nothing of this one
		if !cut(t, fresh, image, d.at, j, k) {
			if k < 20 {
				t.Fatalf("only %d steps", k)
			}
			return
		}
		at, _ := os.ReadFile(j.Trace)
		where := fmt.Sprintf("power lost at step %d (%s)", k, at)
		rec := j
		rec.Do = "recover"
		again := filepath.Join(top, "again")
		for r := k % 3; r < 40; r += 3 {
			if !cut(t, image, again, d.at, rec, r) {
				break
			}
			at, _ := os.ReadFile(j.Trace)
			must(t, os.Rename(again, image))
			where += fmt.Sprintf(", in recovery at %d (%s)", r, at)
			if !soak {
				break
			}
		}
		checkDisk(t, disk{image, d.at}, rec, do, where, before, done)
		if j.Link && !soak {
			k += 2
		}
	}
}

// cut runs a job on a copy of the disk from, and leaves in to what the disk
// held when it died.
func cut(t *testing.T, from, to, at string, j job, k int) (died bool) {
	t.Helper()
	live := to + ".live"
	run(t, "cp", "--sparse=always", from, live)
	defer os.Remove(live)
	d := disk{live, at}
	d.mount(t)
	j.KillAt = k
	died = spawn(t, j)
	os.Remove(to) // never written over: it may still be mounted somewhere; see unmount
	run(t, "cp", "--sparse=always", live, to)
	for exec.Command("cmp", "-s", live, to).Run() != nil { // the system wrote something while it was copied
		run(t, "cp", "--sparse=always", live, to)
	}
	d.unmount(t)
	return died
}

func lastState(t *testing.T, d disk, j job, before string) string {
	if j.Do == "rollback" {
		return before
	}
	live := d.image + ".done"
	run(t, "cp", "--sparse=always", d.image, live)
	defer os.Remove(live)
	d.image = live
	d.mount(t)
	defer d.unmount(t)
	j.KillAt = -1
	spawn(t, j)
	return dump(t, j.Dir)
}

func checkDisk(t *testing.T, d disk, rec job, do, where, before, done string) {
	t.Helper()
	d.mount(t)
	defer d.unmount(t)
	rec.KillAt = -1
	for range 2 {
		spawn(t, rec)
		want := before
		if do == "commit" { // the workspace alone decides
			if committed(t, rec) {
				want = done
			}
		} else if _, err := os.Stat(rec.Journal); err == nil {
			want = done
		} else if !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
		if got, want := symlinkTimes(dump(t, rec.Dir)), symlinkTimes(want); got != want {
			t.Fatalf("%s: neither before nor after:\n%s", where, unlike(want, got))
		}
	}
	rec.Do = do
	checkStore(t, rec, where)
}
