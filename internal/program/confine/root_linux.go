package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// A mount is something to be put into the new root: a piece of the host, or an
// empty place.
type mount struct {
	at    string // absolute
	fd    int    // a clone of the host's; -1: a place that is empty
	file  bool
	attr  uint64
	perms string
}

// take clones a piece of the host. The plan has no links; one that was put in the
// way since leads nowhere.
func take(name, at string, attr uint64) (mount, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	found, err := unix.Openat2(unix.AT_FDCWD, name, &how)
	if err != nil {
		return mount{}, &os.PathError{Op: "show", Path: name, Err: err}
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return mount{}, &os.PathError{Op: "show", Path: name, Err: err}
	}
	fd, err := unix.OpenTree(found, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return mount{}, &os.PathError{Op: "show", Path: name, Err: err}
	}
	return mount{at: at, fd: fd, file: st.Mode&unix.S_IFMT != unix.S_IFDIR, attr: attr}, nil
}

// put puts m into the root that is the current directory.
func (m mount) put() error {
	at := "." + m.at
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if m.file {
		if err := os.WriteFile(at, nil, 0o644); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.EROFS) {
			return err
		}
	} else if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if m.fd < 0 {
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+m.perms); err != nil {
			return &os.PathError{Op: "empty place", Path: m.at, Err: err}
		}
		return nil
	}
	defer unix.Close(m.fd)
	if err := unix.MoveMount(m.fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "show", Path: m.at, Err: err}
	}
	return restrict(at, m.attr)
}

// restrict adds attributes to a mount and all below.
func restrict(at string, attr uint64) error {
	if attr == 0 {
		return nil
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr}); err != nil {
		return &os.PathError{Op: "mount attributes", Path: at, Err: err}
	}
	return nil
}

const asIs = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// mounts are all that is put into the root, whoever holds others first.
func (p *Plan) mounts() ([]mount, error) {
	all := []mount{{at: "/tmp", fd: -1, perms: "1777"}, {at: "/dev/shm", fd: -1, perms: "1777"}}
	if p.Home != "" {
		all = append(all, mount{at: p.Home, fd: -1, perms: "700"})
	}
	add := func(name string, attr uint64) error {
		m, err := take(name, name, attr)
		all = append(all, m)
		return err
	}
	for _, name := range slices.Concat(system, p.Show) {
		fi, err := os.Lstat(name)
		if slices.Contains(system, name) && (err != nil || fi.Mode()&fs.ModeSymlink != 0) {
			continue // links are made by furnish
		}
		if err := add(name, asIs|unix.MOUNT_ATTR_RDONLY); err != nil {
			return nil, err
		}
	}
	for _, name := range append(p.Write, p.Dir) {
		if err := add(name, asIs); err != nil {
			return nil, err
		}
	}
	for _, d := range devices {
		m, err := take("/dev/"+d, "/dev/"+d, unix.MOUNT_ATTR_NOSUID)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	for fd := range 3 { // whoever asks for the terminal's name finds this one
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || !strings.HasPrefix(name, "/dev/pts/") {
			continue
		}
		if m, err := take(name, "/dev/console", unix.MOUNT_ATTR_NOSUID); err == nil {
			all = append(all, m)
			break
		}
	}
	slices.SortStableFunc(all, func(a, b mount) int { return strings.Compare(a.at, b.at) })
	return all, nil
}

// build makes the root of the program below /tmp, and is in it when it returns.
// What was the root until then is still there.
func (p *Plan) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	all, err := p.mounts()
	if err != nil {
		return err
	}
	const root = "/tmp"
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("a root of its own: %w", err)
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := furnish(); err != nil {
		return err
	}
	for _, m := range all {
		if err := m.put(); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("terminals of its own: %w", err)
	}
	if err := private("./etc"); err != nil {
		return err
	}
	for _, h := range p.Hide {
		if err := cover("." + h); err != nil {
			return err
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, ".", 0, &unix.MountAttr{Attr_set: asIs | unix.MOUNT_ATTR_RDONLY})
}

// furnish makes what little of the tree is not the host's.
func furnish() error {
	for _, dir := range []string{"proc", "dev/pts", "run", "sys", "var"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	links := map[string]string{"dev/fd": "/proc/self/fd", "dev/stdin": "/proc/self/fd/0", "dev/stdout": "/proc/self/fd/1", "dev/stderr": "/proc/self/fd/2",
		"dev/ptmx": "pts/ptmx", "var/tmp": "/tmp", "var/run": "/run"}
	for _, name := range system {
		if to, err := os.Readlink(name); err == nil {
			links[name[1:]] = to
		}
	}
	for name, to := range links {
		if err := os.Symlink(to, name); err != nil {
			return err
		}
	}
	return nil
}

// private covers what not everybody may read, for the program is of the user's,
// who may be root.
func private(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return nil // nor may the program
			}
			return err
		}
		fi, err := d.Info()
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		if d.IsDir() && fi.Mode().Perm()&0o005 != 0o005 {
			if err := cover(name); err != nil {
				return err
			}
			return fs.SkipDir
		}
		if !d.IsDir() && fi.Mode().Perm()&0o004 == 0 {
			return cover(name)
		}
		return nil
	})
}

// cover puts nothing over a name.
func cover(name string) error {
	fi, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.IsDir() {
		err = unix.Mount("tmpfs", name, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "mode=000,size=4k")
	} else {
		err = unix.Mount("dev/null", name, "", unix.MS_BIND, "")
	}
	if err != nil {
		return &os.PathError{Op: "hide", Path: name, Err: err}
	}
	return nil
}
