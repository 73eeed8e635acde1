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

// mounts returns all mounts of the root, parents first.
func (p *Plan) mounts() ([]mount, error) {
	all := []mount{{at: "/tmp", fd: -1, perms: "1777"}, {at: "/dev/shm", fd: -1, perms: "1777"}}
	if p.usesVarTmp() {
		all = append(all, mount{at: "/var/tmp", fd: -1, perms: "1777"})
	}
	if p.Home != "" {
		all = append(all, mount{at: p.Home, fd: -1, perms: "700"})
	}
	// A program of an earlier run may have replaced the name by a link, so links are refused.
	add := func(name string, attr uint64) error {
		m, err := clone(name, name, attr, unix.RESOLVE_NO_SYMLINKS)
		all = append(all, m)
		return err
	}
	for _, name := range slices.Concat(systemDirs, p.Show) {
		fi, err := os.Lstat(name)
		if slices.Contains(systemDirs, name) && (err != nil || fi.Mode()&fs.ModeSymlink != 0) {
			continue // makeTree makes the links
		}
		if err := add(name, untrusted|unix.MOUNT_ATTR_RDONLY); err != nil {
			return nil, err
		}
	}
	for _, name := range append(p.Write, p.Dir) {
		if err := add(name, untrusted); err != nil {
			return nil, err
		}
	}
	for _, d := range append(devices, "tty") {
		m, err := clone("/dev/"+d, "/dev/"+d, unix.MOUNT_ATTR_NOSUID, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	for fd := range 3 { // ttyname(3) finds the terminal as /dev/console
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || !strings.HasPrefix(name, "/dev/pts/") {
			continue
		}
		if m, err := clone(name, "/dev/console", unix.MOUNT_ATTR_NOSUID, unix.RESOLVE_NO_SYMLINKS); err == nil {
			all = append(all, m)
			break
		}
	}
	// A mount covers what lies below it, so a parent must come before its children.
	slices.SortStableFunc(all, func(a, b mount) int { return strings.Compare(a.at, b.at) })
	return all, nil
}

// build makes the root of the program and enters it. The root of the host stays
// mounted until leaveHost.
func (p *Plan) build() error {
	if err := ownMounts(); err != nil {
		return err
	}
	// The clones are made first, because the new root will cover /tmp of the host.
	all, err := p.mounts()
	if err != nil {
		return err
	}
	if err := newRoot(); err != nil {
		return err
	}
	if err := makeTree(p.usesVarTmp()); err != nil {
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
	if err := coverPrivate("./etc"); err != nil {
		return err
	}
	// Hidden paths may lie below a shown one, so they are covered last.
	for _, h := range p.Hide {
		if err := cover("." + h); err != nil {
			return err
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, ".", 0, &unix.MountAttr{Attr_set: untrusted | unix.MOUNT_ATTR_RDONLY})
}

// usesVarTmp reports whether the jail shows something below /var/tmp, which else is a
// link to /tmp.
func (p *Plan) usesVarTmp() bool {
	return slices.ContainsFunc(slices.Concat(p.Show, p.Write, []string{p.Dir, p.Home}), func(s string) bool { return within(s, "/var/tmp") })
}

// makeTree makes the directories and links that do not come from a mount of the host.
func makeTree(varTmp bool) error {
	for _, dir := range []string{"proc", "dev/pts", "run", "sys", "var"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	links := map[string]string{"dev/ptmx": "pts/ptmx", "var/tmp": "/tmp", "var/run": "/run"}
	if varTmp {
		delete(links, "var/tmp")
	}
	for _, name := range systemDirs {
		if to, err := os.Readlink(name); err == nil {
			links[name[1:]] = to
		}
	}
	return makeLinks(links)
}

// coverPrivate covers the files below dir that not every user may read. The program
// runs as the user. If that is root, permissions alone do not protect these files.
func coverPrivate(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return nil // the program may not read it either
			}
			return err
		}
		fi, err := d.Info()
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		// A directory that others may not list or enter is private with everything in it.
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

// hostSecrets are files of /proc that everybody may read, and that tell about the host.
var hostSecrets = []string{"keys", "key-users", "kallsyms", "latency_stats", "sched_debug", "timer_list", "timer_stats"}

// coverPrivateProc covers the files of /proc that only root may read, because a jail of
// root has the same user, and those of hostSecrets.
func coverPrivateProc(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fi, err := os.Lstat(filepath.Join(dir, e.Name()))
		switch {
		case err != nil: // a process that has ended
		case !fi.Mode().IsRegular():
		case slices.Contains(hostSecrets, e.Name()) || fi.Mode().Perm()&0o004 == 0:
			if err := cover(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// cover mounts an empty file or directory over a name. A missing name is no error.
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
