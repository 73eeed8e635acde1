package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The walls that a probe tests. A host may lack them.
const (
	WallNamespaces = "namespaces"
	WallSeccomp    = "seccomp"
	WallLandlock   = "landlock"
)

// A Breach describes a wall that did not hold when the probe tested it from inside.
type Breach struct{ Wall, What string }

// Probe is the role of a program that tests the walls and limits of its own box. It
// never returns.
func Probe() { os.Exit(probe(os.Args[1:])) }

func probe(args []string) int {
	err := fmt.Errorf("want a probe, got %q", args)
	switch {
	case len(args) == 1 && args[0] == "walls":
		err = json.NewEncoder(os.Stdout).Encode(breaches())
	case len(args) == 1 && args[0] == "spin":
		//lint:ignore SA5002 the probe looks whether this can be stopped
		for {
		}
	case len(args) == 1 && args[0] == "own":
		err = os.WriteFile(Workspace+"/mine", nil, 0o644)
	case len(args) == 2 && args[0] == "touch":
		err = touch(args[1])
	case len(args) == 2 && args[0] == "crowd":
		err = startMany(args[1])
	case len(args) == 2 && args[0] == "fill":
		err = fillUp(args[1] == "bytes")
	case len(args) == 1 && args[0] == "stay":
		os.Stdin.Read(make([]byte, 1))
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// touch allocates the given number of MiB and writes to every page.
func touch(mib string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	for range n {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		// Memory counts only once a page is written.
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	return nil
}

// startMany starts the given number of processes at the same time.
func startMany(n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	for range count {
		c := exec.Command("/proc/self/exe")
		c.Args = []string{RoleProbe, "stay"}
		if _, err := c.StdinPipe(); err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
	}
	return nil
}

func fillUp(bytes bool) error {
	if bytes {
		return os.WriteFile(Workspace+"/f", make([]byte, 2<<20), 0o644)
	}
	for i := range 40 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", Workspace, i), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// breaches tests every wall once and returns the walls that did not hold.
func breaches() []Breach {
	found := []Breach{}
	tries := []struct {
		wall, what string
		want       syscall.Errno
		try        func() error
	}{
		{WallSeccomp, "socket of AF_VSOCK", unix.EPERM, openSocket(unix.AF_VSOCK)},
		{WallSeccomp, "socket of AF_NETLINK", unix.EPERM, openSocket(unix.AF_NETLINK)},
		{WallSeccomp, "socket of AF_PACKET", unix.EPERM, openSocket(unix.AF_PACKET)},
		{WallSeccomp, "ptrace", unix.EPERM, call(unix.SYS_PTRACE, 0, 0)},
		{WallSeccomp, "keyctl", unix.EPERM, call(unix.SYS_KEYCTL, 0, 0)},
		{WallSeccomp, "bpf", unix.EPERM, call(unix.SYS_BPF, 0, 0)},
		{WallSeccomp, "io_uring_setup", unix.EPERM, call(unix.SYS_IO_URING_SETUP, 1, 0)},
		{WallSeccomp, "unshare", unix.EPERM, call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0)},
		{WallSeccomp, "mount", unix.EPERM, call(unix.SYS_MOUNT, 0, 0)},
		{WallSeccomp, "clone3", unix.ENOSYS, call(unix.SYS_CLONE3, 0, 0)},
		{WallNamespaces, "write to /etc", unix.EACCES, create("/etc/x")},
		{WallNamespaces, "write to /usr", unix.EACCES, create("/usr/x")},
		{WallLandlock, "write where no rule allows it", unix.EACCES, create("/unruled/x")},
	}
	for _, t := range tries {
		err := t.try()
		// A read-only mount answers EROFS before permissions are looked at. Both mean that the wall held.
		if errors.Is(err, t.want) || t.wall == WallNamespaces && errors.Is(err, unix.EROFS) {
			continue
		}
		found = append(found, Breach{t.wall, fmt.Sprintf("%s: want %v, got %v", t.what, t.want, err)})
	}
	if os.Getuid() != InsideUID {
		found = append(found, Breach{WallNamespaces, fmt.Sprintf("want to be user %d, am %d", InsideUID, os.Getuid())})
	}
	if e, err := os.ReadDir("/sys/class/net"); err == nil && len(e) > 1 {
		found = append(found, Breach{WallNamespaces, "more network than the loopback"})
	}
	return found
}

func openSocket(family int) func() error {
	return func() error {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func call(trap, a, b uintptr) func() error {
	return func() error {
		var zero [8]byte
		if _, _, e := unix.Syscall6(trap, a, b, uintptr(unsafe.Pointer(&zero)), 0, 0, 0); e != 0 {
			return e
		}
		return nil
	}
}

func create(path string) func() error {
	return func() error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			f.Close()
		}
		return err
	}
}
