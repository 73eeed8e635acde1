package watch

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/program/frame"
	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// A Watch looks at what a run holds, in the box, with init's rights: a program
// can hide a file from its user but not from here.
type Watch struct {
	frame.Bounds
	Lent    bool          // the workspace is somebody's directory
	Largest int64         // file in it when the run began
	Peak    int64         // memory, where no cgroup counts it
	private unix.Statfs_t // the private file system, empty
	base    held          // of a lent workspace when the run began
	last    unix.Statfs_t // of its file system at the last walk
	now     held
	walked  time.Time
	cost    time.Duration
	full    bool // all that may be held was seen held
}

// Where a run writes, as it sees it.
const (
	workspace = "/workspace"
	private   = "/tmp"
)

// held is what a directory tree holds.
type held struct {
	bytes int64
	files int
}

// New begins to watch a run that may hold b more than there is. lent says that
// its workspace is a directory of the host; private is the private file system
// while it is empty.
func New(b frame.Bounds, lent bool, private unix.Statfs_t) (*Watch, error) {
	w := &Watch{Bounds: b, Lent: lent, private: private}
	if !lent {
		return w, nil
	}
	t := tally{}
	w.walk(&t)
	w.base, w.now, w.Largest = t.held, t.held, t.largest
	return w, t.err
}

// Look says which limit the run is past, if any.
func (w *Watch) Look() string {
	var fs unix.Statfs_t
	if unix.Statfs(private, &fs) == nil {
		w.full = w.full || fs.Bfree == 0 || fs.Ffree == 0
	}
	if w.Lent && w.due() {
		if w.recount(fs) {
			return string(sandbox.Files)
		}
	}
	if w.Memory > 0 || w.CPU > 0 {
		return w.count()
	}
	return ""
}

// Final is the last look; nothing runs any more.
func (w *Watch) Final() (over string, full bool) {
	over = w.Look()
	if over == "" && w.Lent && w.stirred(0) {
		var fs unix.Statfs_t
		if unix.Statfs(private, &fs) == nil && w.recount(fs) {
			over = string(sandbox.Files)
		}
	}
	return over, w.full
}

// due says whether to walk the workspace again: at once when its file system
// lost as much as the run has left, else now and then, for at most a twentieth
// of the time.
func (w *Watch) due() bool {
	since := time.Since(w.walked)
	if since < 4*w.cost {
		return false
	}
	return w.stirred(w.FileBytes-(w.now.bytes-w.base.bytes)) || since > max(100*time.Millisecond, 20*w.cost)
}

// stirred says whether the file system under the workspace lost more than room
// bytes, or files enough, since the last walk. It is cheap, and may say so for
// what others do.
func (w *Watch) stirred(room int64) bool {
	var fs unix.Statfs_t
	if unix.Statfs(workspace, &fs) != nil {
		return true
	}
	bytes := (int64(w.last.Bfree) - int64(fs.Bfree)) * fs.Bsize
	files := int64(w.last.Ffree) - int64(fs.Ffree)
	left := int64(w.Files - (w.now.files - w.base.files))
	if room == 0 {
		left = 0
	}
	return bytes > room || files > left || fs.Files == 0
}

// recount walks the workspace and says whether the run holds too much.
// fs is the private file system.
func (w *Watch) recount(fs unix.Statfs_t) bool {
	t := tally{}
	w.walk(&t)
	w.now = t.held
	own := held{
		bytes: int64(w.private.Bfree+fs.Blocks-w.private.Blocks-fs.Bfree) * fs.Bsize,
		files: int(w.private.Ffree + fs.Files - w.private.Files - fs.Ffree),
	}
	bytes := t.bytes - w.base.bytes + own.bytes
	files := t.files - w.base.files + own.files
	w.full = w.full || bytes >= w.FileBytes || files >= w.Files
	return t.err != nil || bytes > w.FileBytes || files > w.Files
}

func (w *Watch) walk(t *tally) {
	start := time.Now()
	unix.Statfs(workspace, &w.last)
	fd, err := unix.Open(workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.err = &os.PathError{Op: "count", Path: workspace, Err: err}
		return
	}
	t.dir(fd)
	t.bytes += nameless()
	w.walked = time.Now()
	w.cost = w.walked.Sub(start)
}

// A tally adds up a tree.
type tally struct {
	held
	largest int64
	linked  map[uint64]bool
	err     error
}

// dir adds what is below the open directory fd, and closes it.
func (t *tally) dir(fd int) {
	f := os.NewFile(uintptr(fd), "dir")
	defer f.Close()
	for {
		entries, err := f.ReadDir(1024)
		for _, e := range entries {
			t.entry(fd, e)
		}
		if err != nil || t.err != nil {
			if err != io.EOF && t.err == nil && !os.IsNotExist(err) {
				t.err = err
			}
			return
		}
	}
}

func (t *tally) entry(dir int, e os.DirEntry) {
	var st unix.Stat_t
	if unix.Fstatat(dir, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return // gone meanwhile
	}
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if t.linked == nil {
			t.linked = make(map[uint64]bool)
		}
		if t.linked[st.Ino] {
			return
		}
		t.linked[st.Ino] = true
	}
	t.files++
	t.bytes += st.Blocks * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.largest = max(t.largest, st.Size)
		return
	}
	fd, err := unix.Openat(dir, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		t.dir(fd)
	case unix.EMFILE, unix.ENFILE:
		t.err = err // deeper than anybody can count
	}
	// What init may not open the program may not either.
}

// nameless is the bytes of deleted files that somebody in the box keeps open.
func nameless() (n int64) {
	seen := make(map[[2]uint64]bool)
	eachProcess(func(pid string) {
		dir := "/proc/" + pid + "/fd"
		fds, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, fd := range fds {
			path := dir + "/" + fd.Name()
			to, err := os.Readlink(path)
			if err != nil || !strings.HasPrefix(to, workspace+"/") || !strings.HasSuffix(to, " (deleted)") {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil || st.Nlink != 0 {
				continue
			}
			if id := [2]uint64{uint64(st.Dev), st.Ino}; !seen[id] {
				seen[id] = true
				n += st.Blocks * 512
			}
		}
	})
	return n
}

// eachProcess calls f for everything in the box but init.
func eachProcess(f func(pid string)) {
	d, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		if name[0] >= '1' && name[0] <= '9' && name != "1" {
			f(name)
		}
	}
}

// count adds up memory and processor time of everything alive in the box,
// where no cgroup does. It sees only what is alive when it looks.
func (w *Watch) count() string {
	const hertz = 100 // of times in /proc, on every Linux
	var memory, ticks int64
	eachProcess(func(pid string) {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) < 22 {
			return
		}
		for _, i := range []int{11, 12, 13, 14} {
			v, _ := strconv.ParseInt(f[i], 10, 64)
			ticks += v
		}
		pages, _ := strconv.ParseInt(f[21], 10, 64)
		memory += pages * int64(os.Getpagesize())
	})
	w.Peak = max(w.Peak, memory)
	switch {
	case w.Memory > 0 && memory > w.Memory:
		return string(sandbox.Memory)
	case w.CPU > 0 && time.Duration(ticks)*time.Second/hertz > w.CPU:
		return string(sandbox.Timeout)
	}
	return ""
}
