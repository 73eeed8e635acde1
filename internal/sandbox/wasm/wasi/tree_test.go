package wasi

// Mutants these tests were seen to kill: a truncation that gives nothing back,
// a rename that forgets what it replaced, bytes charged twice on overwriting.

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// held adds up what is on the disk.
func held(t *testing.T, dir string) (bytes int64, files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		files++
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes, files
}

// Whatever is done to files, what the quota says was taken is what is there.
func TestQuotaIsWhatIsHeld(t *testing.T) {
	const room, most = 1 << 20, 30
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		tree := &Tree{Base: fstest.MapFS{}, Quota: Quota{Bytes: room, Files: most}}
		if err := tree.Open(dir, nil); err != nil {
			t.Fatal(err)
		}
		var open []*file
		name := func() string {
			return fmt.Sprintf("/workspace/%s%d", []string{"", "d0/", "d1/"}[rnd.IntN(3)], rnd.IntN(6))
		}
		for range 400 {
			switch rnd.IntN(9) {
			case 0, 1, 2:
				f, e := tree.open(name(), openFlags{create: true, write: true, read: true, truncate: rnd.IntN(2) == 0, append: rnd.IntN(3) == 0, follow: true})
				if e == ok {
					open = append(open, f)
				}
			case 3, 4:
				if len(open) > 0 {
					f := open[rnd.IntN(len(open))]
					f.writeAt(tree, make([]byte, rnd.IntN(60_000)), int64(rnd.IntN(90_000)))
				}
			case 5:
				if len(open) > 0 {
					open[rnd.IntN(len(open))].resize(tree, int64(rnd.IntN(200_000)))
				}
			case 6:
				tree.remove(name(), false)
				tree.remove(fmt.Sprintf("/workspace/d%d", rnd.IntN(2)), true)
			case 7:
				tree.rename(name(), name())
			case 8:
				tree.mkdir(fmt.Sprintf("/workspace/d%d", rnd.IntN(2)))
				if len(open) > 8 {
					for _, f := range open {
						f.close(tree)
					}
					open = nil
				}
			}
			bytes, files := held(t, dir)
			if bytes > room || files > most {
				t.Fatalf("seed %d: %d bytes in %d files are there, the quota is %d and %d", seed, bytes, files, room, most)
			}
			if len(open) == 0 && (room-tree.Quota.Bytes != bytes || most-tree.Quota.Files != files) {
				t.Fatalf("seed %d: taken %d bytes and %d files, there are %d and %d", seed, room-tree.Quota.Bytes, most-tree.Quota.Files, bytes, files)
			}
		}
		for _, f := range open {
			f.close(tree)
		}
		if bytes, files := held(t, dir); room-tree.Quota.Bytes != bytes || most-tree.Quota.Files != files {
			t.Fatalf("seed %d: at the end taken %d and %d, there are %d and %d", seed, room-tree.Quota.Bytes, most-tree.Quota.Files, bytes, files)
		}
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What was there before is not given back as room.
func TestQuotaGivesNoRoomForOldFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), make([]byte, 5000), 0o644); err != nil {
		t.Fatal(err)
	}
	tree := &Tree{Base: fstest.MapFS{}, Quota: Quota{Bytes: 100, Files: 1}}
	if err := tree.Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if e := tree.remove("/workspace/old", false); e != ok {
		t.Fatal(e)
	}
	if tree.Quota.Bytes != 100 || tree.Quota.Files != 1 {
		t.Errorf("left %d bytes and %d files after an old file was removed", tree.Quota.Bytes, tree.Quota.Files)
	}
}

func TestPrivatePlacesComeAndGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	tree := &Tree{Base: fstest.MapFS{}, Quota: Quota{Bytes: 100, Files: 5}}
	if err := tree.Open("", nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/workspace", "/tmp", "/", "/dev/null"} {
		if _, e := tree.stat(p, true); e != ok {
			t.Errorf("%s: %d", p, e)
		}
	}
	if l, _ := os.ReadDir(os.TempDir()); len(l) != 0 {
		t.Errorf("looking made %v", l)
	}
	for _, p := range []string{"/workspace/a", "/tmp/b"} {
		f, e := tree.open(p, openFlags{create: true, write: true})
		if e != ok {
			t.Fatal(p, e)
		}
		f.close(tree)
	}
	if l, _ := os.ReadDir(os.TempDir()); len(l) != 2 {
		t.Errorf("writing made %v", l)
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	if l, _ := os.ReadDir(os.TempDir()); len(l) != 0 {
		t.Errorf("left behind %v", l)
	}
}
