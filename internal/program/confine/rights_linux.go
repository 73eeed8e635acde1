package confine

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/reap"
	"github.com/kern-run/kern/internal/program/seccomp"
)

// renounce takes from the calling thread what the program may not have, and
// looks whether it is gone.
func renounce() error {
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			break // past the kernel's last; what is left is looked at below
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none, left [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if err := reap.Confine(reap.ScopedSince); err != nil { // sets no_new_privs
		return err
	}
	program, err := seccomp.Guest()
	if err != nil {
		return err
	}
	if err := install(typing()); err != nil {
		return err
	}
	if err := install(instructions(program)); err != nil {
		return err
	}
	if err := unix.Capget(&head, &left[0]); err != nil || left != none {
		return fmt.Errorf("want no capability, the kernel says %v: %w", left, err)
	}
	if bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil || bound != 0 {
		return fmt.Errorf("want no capability to come back, the kernel says %d: %w", bound, err)
	}
	return nil
}

// instructions are those of a program in the kernel's form.
func instructions(program string) []unix.SockFilter {
	return unsafe.Slice((*unix.SockFilter)(unsafe.Pointer(unsafe.StringData(program))), len(program)/8)
}

func install(p []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}

// typing is a filter that refuses to put words into a terminal's input: the
// shell would read them when the program is gone. That a call is of this
// machine's kind is for the filter behind it.
func typing() []unix.SockFilter {
	const nr, request = 0, 24 // where the kernel shows the call, and the low half of its second argument
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: nr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_IOCTL, SkipTrue: 3},
		bpf.LoadAbsolute{Off: request, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCLINUX, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	})
	if err != nil {
		panic(err) // it is a constant
	}
	out := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		out[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return out
}
