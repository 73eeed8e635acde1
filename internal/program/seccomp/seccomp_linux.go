package seccomp

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unsafe"

	bpf "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	rawbpf "golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// withheld are calls that containers may make and a jail may not: they look into other
// processes, hide memory, or name files by other means than a path.
var withheld = []string{
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "process_mrelease",
	"name_to_handle_at", "open_by_handle_at", "memfd_secret", "fanotify_mark", "modify_ldt", "listmount", "statmount",
}

// families are the kinds of sockets that a jail may have. A network namespace confines
// INET and INET6. It does not confine VSOCK, and no other kind has been reviewed.
var families = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// A place says which argument of a call is the mode of the file that it makes or changes.
type place struct {
	mode  uint32
	flags uint32 // of an open: the mode counts only if the flags make a file; 0: it always counts
}

// moding are the calls that give a file its mode.
var moding = map[string]place{
	"chmod": {mode: 1}, "fchmod": {mode: 1}, "fchmodat": {mode: 2}, "fchmodat2": {mode: 2},
	"mkdir": {mode: 1}, "mkdirat": {mode: 2}, "mknod": {mode: 1}, "mknodat": {mode: 2}, "creat": {mode: 1},
	"open": {mode: 2, flags: 1}, "openat": {mode: 3, flags: 2},
}

// noPrivilegedFiles returns instructions that refuse the setuid and the setgid bit of
// a file. The files of a program can stay on the host, where these bits would let
// another user run them with the rights of their owner. Other instructions follow.
//
// The library's conditions cannot be used for this: after one that does not hold, it
// compares the next call with an argument, and no longer with the number of the call.
func noPrivilegedFiles(info *arch.Info) (ins []rawbpf.Instruction) {
	const nr, machine, arguments = 0, 4, 16 // where the kernel shows them
	argument := func(n uint32) rawbpf.Instruction { return rawbpf.LoadAbsolute{Off: arguments + 8*n, Size: 4} }
	for _, name := range slices.Sorted(maps.Keys(moding)) {
		number, known := info.SyscallNames[name]
		if !known {
			continue
		}
		at := moding[name]
		checks := []rawbpf.Instruction{
			argument(at.mode),
			rawbpf.JumpIf{Cond: rawbpf.JumpBitsNotSet, Val: unix.S_ISUID | unix.S_ISGID, SkipTrue: 1},
			rawbpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		}
		if at.flags != 0 {
			makes := rawbpf.JumpIf{Cond: rawbpf.JumpBitsNotSet, Val: unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY, SkipTrue: uint8(len(checks))}
			checks = append([]rawbpf.Instruction{argument(at.flags), makes}, checks...)
		}
		ins = append(ins, rawbpf.LoadAbsolute{Off: nr, Size: 4}, rawbpf.JumpIf{Cond: rawbpf.JumpNotEqual, Val: uint32(number), SkipTrue: uint8(len(checks))})
		ins = append(ins, checks...)
	}
	// The numbers mean these calls only on this kind of machine.
	return append([]rawbpf.Instruction{rawbpf.LoadAbsolute{Off: machine, Size: 4},
		rawbpf.JumpIf{Cond: rawbpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1}, rawbpf.Jump{Skip: uint32(len(ins))}}, ins...)
}

// unread are calls with arguments behind a pointer, which a filter cannot read: the
// flags of clone3, the mode of openat2. ENOSYS makes libc use clone and openat.
var unread = []string{"clone3", "openat2"}

// Strict returns the filter for code in a sandbox, as the kernel takes it. It is
// an allow-list: the calls that containers may make, without what is withheld.
// Every other call fails with EPERM.
var Strict = sync.OnceValues(func() (string, error) { return program(nil) })

// Lenient is Strict for programs that were not written for a jail: they may also
// list the network interfaces, as many runtimes do when they start.
var Lenient = sync.OnceValues(func() (string, error) {
	return program([]bpf.NameWithConditions{{Name: "socket", Conditions: bpf.ArgumentConditions{
		{Argument: 0, Operation: bpf.Equal, Value: unix.AF_NETLINK}, {Argument: 2, Operation: bpf.Equal, Value: unix.NETLINK_ROUTE}}}})
})

