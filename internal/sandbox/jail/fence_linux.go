package jail

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/kern-run/kern/internal/program/frame"
	"golang.org/x/sys/unix"
)

// fence takes everything from the calling thread that the program may not
// have, then reads back from the kernel that it is gone. The thread must be
// locked: all of this holds for one thread and what it starts.
func fence(o *frame.Order, doors []int, rules int) error {
	for _, fd := range doors {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	if err := inGroup(o.Group, o.Groups); err != nil {
		return err
	}
	// From here its cgroup is all of the tree the program can see.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	if err := renounce(o.Root); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if rules >= 0 && !o.Warm {
		if err := permit(rules, o.Landlock, writable...); err != nil {
			return err
		}
		if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); e != 0 {
			return fmt.Errorf("landlock: %w", e)
		}
	}
	prog := unix.SockFprog{Len: uint16(len(o.Filter) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.StringData(o.Filter)))}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return attest()
}

// inGroup reads where the kernel says this thread is: a limit set on a cgroup
// the program is not in would be none.
func inGroup(name string, groups int) error {
	if groups == 0 {
		return nil
	}
	b, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(strings.TrimSpace(line), "/"+name) {
			n++
		}
	}
	if n < groups {
		return fmt.Errorf("want to be in the cgroup %s in %d hierarchies, the kernel says %d", name, groups, n)
	}
	return nil
}

// renounce leaves the thread a user without any capability, now and later.
func renounce(root bool) error {
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			break // past the kernel's last; attest looks at what is left
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	if root {
		// Go's own calls would change every thread of init.
		for _, c := range []struct {
			what       string
			trap, a, b uintptr
		}{
			{"groups", unix.SYS_SETGROUPS, 0, 0},
			{"group", unix.SYS_SETRESGID, insideUID, insideUID},
			{"user", unix.SYS_SETRESUID, insideUID, insideUID},
		} {
			if _, _, e := unix.RawSyscall(c.trap, c.a, c.b, c.b); e != 0 {
				return fmt.Errorf("become %s %d: %w", c.what, insideUID, e)
			}
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// attest reads the fence back. A kernel that took our calls and did nothing
// ends here, before the program exists.
func attest() error {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	id := strconv.Itoa(insideUID)
	for field, want := range map[string]string{
		"Uid": id + "\t" + id + "\t" + id + "\t" + id, "Gid": id + "\t" + id + "\t" + id + "\t" + id,
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
	} {
		_, rest, _ := bytes.Cut(b, []byte("\n"+field+":\t"))
		got, _, _ := bytes.Cut(rest, []byte("\n"))
		if string(got) != want {
			return fmt.Errorf("fence: want %s %q, the kernel says %q", field, want, got)
		}
	}
	return nil
}

// Landlock rights by the ABI that brought them.
const (
	mayRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	mayNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// handled is every right the ABI can withhold.
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

// ruleset returns Landlock rules under which what is shown can be read.
func ruleset(abi int, shown []string) (int, error) {
	attr := handled(abi)
	// An older kernel takes only as much of the struct as it knows.
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
	// What there is may be listed; the mounts say what there is.
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

// permit adds that all below dirs can be read and written.
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

// landlockABI is what this kernel offers; 0 is nothing.
func landlockABI() int {
	v, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(v)
}

// threads counts the threads of this process.
func threads() int {
	e, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 16
	}
	return len(e)
}
