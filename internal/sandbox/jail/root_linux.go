package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kern-run/kern/internal/program/frame"
	"golang.org/x/sys/unix"
)

const workspace = "/workspace"

// writable are the places a program may write, all of them on one file system
// unless the workspace is somebody's directory.
var writable = []string{workspace, "/tmp", "/dev/shm"}

var devices = []string{"null", "zero", "full", "random", "urandom"}

// build makes the root directory of the box and enters it.
func build(o *frame.Order, lent int) error {
	if err := unix.Sethostname([]byte("jail")); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Taken before the new root covers one of them.
	shown, err := takeShown(o)
	if err != nil {
		return err
	}
	if lent < 0 && o.Dir != "" {
		if lent, err = takeDir(o.Dir); err != nil {
			return err
		}
	}
	const root = "/tmp"
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := furnish(o); err != nil {
		return err
	}
	for _, m := range shown {
		if err := m.place(); err != nil {
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
	if err := openUp(o); err != nil {
		return err
	}
	if err := resize("tmp", o.Bounds); err != nil {
		return err
	}
	if lent >= 0 {
		if err := move(lent, "."+workspace); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// openUp makes the writable places mounts of their own and the rest read-only.
func openUp(o *frame.Order) error {
	open := writable
	if o.Probe {
		open = append([]string{"/unruled"}, open...)
	}
	for _, dir := range open {
		dir = "." + dir
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("writable %s: %w", dir, err)
		}
		if err := attributes(dir, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, 0); err != nil {
			return err
		}
	}
	return attributes(".", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, 0)
}

func attributes(path string, attr uint64, flags uint) error {
	if err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: attr}); err != nil {
		return fmt.Errorf("mount attributes of %s: %w", path, err)
	}
	return nil
}

// A taken is something of the host, on its way into the box.
type taken struct {
	fd     int
	at     string // where in the box, relative to its root
	attr   uint64
	isFile bool
}

// takeShown clones what of the host the program may read.
func takeShown(o *frame.Order) (all []taken, err error) {
	const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	take := func(path string, attr uint64, isFile, optional bool) {
		if err != nil {
			return
		}
		flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
		if !isFile {
			flags |= unix.AT_RECURSIVE
		}
		fd, e := unix.OpenTree(unix.AT_FDCWD, path, flags)
		if e != nil {
			if !optional {
				err = &os.PathError{Op: "show", Path: path, Err: e}
			}
			return
		}
		all = append(all, taken{fd, "." + path, attr, isFile})
	}
	take("/usr", readOnly, false, false)
	for _, dir := range o.Shown {
		take(dir, readOnly, false, false)
	}
	take("/etc/alternatives", readOnly, false, true)
	take("/etc/ld.so.cache", readOnly, true, true)
	for _, d := range devices {
		take("/dev/"+d, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, true, false)
	}
	return all, err
}

func (t taken) place() error {
	var err error
	if t.isFile {
		err = os.WriteFile(t.at, nil, 0o444)
	} else {
		err = os.MkdirAll(t.at, 0o755)
	}
	if err != nil {
		return err
	}
	if err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("show %s: %w", t.at, err)
	}
	unix.Close(t.fd)
	var flags uint
	if !t.isFile {
		flags = unix.AT_RECURSIVE
	}
	return attributes(t.at, t.attr, flags)
}

// takeDir clones the workspace where init itself may see it.
func takeDir(dir string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == unix.EINVAL {
		// Mounts below it cannot be left out of it by this user.
		fd, err = unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	}
	if err != nil {
		return -1, &os.PathError{Op: "workspace", Path: dir, Err: err}
	}
	return fd, nil
}

func move(fd int, to string) error {
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	unix.Close(fd)
	return attributes(to, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, 0)
}

// attach puts a named directory over the private workspace of a warm box.
func attach(lent int, dir string) error {
	if lent < 0 {
		return fmt.Errorf("want the workspace %s as a descriptor", dir)
	}
	return move(lent, workspace)
}

// furnish writes what little of /etc and of the tree a program expects.
func furnish(o *frame.Order) error {
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
	if err := os.Chown("workspace", insideUID, insideUID); err != nil {
		return err
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		to := filepath.Join("usr", l)
		if _, err := os.Lstat(filepath.Join("/", to)); err == nil {
			if err := os.Symlink(to, l); err != nil {
				return err
			}
		}
	}
	for name, text := range map[string]string{
		"etc/passwd":        "user:x:1000:1000::/workspace:/bin/sh\n",
		"etc/group":         "user:x:1000:\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o444); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, "dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

// furniture is what the private file system held before it was the program's.
var furniture unix.Statfs_t

// resize gives the private file system the bounds of a run, on top of what is
// the box's own.
func resize(at string, b frame.Bounds) error {
	if furniture.Bsize == 0 {
		if err := unix.Statfs(at, &furniture); err != nil {
			return err
		}
	}
	f := &furniture
	blocks := uint64((b.FileBytes+f.Bsize-1)/f.Bsize) + f.Blocks - f.Bfree
	inodes := uint64(b.Files) + f.Files - f.Ffree
	opts := fmt.Sprintf("size=%d,nr_inodes=%d", blocks*uint64(f.Bsize), inodes)
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return fmt.Errorf("size of the private files: %w", err)
	}
	return nil
}

// shown is what Landlock lets the program read beside what every box has.
func shown(o *frame.Order) []string {
	if o.Probe {
		return append([]string{"/probe"}, o.Shown...)
	}
	return o.Shown
}

// copySelf puts this program into the box, for the probe.
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
