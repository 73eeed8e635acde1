package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A place is a directory held open: the workspace, or one of our own. Every
// path is resolved by the kernel below it, without following a link and
// without crossing into another mount, so a directory that is replaced by a
// link between check and use is an error and never a way out.
type place struct {
	name string
	fd   int
}

const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS

func openPlace(dir string) (*place, error) {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	p := &place{dir, fd}
	if d, err := p.at("."); err != nil {
		p.close()
		return nil, errorf(Unsupported, dir, "this kernel cannot resolve paths safely (openat2: %v); Linux 5.6 or newer is needed", err)
	} else {
		unix.Close(d)
	}
	return p, nil
}

func (p *place) close() error { return unix.Close(p.fd) }

func retry[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err != unix.EINTR && err != unix.EAGAIN {
			return v, err
		}
	}
}

func (p *place) open2(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	fd, err := retry(func() (int, error) { return unix.Openat2(p.fd, name, &how) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path.Join(p.name, name), Err: err}
	}
	return fd, nil
}

// at opens the directory name for use in *at calls.
func (p *place) at(name string) (int, error) { return p.open2(name, unix.O_PATH|unix.O_DIRECTORY) }

// in runs f with the parent of name held open.
func (p *place) in(name string, f func(fd int, base string) error) error {
	dir, base := path.Split(name)
	if base == "" || base == "." || base == ".." {
		return errorf(Refused, name, "expected the name of something below the workspace")
	}
	if dir == "" {
		return wrap(p, name, f(p.fd, base))
	}
	fd, err := p.at(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return wrap(p, name, f(fd, base))
}

func wrap(p *place, name string, err error) error {
	if _, ok := err.(unix.Errno); ok {
		return &fs.PathError{Op: "workspace", Path: path.Join(p.name, name), Err: err}
	}
	return err
}

// sub opens the directory name as a place.
func (p *place) sub(name string) (*place, error) {
	fd, err := p.open2(name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &place{path.Join(p.name, name), fd}, nil
}

// open opens a file for reading; a link is an error.
func (p *place) open(name string) (*os.File, error) {
	fd, err := p.open2(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Join(p.name, name)), nil
}

func (p *place) lstat(name string) (e entry, err error) {
	if name == "." {
		var st unix.Stat_t
		if err := unix.Fstat(p.fd, &st); err != nil {
			return e, &fs.PathError{Op: "stat", Path: p.name, Err: err}
		}
		return entryOf(&st), nil
	}
	err = p.in(name, func(fd int, base string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		e = entryOf(&st)
		e.name = base
		return nil
	})
	return e, err
}

func fstat(f *os.File) (entry, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return entry{}, err
	}
	return entryOf(&st), nil
}

func entryOf(st *unix.Stat_t) (e entry) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Kind, e.Size = File, st.Size
		if st.Nlink > 1 {
			e.Group = st.Ino
		}
	case unix.S_IFDIR:
		e.Kind = Dir
	case unix.S_IFLNK:
		e.Kind = Symlink
	default:
		e.Kind = Other
	}
	if e.Kind != Symlink {
		e.Mode = modeOf(st.Mode)
	}
	e.Time = st.Mtim.Nano()
	e.fp = print{st.Ino, st.Ctim.Nano(), uint32(st.Nlink), st.Uid, st.Gid}
	return e
}

func modeOf(m uint32) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	if m&unix.S_ISUID != 0 {
		out |= fs.ModeSetuid
	}
	if m&unix.S_ISGID != 0 {
		out |= fs.ModeSetgid
	}
	if m&unix.S_ISVTX != 0 {
		out |= fs.ModeSticky
	}
	return out
}

func rawMode(m fs.FileMode) uint32 {
	out := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		out |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		out |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		out |= unix.S_ISVTX
	}
	return out
}

func (p *place) readlink(name string) (s string, err error) {
	err = p.in(name, func(fd int, base string) error {
		for n := 256; ; n *= 4 {
			b := make([]byte, n)
			k, err := unix.Readlinkat(fd, base, b)
			if err != nil {
				return err
			}
			if k < n {
				s = string(b[:k])
				return nil
			}
		}
	})
	return s, err
}

// names lists p itself.
func (p *place) names() ([]string, error) {
	fd, err := unix.Openat(p.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.name, Err: err}
	}
	f := os.NewFile(uintptr(fd), p.name)
	defer f.Close()
	return f.Readdirnames(-1)
}

