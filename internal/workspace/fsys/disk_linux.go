package fsys

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

// A Handle is a directory that is held open. The kernel resolves every path below
// it. It follows no link and enters no other mount. If somebody replaces a
// directory by a link between check and use, the use fails.
type Handle struct {
	Name string
	fd   int
}

const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS

// Open opens a directory.
func Open(dir string) (*Handle, error) {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	p := &Handle{dir, fd}
	// Without openat2 a link could lead out between check and use, so an old kernel is refused here.
	if d, err := p.openPath("."); err != nil {
		p.Close()
		return nil, Errorf(Unsupported, dir, "this kernel cannot resolve paths safely (openat2: %v); Linux 5.6 or newer is needed", err)
	} else {
		unix.Close(d)
	}
	return p, nil
}

// Close closes the directory.
func (p *Handle) Close() error { return unix.Close(p.fd) }

// Current reports whether the name of p still is this directory. It is another one, or
// none, after somebody removed or moved the directory.
func (p *Handle) Current() bool {
	var open, named unix.Stat_t
	return unix.Fstat(p.fd, &open) == nil && unix.Stat(p.Name, &named) == nil && open.Dev == named.Dev && open.Ino == named.Ino
}

// retry repeats f while a signal interrupts it.
func retry[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		// openat2 answers EAGAIN if a rename elsewhere made it unsure that the path stays below.
		if err != unix.EINTR && err != unix.EAGAIN {
			return v, err
		}
	}
}

// openBelow opens a path below p.
func (p *Handle) openBelow(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	fd, err := retry(func() (int, error) { return unix.Openat2(p.fd, name, &how) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path.Join(p.Name, name), Err: err}
	}
	return fd, nil
}

// openPath opens a directory for use in *at calls.
func (p *Handle) openPath(name string) (int, error) {
	return p.openBelow(name, unix.O_PATH|unix.O_DIRECTORY)
}

