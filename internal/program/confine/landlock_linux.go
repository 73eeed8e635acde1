package confine

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock rights of the first ABI.
const (
	mayRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	mayNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// handled returns every right that the ABI can withhold.
func handled(abi int) unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{Handled_access_fs: mayRead | mayWrite | mayNever}
	if abi >= 2 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		a.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return a
}

// ruleset returns Landlock rules that allow reading the shown paths and the paths of
// every box. Other rights come from [permit].
func ruleset(abi int, shown []string) (int, error) {
	attr := handled(abi)
	// An older kernel accepts only the part of the struct that it knows.
	size := uintptr(8)
	if abi >= 4 {
		size = 16
	}
	if abi >= 6 {
		size = 24
	}
	fd, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return -1, e
	}
	unix.CloseOnExec(int(fd))
	// Listing is allowed everywhere, because the mounts already decide what is visible.
	if err := allow(int(fd), "/", unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
		return -1, err
	}
	for _, dir := range append([]string{"/usr", "/etc", "/proc"}, shown...) {
		if err := allow(int(fd), dir, mayRead); err != nil {
			return -1, err
		}
	}
	const onDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	for _, d := range devices {
		if err := allow(int(fd), "/dev/"+d, onDevice&attr.Handled_access_fs); err != nil {
			return -1, err
		}
	}
	return int(fd), nil
}

// permit adds rules that allow reading and writing below dirs.
func permit(rules, abi int, dirs ...string) error {
	attr := handled(abi)
	for _, dir := range dirs {
		if err := allow(rules, dir, attr.Handled_access_fs&^mayNever&^unix.LANDLOCK_ACCESS_FS_IOCTL_DEV); err != nil {
			return err
		}
	}
	return nil
}

func allow(rules int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "landlock rule", Path: path, Err: err}
	}
	defer unix.Close(fd)
	// The kernel's struct is packed: 8 bytes of rights, 4 of descriptor.
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if e != 0 {
		return &os.PathError{Op: "landlock rule", Path: path, Err: e}
	}
	return nil
}

// LandlockABI returns the Landlock version of this kernel; 0 means no Landlock.
func LandlockABI() int {
	v, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(v)
}