// make renames slot in q to name, where nothing may be.
func (p *place) make(q *place, slot, name string) error {
	return p.in(name, func(fd int, base string) error {
		err := unix.Renameat2(q.fd, slot, fd, base, unix.RENAME_NOREPLACE)
		if err != unix.EINVAL && err != unix.ENOSYS {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.ENOENT {
			return errors.Join(unix.EEXIST, err)
		}
		return unix.Renameat(q.fd, slot, fd, base)
	})
}

// exchange swaps slot in q and name in one step, or fails with
// errors.ErrUnsupported where the file system cannot.
func (p *place) exchange(q *place, slot, name string) error {
	return p.in(name, func(fd int, base string) error {
		err := unix.Renameat2(q.fd, slot, fd, base, unix.RENAME_EXCHANGE)
		if err == unix.EINVAL || err == unix.ENOSYS {
			return errors.ErrUnsupported
		}
		return err
	})
}

// keep gives name a second name, slot in q.
func (p *place) keep(q *place, name, slot string) error {
	return p.in(name, func(fd int, base string) error { return unix.Linkat(fd, base, q.fd, slot, 0) })
}

// over renames slot in q to name and replaces what is there.
func (p *place) over(q *place, slot, name string) error {
	return p.in(name, func(fd int, base string) error { return unix.Renameat(q.fd, slot, fd, base) })
}

// drop renames name to slot in q.
func (p *place) drop(q *place, name, slot string) error {
	return p.in(name, func(fd int, base string) error { return unix.Renameat(fd, base, q.fd, slot) })
}

// attr sets mode and time of a file or directory, never of what a link names.
func (p *place) attr(name string, e Entry) error {
	set := func(fd int, base string) error {
		if e.Kind != Symlink {
			if err := unix.Fchmodat(fd, base, rawMode(e.Mode), 0); err != nil {
				return err
			}
		}
		ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(e.Time)}
		return unix.UtimesNanoAt(fd, base, ts, unix.AT_SYMLINK_NOFOLLOW)
	}
	if name == "." {
		return wrap(p, name, set(p.fd, "."))
	}
	return p.in(name, func(fd int, base string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if entryOf(&st).Kind != e.Kind { // fchmodat follows links
			return unix.ELOOP
		}
		return set(fd, base)
	})
}

// own gives slot in q the owner of e, where this process may.
func own(name string, fp print) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(name, int(fp.uid), int(fp.gid))
}

// syncDir makes the names in the directory name last.
func (p *place) syncDir(name string) error {
	fd, err := p.open2(name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return wrap(p, name, unix.Fsync(fd))
}

// syncAll makes everything on the file system of p last.
func (p *place) syncAll() error { return wrap(p, ".", unix.Syncfs(p.fd)) }

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// sameFS tells that a name can be renamed from p to q.
func sameFS(p, q *place) bool {
	var a, b unix.Stat_t
	return unix.Fstat(p.fd, &a) == nil && unix.Fstat(q.fd, &b) == nil && a.Dev == b.Dev
}

// copyContent copies f to g: as a reference where the file system has them,
// else byte by byte with its holes.
func copyContent(g, f *os.File, size int64) error {
	if err := unix.IoctlFileClone(int(g.Fd()), int(f.Fd())); err == nil {
		return nil
	}
	if err := g.Truncate(size); err != nil {
		return err
	}
	for off := int64(0); off < size; {
		data, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return nil // a hole up to the end
		}
		if err != nil {
			data = off
		}
		end, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil || end <= data {
			end = size
		}
		if _, err := io.Copy(io.NewOffsetWriter(g, data), io.NewSectionReader(f, data, end-data)); err != nil {
			return err
		}
		off = end
	}
	return nil
}

// writers refuses a file that some process could still write to.
func writers(f *os.File) error {
	const setLease = 1024
	_, err := unix.FcntlInt(f.Fd(), setLease, unix.F_RDLCK)
	if err == unix.EAGAIN {
		return errorf(Busy, f.Name(), "a process still has it open for writing")
	}
	if err == nil {
		unix.FcntlInt(f.Fd(), setLease, unix.F_UNLCK)
	}
	return nil // no lease on this file system or for this user: nothing is known
}

// fineStamps tells whether stamps of this directory's file system change with every
// write, so that a print that stayed the same is proof.
func fineStamps(dir string) bool {
	f, err := os.CreateTemp(dir, "stamp")
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var last int64
	for i := range 16 {
		if _, err := f.WriteAt([]byte{byte(i)}, 0); err != nil {
			return false
		}
		e, err := fstat(f)
		if err != nil || e.fp.ctime <= last {
			return false
		}
		last = e.fp.ctime
	}
	return true
}

// hasStamps: this system tells when a file was last changed by anyone.
const hasStamps = true

// flock takes the lock on f and tells whether it got it. The operating system
// gives it back when the last descriptor is closed, so at the latest when the
// holder dies.
func flock(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case nil:
			return true, nil
		case unix.EWOULDBLOCK:
			return false, nil
		case unix.EINTR:
		default:
			return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

// foreign tells that err comes from the root of another mount.
func foreign(err error) bool { return errors.Is(err, unix.EXDEV) }

// isNotDir tells that a component of a path is not the directory it was.
func isNotDir(err error) bool {
	return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR)
}

func unflock(f *os.File) { unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// syncAllOr is syncAll where there is one; elsewhere files were synced as they
// were closed by the system.
func (p *place) syncAllOr() error {
	if err := p.syncAll(); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// escape keeps a path whole in mount options.
func escape(p string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(p)
}

// mountBounded puts a tmpfs at dir that holds what is there and the quota.
func mountBounded(dir string, bytes int64, files int, opt Bound) error {
	size, inodes := int64(0), 0 // 0: no bound
	if opt.Bytes > 0 {
		size = (bytes+4095)&^4095 + opt.Bytes&^4095
	}
	if opt.Files > 0 {
		inodes = files + opt.Files
	}
	data := fmt.Sprintf("mode=0700,size=%d,nr_inodes=%d", size, inodes)
	if err := unix.Mount("kern", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, data); err != nil {
		return errorf(Unsupported, dir, "a quota on this kind of view needs a file system of its own, which this host does not let us mount: %v; use a layer, or no quota", err)
	}
	return nil
}

// unmount takes down every mount below dir.
func unmount(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var at []string
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 4 {
			if p := unescapeMount(f[4]); inside(p, dir) {
				at = append(at, p)
			}
		}
	}
	var errs []error
	for _, p := range slices.Backward(at) {
		errs = append(errs, unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return errors.Join(errs...)
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