// withParent runs f with the parent directory of name.
func (p *Handle) withParent(name string, f func(fd int, base string) error) error {
	dir, base := path.Split(name)
	if base == "" || base == "." || base == ".." {
		return Errorf(Refused, name, "expected the name of something below the workspace")
	}
	if dir == "" {
		return pathError(p, name, f(p.fd, base))
	}
	fd, err := p.openPath(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return pathError(p, name, f(fd, base))
}

func pathError(p *Handle, name string, err error) error {
	if _, ok := err.(unix.Errno); ok {
		return &fs.PathError{Op: "workspace", Path: path.Join(p.Name, name), Err: err}
	}
	return err
}

// Sub opens a directory below p.
func (p *Handle) Sub(name string) (*Handle, error) {
	fd, err := p.openBelow(name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &Handle{path.Join(p.Name, name), fd}, nil
}

// Open opens a file for reading. A link is an error.
func (p *Handle) Open(name string) (*os.File, error) {
	// O_NONBLOCK: a FIFO that was put here would block the open for ever.
	fd, err := p.openBelow(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Join(p.Name, name)), nil
}

// Lstat describes name and does not follow a link.
func (p *Handle) Lstat(name string) (e Item, err error) {
	if name == "." {
		var st unix.Stat_t
		if err := unix.Fstat(p.fd, &st); err != nil {
			return e, &fs.PathError{Op: "stat", Path: p.Name, Err: err}
		}
		return itemOf(&st), nil
	}
	err = p.withParent(name, func(fd int, base string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		e = itemOf(&st)
		e.Name = base
		return nil
	})
	return e, err
}

// Stat describes an open file.
func Stat(f *os.File) (Item, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Item{}, err
	}
	return itemOf(&st), nil
}

// itemOf converts the result of stat.
func itemOf(st *unix.Stat_t) (e Item) {
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
	e.Print = Print{Ino: st.Ino, Ctime: st.Ctim.Nano(), Nlink: uint32(st.Nlink), Uid: st.Uid, Gid: st.Gid}
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

// Readlink returns the target of a link.
func (p *Handle) Readlink(name string) (s string, err error) {
	err = p.withParent(name, func(fd int, base string) error {
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

// Names lists the directory.
func (p *Handle) Names() ([]string, error) {
	fd, err := unix.Openat(p.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.Name, Err: err}
	}
	f := os.NewFile(uintptr(fd), p.Name)
	defer f.Close()
	return f.Readdirnames(-1)
}

// RenameNew renames slot in q to name, which must not exist.
func (p *Handle) RenameNew(q *Handle, slot, name string) error {
	return p.withParent(name, func(fd int, base string) error {
		err := unix.Renameat2(q.fd, slot, fd, base, unix.RENAME_NOREPLACE)
		// Some file systems cannot refuse an existing name in one step. Then the check and the rename are two.
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

// Exchange swaps slot in q and name in one step. It fails with
// errors.ErrUnsupported if the file system cannot do it.
func (p *Handle) Exchange(q *Handle, slot, name string) error {
	return p.withParent(name, func(fd int, base string) error {
		err := unix.Renameat2(q.fd, slot, fd, base, unix.RENAME_EXCHANGE)
		if err == unix.EINVAL || err == unix.ENOSYS {
			return errors.ErrUnsupported
		}
		return err
	})
}

// LinkTo makes slot in q a hard link to name.
func (p *Handle) LinkTo(q *Handle, name, slot string) error {
	return p.withParent(name, func(fd int, base string) error { return unix.Linkat(fd, base, q.fd, slot, 0) })
}

// RenameOver renames slot in q to name and replaces name.
func (p *Handle) RenameOver(q *Handle, slot, name string) error {
	return p.withParent(name, func(fd int, base string) error { return unix.Renameat(q.fd, slot, fd, base) })
}

// MoveTo renames name to slot in q.
func (p *Handle) MoveTo(q *Handle, name, slot string) error {
	return p.withParent(name, func(fd int, base string) error { return unix.Renameat(fd, base, q.fd, slot) })
}

// SetAttr sets mode and time of name. It never changes the target of a link.
func (p *Handle) SetAttr(name string, e Entry) error {
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
		return pathError(p, name, set(p.fd, "."))
	}
	return p.withParent(name, func(fd int, base string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if itemOf(&st).Kind != e.Kind { // fchmodat follows links
			return unix.ELOOP
		}
		return set(fd, base)
	})
}

// Chown sets the owner of name if this process runs as root.
func Chown(name string, fp Print) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(name, int(fp.Uid), int(fp.Gid))
}

// SyncDir syncs the names in a directory.
func (p *Handle) SyncDir(name string) error {
	fd, err := p.openBelow(name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return pathError(p, name, unix.Fsync(fd))
}

// SyncAll syncs the whole file system of p.
func (p *Handle) SyncAll() error { return pathError(p, ".", unix.Syncfs(p.fd)) }

// Datasync syncs the content of f.
func Datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// SameFS reports whether a name can be renamed from p to q.
func SameFS(p, q *Handle) bool {
	var a, b unix.Stat_t
	return unix.Fstat(p.fd, &a) == nil && unix.Fstat(q.fd, &b) == nil && a.Dev == b.Dev
}

// Copy copies f to g. It clones the content if the file system can do that, and
// else copies the bytes and keeps holes.
func Copy(g, f *os.File, size int64) error {
	if err := unix.IoctlFileClone(int(g.Fd()), int(f.Fd())); err == nil {
		return nil
	}
	// A file of the full size is one hole, so only data must be written.
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

// CheckNoWriters returns an error if a process has f open for writing.
func CheckNoWriters(f *os.File) error {
	const setLease = 1024
	// The kernel grants a read lease only while nobody has the file open for writing.
	_, err := unix.FcntlInt(f.Fd(), setLease, unix.F_RDLCK)
	if err == unix.EAGAIN {
		return Errorf(Busy, f.Name(), "a process still has it open for writing")
	}
	if err == nil {
		unix.FcntlInt(f.Fd(), setLease, unix.F_UNLCK)
	}
	return nil // no lease on this file system or for this user: the answer is unknown
}

// FineStamps reports whether time stamps of this file system change with every
// write. Then an unchanged Print proves unchanged content.
func FineStamps(dir string) bool {
	f, err := os.CreateTemp(dir, "stamp")
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var last int64
	// A coarse clock gives two of sixteen quick writes the same stamp.
	for i := range 16 {
		if _, err := f.WriteAt([]byte{byte(i)}, 0); err != nil {
			return false
		}
		e, err := Stat(f)
		if err != nil || e.Print.Ctime <= last {
			return false
		}
		last = e.Print.Ctime
	}
	return true
}

// HasStamps says that this system records change times that programs cannot set.
const HasStamps = true

// TryLock locks f and reports whether it succeeded. The system releases the lock
// when the last descriptor is closed, at the latest when the holder dies.
func TryLock(f *os.File) (bool, error) {
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

// IsOtherMount reports whether err comes from the root of another mount.
func IsOtherMount(err error) bool { return errors.Is(err, unix.EXDEV) }

// isNotDir reports whether a component of a path is no directory any more.
func isNotDir(err error) bool {
	return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR)
}

// Unlock releases the lock on f.
func Unlock(f *os.File) { unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// SyncAllIfPossible is SyncAll on systems that have it, and does nothing elsewhere.
func (p *Handle) SyncAllIfPossible() error {
	if err := p.SyncAll(); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// EscapeMountOption quotes a path for mount options.
func EscapeMountOption(p string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(p)
}

// MountBounded mounts a tmpfs at dir with room for bytes and files plus the quota.
func MountBounded(dir string, bytes int64, files int, opt Limit) error {
	size, inodes := int64(0), 0 // 0: no bound
	if opt.Bytes > 0 {
		size = (bytes+4095)&^4095 + opt.Bytes&^4095
	}
	if opt.Files > 0 {
		inodes = files + opt.Files
	}
	data := fmt.Sprintf("mode=0700,size=%d,nr_inodes=%d", size, inodes)
	if err := unix.Mount("kern", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, data); err != nil {
		return Errorf(Unsupported, dir, "a quota on this kind of view needs a file system of its own, which this host does not let us mount: %v; use a layer, or no quota", err)
	}
	return nil
}

// Unmount removes every mount below dir.
func Unmount(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var at []string
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 4 {
			if p := unescapeMount(f[4]); Inside(p, dir) {
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

// Sync syncs a file, or the names in a directory.
func Sync(name string) error {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	_, err = retry(func() (int, error) { return 0, unix.Fsync(fd) })
	if err != nil {
		return &fs.PathError{Op: "sync", Path: name, Err: err}
	}
	return nil
}
