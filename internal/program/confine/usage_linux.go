package confine

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// A usage measures the files, memory and CPU time of a run. Init measures inside the
// jail with its own rights, because a program can hide a file from its user.
type usage struct {
	Bounds
	lent    bool          // the workspace is a directory of the host
	largest int64         // size of its largest file when the run began
	peak    int64         // most memory; set only if no cgroup counts it
	private unix.Statfs_t // state of the private file system while it was empty
	base    held          // content of a lent workspace when the run began
	last    unix.Statfs_t // state of its file system at the last walk
	now     held          // content at the last walk
	walked  time.Time     // end of the last walk
	cost    time.Duration // duration of the last walk
	full    bool          // the run once held all bytes or files that it may hold
}

// privateFiles is a directory on the private file system of a box.
const privateFiles = "/tmp"

// held counts the content of a directory tree.
type held struct {
	bytes int64
	files int
}

// newUsage starts to measure a run that may add b to the files that exist now. The
// argument lent says that the workspace is a directory of the host. The argument
// private is the state of the private file system while it is empty.
func newUsage(b Bounds, lent bool, private unix.Statfs_t) (*usage, error) {
	u := &usage{Bounds: b, lent: lent, private: private}
	if !lent {
		return u, nil
	}
	t := tally{}
	u.walk(&t)
	u.base, u.now, u.largest = t.held, t.held, t.largest
	return u, t.err
}

// look returns the limit that the run exceeds; "" if it exceeds none.
func (u *usage) look() string {
	var fs unix.Statfs_t
	if unix.Statfs(privateFiles, &fs) == nil {
		u.full = u.full || fs.Bfree == 0 || fs.Ffree == 0
	}
	if u.lent && u.due() {
		if u.recount(fs) {
			return string(sandbox.Files)
		}
	}
	if u.Memory > 0 || u.CPU > 0 {
		return u.count()
	}
	return ""
}

// final is the last look, after every process of the run has ended.
func (u *usage) final() (over string, full bool) {
	over = u.look()
	if over == "" && u.lent && u.changed(0) {
		var fs unix.Statfs_t
		if unix.Statfs(privateFiles, &fs) == nil && u.recount(fs) {
			over = string(sandbox.Files)
		}
	}
	return over, u.full
}

// due reports whether to walk the workspace again. It is due soon if its file system
// lost as much space as the run has left. Otherwise walks cost at most a twentieth of
// the time.
func (u *usage) due() bool {
	since := time.Since(u.walked)
	// A large workspace must not keep init busy with counting.
	if since < 4*u.cost {
		return false
	}
	return u.changed(u.FileBytes-(u.now.bytes-u.base.bytes)) || since > max(100*time.Millisecond, 20*u.cost)
}

// changed reports whether the file system of the workspace lost more than room bytes,
// or more files than the run has left, since the last walk. It is cheap. It may also
// report true because another program wrote to the file system.
func (u *usage) changed(room int64) bool {
	var fs unix.Statfs_t
	if unix.Statfs(Workspace, &fs) != nil {
		return true
	}
	bytes := (int64(u.last.Bfree) - int64(fs.Bfree)) * fs.Bsize
	files := int64(u.last.Ffree) - int64(fs.Ffree)
	left := int64(u.Files - (u.now.files - u.base.files))
	if room == 0 {
		left = 0
	}
	return bytes > room || files > left || fs.Files == 0
}

// recount walks the workspace and reports whether the run holds too much. The argument
// fs is the state of the private file system.
func (u *usage) recount(fs unix.Statfs_t) bool {
	t := tally{}
	u.walk(&t)
	u.now = t.held
	// The private files count too: workspace and /tmp share one bound.
	own := held{
		bytes: int64(u.private.Bfree+fs.Blocks-u.private.Blocks-fs.Bfree) * fs.Bsize,
		files: int(u.private.Ffree + fs.Files - u.private.Files - fs.Ffree),
	}
	bytes := t.bytes - u.base.bytes + own.bytes
	files := t.files - u.base.files + own.files
	u.full = u.full || bytes >= u.FileBytes || files >= u.Files
	// A tree that cannot be counted may hold anything, so it counts as too much.
	return t.err != nil || bytes > u.FileBytes || files > u.Files
}

func (u *usage) walk(t *tally) {
	start := time.Now()
	unix.Statfs(Workspace, &u.last)
	fd, err := unix.Open(Workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.err = &os.PathError{Op: "count", Path: Workspace, Err: err}
		return
	}
	t.dir(fd)
	t.bytes += deletedBytes()
	u.walked = time.Now()
	u.cost = u.walked.Sub(start)
}

// A tally adds up the files of a directory tree.
type tally struct {
	held
	largest int64
	linked  map[uint64]bool
	err     error
}

// dir adds everything below the open directory fd, and closes fd.
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
		return // deleted meanwhile
	}
	// A file with several names takes its bytes once.
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
	// Blocks and not sizes: a sparse file takes only what was written.
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
		t.err = err // the tree is too deep to count
	}
	// The program may not open what init may not open.
}

// deletedBytes counts the bytes of deleted files that a process inside keeps open.
// It does not count a deleted file that is mapped and closed, because a process
// without rights on the host cannot learn the size of such a file.
func deletedBytes() (n int64) {
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
			// A walk does not see a deleted file, and its bytes stay on disk while it is open.
			if err != nil || !strings.HasPrefix(to, Workspace+"/") || !strings.HasSuffix(to, " (deleted)") {
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

// eachProcess calls f for every process inside the box except init.
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

// count adds up memory and CPU time of every living process inside, if no cgroup
// does. A process that ended before is not counted.
func (u *usage) count() string {
	const hertz = 100 // unit of the times in /proc, on every Linux
	var memory, ticks int64
	eachProcess(func(pid string) {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return
		}
		t, pages := timeAndPages(b)
		ticks += t
		memory += pages * int64(os.Getpagesize())
	})
	u.peak = max(u.peak, memory)
	switch {
	case u.Memory > 0 && memory > u.Memory:
		return string(sandbox.Memory)
	case u.CPU > 0 && time.Duration(ticks)*time.Second/hertz > u.CPU:
		return string(sandbox.Timeout)
	}
	return ""
}

// timeAndPages reads the CPU time and the pages of memory in a /proc/PID/stat.
func timeAndPages(stat []byte) (ticks, pages int64) {
	// A program chooses its name, which may hold brackets and spaces. Only the last bracket ends it.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 22 {
		return 0, 0
	}
	// Time of the process and of its children that were waited for, in user and system mode.
	for _, i := range []int{11, 12, 13, 14} {
		v, _ := strconv.ParseInt(f[i], 10, 64)
		ticks += v
	}
	pages, _ = strconv.ParseInt(f[21], 10, 64)
	return ticks, pages
}
