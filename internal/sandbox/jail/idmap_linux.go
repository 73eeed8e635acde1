package jail

import (
	"errors"
	"fmt"
	"github.com/kern-run/kern/internal/program/confine"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// An identity is one user and group on the host.
type identity struct{ uid, gid uint32 }

// A lender makes mounts of host directories that show another user as the owner. A
// user namespace maps the two users; the lender keeps it for the next run.
type lender struct {
	mu         sync.Mutex
	namespaces map[[2]identity]*os.File
}

// errNoIdmap says that the file system cannot map owners.
var errNoIdmap = errors.New("its file system does not take idmapped mounts")

// lend returns a mount of dir and the owner of dir. On the mount, the owner's files
// belong to user; on the host, files that user makes belong to the owner.
func (l *lender) lend(dir string, user identity) (int, identity, error) {
	// A cloned mount gets its own attributes; the directory of the host stays as it is.
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, identity{}, &os.PathError{Op: "workspace", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, identity{}, errors.Join(err, unix.Close(fd))
	}
	// The owner is read from the descriptor, because the path may lead elsewhere by now.
	owner := identity{st.Uid, st.Gid}
	names, err := l.namespace(owner, user)
	if err != nil {
		return -1, owner, errors.Join(err, unix.Close(fd))
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(names.Fd()),
	})
	if err != nil {
		unix.Close(fd)
		return -1, owner, fmt.Errorf("%w (%v)", errNoIdmap, err)
	}
	return fd, owner, nil
}

// namespace returns a user namespace that maps owner to user.
func (l *lender) namespace(owner, user identity) (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := [2]identity{owner, user}
	if f := l.namespaces[key]; f != nil {
		return f, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	// Only a process can make a user namespace; an open file keeps it afterwards.
	p, err := os.StartProcess("/proc/self/exe", []string{confine.RoleUserns}, &os.ProcAttr{
		Env:   initEnv,
		Files: []*os.File{r, nil, nil},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: int(owner.uid), HostID: int(user.uid), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: int(owner.gid), HostID: int(user.gid), Size: 1}},
		},
	})
	r.Close()
	if err != nil {
		return nil, err
	}
	// The child is not reaped yet, so its pid cannot belong to another process.
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	p.Kill()
	p.Wait()
	if err != nil {
		return nil, err
	}
	if l.namespaces == nil {
		l.namespaces = make(map[[2]identity]*os.File)
	}
	l.namespaces[key] = f
	return f, nil
}

func (l *lender) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.namespaces {
		f.Close()
	}
	l.namespaces = nil
}