func program(more []bpf.NameWithConditions) (string, error) {
	profile, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}})
	if err != nil {
		return "", err
	}
	info, err := arch.GetInfo("")
	if err != nil {
		return "", err
	}
	policy := bpf.Policy{DefaultAction: bpf.ActionErrno}
	var plain []string
	conditional := slices.Clone(more)
	for _, rule := range profile.Syscalls {
		if rule.Action != specs.ActAllow || slices.Equal(rule.Names, []string{"socket"}) {
			continue
		}
		conds, err := conditions(rule.Args)
		if err != nil {
			return "", err
		}
		for _, name := range rule.Names {
			_, known := info.SyscallNames[name]
			switch {
			case !known || slices.Contains(withheld, name) || slices.Contains(unread, name):
			case len(conds) > 0:
				conditional = append(conditional, bpf.NameWithConditions{Name: name, Conditions: conds})
			case !slices.Contains(plain, name):
				plain = append(plain, name)
			}
		}
	}
	for _, f := range families {
		conditional = append(conditional, bpf.NameWithConditions{Name: "socket", Conditions: bpf.ArgumentConditions{{Argument: 0, Operation: bpf.Equal, Value: f}}})
	}
	policy.Syscalls = []bpf.SyscallGroup{
		{Action: bpf.ActionErrno | bpf.Action(unix.ENOSYS), Names: unread},
		{Action: bpf.ActionAllow, Names: plain},
		{Action: bpf.ActionAllow, NamesWithCondtions: conditional},
	}
	rules, err := policy.Assemble()
	if err != nil {
		return "", err
	}
	raw, err := rawbpf.Assemble(append(noPrivilegedFiles(info), rules...))
	return encode(raw), err
}

func conditions(args []specs.LinuxSeccompArg) (cs bpf.ArgumentConditions, err error) {
	for _, a := range args {
		c := bpf.Condition{Argument: uint32(a.Index), Value: a.Value}
		switch {
		case a.Op == specs.OpEqualTo:
			c.Operation = bpf.Equal
		case a.Op == specs.OpMaskedEqual && a.ValueTwo == 0:
			c.Operation = bpf.BitsNotSet
		default:
			return nil, fmt.Errorf("seccomp profile: want a comparison this package knows, got %s", a.Op)
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// NoTyping returns a filter that refuses to put words into the input of a
// terminal: the shell would read them after the program ends. The filter behind it
// checks that a call is for this kind of machine.
func NoTyping() (string, error) {
	const nr, request = 0, 24 // where the kernel shows the call, and the low half of its second argument
	raw, err := rawbpf.Assemble([]rawbpf.Instruction{
		rawbpf.LoadAbsolute{Off: nr, Size: 4},
		rawbpf.JumpIf{Cond: rawbpf.JumpNotEqual, Val: unix.SYS_IOCTL, SkipTrue: 3},
		rawbpf.LoadAbsolute{Off: request, Size: 4},
		rawbpf.JumpIf{Cond: rawbpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		rawbpf.JumpIf{Cond: rawbpf.JumpEqual, Val: unix.TIOCLINUX, SkipTrue: 1},
		rawbpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		rawbpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	})
	return encode(raw), err
}

// encode returns a filter in the form that the kernel accepts.
func encode(raw []rawbpf.RawInstruction) string {
	var b []byte
	for _, r := range raw {
		b = binary.NativeEndian.AppendUint16(b, r.Op)
		b = append(b, r.Jt, r.Jf)
		b = binary.NativeEndian.AppendUint32(b, r.K)
	}
	return string(b)
}

// Install puts a filter on the calling thread and everything it starts.
func Install(filter string) error {
	prog := unix.SockFprog{Len: uint16(len(filter) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.StringData(filter)))}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}
