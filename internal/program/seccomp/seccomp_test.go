//go:build linux

package seccomp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	rawbpf "golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A machine answers system calls as a filter does.
type machine struct {
	t    *testing.T
	vm   *rawbpf.VM
	info *arch.Info
}

func newMachine(t *testing.T, filter func() (string, error)) *machine {
	t.Helper()
	f, err := filter()
	if err != nil {
		t.Fatal(err)
	}
	var ins []rawbpf.Instruction
	for ; f != ""; f = f[8:] {
		b := []byte(f)
		ins = append(ins, rawbpf.RawInstruction{Op: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])}.Disassemble())
	}
	vm, err := rawbpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t, vm, info}
}

// answer returns what the filter does with a call. The interpreter reads words in
// network order, and the kernel in its own, so each word is written in that order.
func (m *machine) answer(machine uint32, nr int, args ...uint64) string {
	m.t.Helper()
	data := binary.BigEndian.AppendUint32(nil, uint32(nr))
	data = binary.BigEndian.AppendUint32(data, machine)
	data = append(data, make([]byte, 8)...)
	for i := range 6 {
		var a uint64
		if i < len(args) {
			a = args[i]
		}
		half := binary.NativeEndian.AppendUint64(nil, a)
		for ; len(half) > 0; half = half[4:] {
			data = binary.BigEndian.AppendUint32(data, binary.NativeEndian.Uint32(half))
		}
	}
	n, err := m.vm.Run(data)
	if err != nil {
		m.t.Fatal(err)
	}
	switch {
	case uint32(n) == unix.SECCOMP_RET_ALLOW:
		return "allow"
	case uint32(n)&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO && n&0xffff == 0:
		return unix.EPERM.Error() // the library's default
	case uint32(n)&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO:
		return unix.Errno(n & 0xffff).Error()
	}
	return fmt.Sprintf("%#x", uint32(n))
}

// Mutants that were made by hand and die here: what no rule names is allowed; each call
// of moding left out, or its mode sought in another argument.

func TestFilterIsAnAllowList(t *testing.T) {
	m := newMachine(t, Strict)
	for nr := range 600 {
		name, known := m.info.SyscallNumbers[nr]
		if got := m.answer(uint32(m.info.ID), nr); !known && got != unix.EPERM.Error() {
			t.Errorf("the call %d, %s: %s", nr, name, got)
		}
	}
	for _, name := range []string{"io_uring_setup", "io_uring_enter", "io_uring_register", "ptrace", "mount", "setns", "unshare", "bpf"} {
		if got := m.answer(uint32(m.info.ID), m.info.SyscallNames[name]); got != unix.EPERM.Error() {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestFilterModes tries every mode with every call that sets one. The setuid and the
// setgid bit are refused, and no other, and not in an argument without a meaning.
func TestFilterModes(t *testing.T) {
	const refused, creates = "operation not permitted", unix.O_CREAT | unix.O_WRONLY
	calls := map[string][]uint64{ // the arguments before the mode
		"chmod": {1}, "fchmod": {1}, "fchmodat": {1, 2}, "fchmodat2": {1, 2}, "mkdir": {1}, "mkdirat": {1, 2},
		"mknod": {1}, "mknodat": {1, 2}, "creat": {1}, "open": {1, creates}, "openat": {1, 2, creates},
	}
	for which, filter := range map[string]func() (string, error){"strict": Strict, "lenient": Lenient} {
		m := newMachine(t, filter)
		id := uint32(m.info.ID)
		for name, before := range calls {
			nr, known := m.info.SyscallNames[name]
			if !known {
				continue
			}
			for mode := range uint64(0o200000) {
				want := "allow"
				if mode&0o6000 != 0 {
					want = refused
				}
				if got := m.answer(id, nr, append(before, mode, 0o7777)...); got != want {
					t.Fatalf("%s: %s with mode %#o: %s, want %s", which, name, mode, got, want)
				}
			}
		}
		for name, args := range map[string][]uint64{"open": {1}, "openat": {1, 2}} {
			nr, known := m.info.SyscallNames[name]
			if !known {
				continue
			}
			// Without a flag that makes a file, the mode is any value that a register holds.
			if got := m.answer(id, nr, append(args, unix.O_RDWR|unix.O_DIRECTORY, 0o6777)...); got != "allow" {
				t.Errorf("%s: %s of an existing file: %s", which, name, got)
			}
			if got := m.answer(id, nr, append(args, unix.O_RDWR|unix.O_TMPFILE, 0o4777)...); got != refused {
				t.Errorf("%s: %s of a file without a name: %s", which, name, got)
			}
		}
		for _, name := range []string{"openat2", "clone3"} {
			if got := m.answer(id, m.info.SyscallNames[name], 1, 2, 3, 4); got != unix.ENOSYS.Error() {
				t.Errorf("%s: %s: %s", which, name, got)
			}
		}
		// Other numbers of the same calls: those of x32, and those of another machine.
		if m.info.ID == arch.X86_64.ID {
			if got := m.answer(id, 0x40000000+90, 1, 0o4777); got != unix.ENOSYS.Error() {
				t.Errorf("%s: chmod of x32: %s", which, got)
			}
		}
		if got := m.answer(id+1, 15, 1, 0o755); got != refused {
			t.Errorf("%s: a call of another machine: %s", which, got)
		}
	}
}
