package confine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Workspace is the path of the workspace inside a box.
const Workspace = "/workspace"

// writable are the directories where a program may write. They are on one file
// system, unless the workspace is a directory of the host.
var writable = []string{Workspace, "/tmp", "/dev/shm"}

// build makes the root directory of the box and enters it. It closes lent, the mount
// descriptor of the workspace; -1 means none.
func build(o *Order, lent int) error {
	if err := unix.Sethostname([]byte("jail")); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := ownMounts(); err != nil {
		return err
	}
	// Clone the host directories before the new root covers one of them.
	shown, err := cloneShown(o)
	if err != nil {
		return err
	}
	// Without root the backend lends no mount, so init opens the workspace itself.
	if lent < 0 && o.Dir != "" {
		if lent, err = cloneDir(o.Dir); err != nil {
			return err
		}
	}
	if err := newRoot(); err != nil {
		return err
	}
	if err := makeBoxTree(o); err != nil {
		return err
	}
	for _, m := range shown {
		if err := m.put(); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "hidepid=2"); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if o.Probe {
		if err := copySelf("probe/program"); err != nil {
			return err
		}
	}
	// The root becomes read-only here, so everything above had to be written before.
	if err := openUp(o); err != nil {
		return err
	}
	if err := resize("tmp", o.Bounds); err != nil {
		return err
	}
	if lent >= 0 {
		if err := putWorkspace(lent, "."+Workspace); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
	}
	// The host's root goes last, because the steps above still use it.
	if err := leaveHost(); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// openUp makes every writable directory a mount of its own and the rest read-only.
func openUp(o *Order) error {
	open := writable
	if o.Probe {
		open = append([]string{"/unruled"}, open...)
	}
	for _, dir := range open {
		dir = "." + dir
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("writable %s: %w", dir, err)
		}
		if err := restrict(dir, untrusted, 0); err != nil {
			return err
		}
	}
	return restrict(".", untrusted|unix.MOUNT_ATTR_RDONLY, 0)
}

// cloneShown clones the mounts of the host that the program may use: directories to
// read and devices.
func cloneShown(o *Order) (all []mount, err error) {
	add := func(path string, attr uint64, optional bool) {
		if err != nil {
			return
		}
		m, e := clone(path, path, attr, 0)
		if e == nil {
			all = append(all, m)
		} else if !optional {
			err = e
		}
	}
	for _, dir := range append([]string{"/usr"}, o.Shown...) {
		add(dir, untrusted|unix.MOUNT_ATTR_RDONLY, false)
	}
	add("/etc/alternatives", untrusted|unix.MOUNT_ATTR_RDONLY, true)
	add("/etc/ld.so.cache", untrusted|unix.MOUNT_ATTR_RDONLY, true)
	for _, d := range devices {
		add("/dev/"+d, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, false)
	}
	return all, err
}

// cloneDir clones the mount of the workspace, which init opens with its own rights.
func cloneDir(dir string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == unix.EINVAL {
		// The kernel does not let this user leave out mounts below the workspace.
		fd, err = unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	}
	if err != nil {
		return -1, &os.PathError{Op: "workspace", Path: dir, Err: err}
	}
	return fd, nil
}

// putWorkspace mounts fd, a clone of the workspace, at the path at.
func putWorkspace(fd int, at string) error {
	if err := attach(fd, at); err != nil {
		return err
	}
	return restrict(at, untrusted, 0)
}

// makeBoxTree makes the directories, links and files of /etc that programs expect.
func makeBoxTree(o *Order) error {
	dirs := []string{"usr", "etc", "dev", "dev/shm", "proc", "tmp", "workspace"}
	if o.Probe {
		dirs = append(dirs, "unruled", "probe")
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "dev/shm"} {
		if err := unix.Chmod(dir, 0o1777); err != nil {
			return err
		}
	}
	if o.Probe {
		if err := unix.Chmod("unruled", 0o777); err != nil {
			return err
		}
	}
	if err := os.Chown("workspace", InsideUID, InsideUID); err != nil {
		return err
	}
	// Link only directories that the host's /usr has.
	for _, l := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		to := filepath.Join("usr", l)
		if _, err := os.Lstat(filepath.Join("/", to)); err == nil {
			if err := os.Symlink(to, l); err != nil {
				return err
			}
		}
	}
	for name, text := range map[string]string{
		// The files of the host would name its users and servers.
		"etc/passwd":        "user:x:1000:1000::/workspace:/bin/sh\n",
		"etc/group":         "user:x:1000:\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o444); err != nil {
			return err
		}
	}
	return makeLinks(map[string]string{})
}

// emptyFiles is the state of the private file system before the program used it.
var emptyFiles unix.Statfs_t

// resize limits the private file system to the bounds of a run, plus the bytes and
// files that the box itself put there.
func resize(at string, b Bounds) error {
	if emptyFiles.Bsize == 0 {
		if err := unix.Statfs(at, &emptyFiles); err != nil {
			return err
		}
	}
	f := &emptyFiles
	// The files that the box itself put there must not count against the run.
	blocks := uint64((b.FileBytes+f.Bsize-1)/f.Bsize) + f.Blocks - f.Bfree
	inodes := uint64(b.Files) + f.Files - f.Ffree
	opts := fmt.Sprintf("size=%d,nr_inodes=%d", blocks*uint64(f.Bsize), inodes)
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return fmt.Errorf("size of the private files: %w", err)
	}
	return nil
}

// readablePaths returns the paths that Landlock lets the program read in this box, in addition
// to the paths that it may read in every box.
func readablePaths(o *Order) []string {
	if o.Probe {
		return append([]string{"/probe"}, o.Shown...)
	}
	return o.Shown
}

// copySelf copies this binary to a path in the box, for the probe.
func copySelf(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
