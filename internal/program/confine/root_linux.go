package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A jail gets a root directory of its own in four steps: clone the mounts of the host
// to show (clone), mount an empty root (ownMounts, newRoot), put the clones there
// (mount.put), and detach the root of the host (leaveHost).

// devices are the devices that every jail has.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// untrusted holds the attributes of a mount to which a program may write.
const untrusted = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// A mount is a part of the new root: a clone of a mount of the host, or an empty
// directory.
type mount struct {
	at    string // absolute path in the new root
	fd    int    // clone of a mount of the host; -1: an empty directory
	file  bool
	attr  uint64
	perms string
}

// clone clones a file or directory of the host as a mount. With RESOLVE_NO_SYMLINKS it
// fails at a link, because a program may have made the link after NewPlan.
func clone(name, at string, attr, resolve uint64) (mount, error) {
	found, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return mount{}, &os.PathError{Op: "show", Path: name, Err: err}
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return mount{}, &os.PathError{Op: "show", Path: name, Err: err}
	}
	// The clone is made from the descriptor that was checked, so the name cannot be replaced in between.
	fd, err := unix.OpenTree(found, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return mount{}, &os.PathError{Op: "show", Path: name, Err: err}
	}
	return mount{at: at, fd: fd, file: st.Mode&unix.S_IFMT != unix.S_IFDIR, attr: attr}, nil
}

// put mounts m in the new root, which is the current directory.
func (m mount) put() error {
	at := "." + m.at
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	// A mount needs something to cover. Below a shown directory it is there already, and cannot be written.
	if m.file {
		if err := os.WriteFile(at, nil, 0o644); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.EROFS) {
			return err
		}
	} else if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if m.fd < 0 {
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+m.perms); err != nil {
			return &os.PathError{Op: "empty directory", Path: m.at, Err: err}
		}
		return nil
	}
	if err := attach(m.fd, at); err != nil {
		return &os.PathError{Op: "show", Path: m.at, Err: err}
	}
	return restrict(at, m.attr, unix.AT_RECURSIVE)
}

// attach mounts a clone at a path, and closes the clone.
func attach(fd int, at string) error {
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// restrict adds attributes to a mount. With AT_RECURSIVE it also adds them to all
// mounts below.
func restrict(at string, attr uint64, flags uint) error {
	if attr == 0 {
		return nil
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, at, flags, &unix.MountAttr{Attr_set: attr}); err != nil {
		return &os.PathError{Op: "mount attributes", Path: at, Err: err}
	}
	return nil
}

// ownMounts makes later mounts visible only in this namespace.
func ownMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	return nil
}

// newRoot mounts an empty root over /tmp and enters it. The root of the host stays
// mounted until leaveHost.
func newRoot() error {
	const root = "/tmp"
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("a root of its own: %w", err)
	}
	return unix.Chdir(root)
}

// leaveHost makes the current directory the root, and detaches the root of the host.
func leaveHost() error {
	// Both arguments are one directory: the old root then lies above the new one, and the unmount takes it away.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("the host's root: %w", err)
	}
	return nil
}

// makeLinks makes links in the new root, which is the current directory. It adds the
// links that every jail has.
func makeLinks(links map[string]string) error {
	for name, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		links["dev/"+name] = "/proc/self/fd" + to
	}
	for name, to := range links {
		if err := os.Symlink(to, name); err != nil {
			return err
		}
	}
	return nil
}
