package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// probeStage is the name under which this program tries the walls, in a box.
const probeStage = "/probe/program"

// Walls without which there is no jail; no caller can accept to lack one.
const (
	wallNamespaces = "namespaces"
	wallSeccomp    = "seccomp"
	weakFiles      = "files"
	weakIdmap      = "idmap"
)

var walls = []string{wallNamespaces, wallSeccomp}

// Probe tries on this host what a jail promises, by building boxes in which
// this program tries to get past each limit and wall. What it finds is also
// held against later runs.
func (b *Backend) Probe(ctx context.Context) ([]sandbox.Weakness, error) {
	if err := b.pool.enter(); err != nil {
		return nil, err
	}
	defer b.pool.leave()
	var accept []string
	for _, w := range b.weaknesses() {
		accept = append(accept, w.Name)
	}
	for _, try := range []func(context.Context, []string) ([]sandbox.Weakness, error){b.tryWalls, b.tryLimits, b.tryWorkspace} {
		found, err := try(ctx, accept)
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		for _, w := range found {
			if !slices.ContainsFunc(b.lacks, func(o sandbox.Weakness) bool { return o.Name == w.Name }) {
				b.lacks = append(b.lacks, w)
			}
		}
		b.mu.Unlock()
		if slices.ContainsFunc(found, func(w sandbox.Weakness) bool { return w.Name == wallNamespaces }) {
			break // without a box there is nothing to try in one
		}
	}
	return b.weaknesses(), nil
}

// inBox runs this program as a probe in a box.
func (b *Backend) inBox(ctx context.Context, s sandbox.Spec, args ...string) (sandbox.Outcome, error) {
	slot, err := b.pool.slot(ctx)
	if err != nil {
		return sandbox.Outcome{}, err
	}
	s.Argv = append([]string{probeStage}, args...)
	r := &run{spec: &s, limits: s.Limits.WithDefaults(), began: time.Now()}
	o := b.order(&s, r.limits)
	o.Probe = true
	lent, owner, err := b.workspace(&s, slot)
	if err == nil {
		o.Lent = lent >= 0
		r.box, err = b.start(slot, o, r.limits, owner, lent)
	}
	if err != nil {
		b.pool.release(slot)
		return sandbox.Outcome{}, err
	}
	defer b.clear(r.box)
	return r.wait(ctx), nil
}

// A breach is a wall that did not hold, as the probe saw it from inside.
type breach struct{ Wall, What string }

func (b *Backend) tryWalls(ctx context.Context, accept []string) ([]sandbox.Weakness, error) {
	out, err := b.inBox(ctx, sandbox.Spec{Allow: accept, Limits: limits{Memory: ample}}, "walls")
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		w := sandbox.Weakness{Name: wallNamespaces, Why: err.Error()}
		if r := new(sandbox.Refusal); errors.As(err, &r) {
			w.Why, w.Fix = r.Reason, r.Fix
		}
		return []sandbox.Weakness{w}, nil
	}
	var found []breach
	if err := json.Unmarshal(out.Stdout, &found); err != nil || out.Cause != sandbox.OK {
		return nil, fmt.Errorf("sandbox jail: the probe ended %s, exit %d: %s%s", out.Cause, out.Exit, out.Stdout, out.Stderr)
	}
	fixes := map[string]string{
		wallSeccomp:    "boot a kernel with CONFIG_SECCOMP_FILTER",
		wallNamespaces: "boot a kernel with user, mount, pid, network and ipc namespaces",
		weakLandlock:   "boot with lsm=landlock,... on Linux 5.13 or later",
	}
	var all []sandbox.Weakness
	for _, f := range found {
		if !slices.Contains(accept, f.Wall) {
			all = append(all, sandbox.Weakness{Name: f.Wall, Why: "tried in a box: " + f.What, Fix: fixes[f.Wall]})
			accept = append(accept, f.Wall)
		}
	}
	return all, nil
}

// ample is more memory than a probe of something else needs, in whatever way
// this program was built.
const ample = 1 << 40

// A limit, a small value for it, and a program that goes past it.
var limitTries = []struct {
	name   string
	limits limits
	args   []string
	want   sandbox.Cause
	fix    string
}{
	{weakMemory, limits{Memory: 64 << 20}, []string{"touch", "256"}, sandbox.Memory, "mount the memory cgroup controller"},
	{weakCPU, limits{Memory: ample, CPU: 50 * time.Millisecond, Wall: 3 * time.Second}, []string{"spin"}, sandbox.Timeout, "mount the cpuacct cgroup controller"},
	{weakProcesses, limits{Memory: ample, Processes: 16}, []string{"crowd", "32"}, sandbox.Processes, "mount the pids cgroup controller"},
	{weakFiles, limits{Memory: ample, FileBytes: 1 << 20}, []string{"fill", "bytes"}, sandbox.Files, "boot a kernel with CONFIG_TMPFS"},
	{weakFiles, limits{Memory: ample, Files: 20}, []string{"fill", "files"}, sandbox.Files, "boot a kernel with CONFIG_TMPFS"},
}

func (b *Backend) tryLimits(ctx context.Context, accept []string) (all []sandbox.Weakness, err error) {
	for _, t := range limitTries {
		if slices.Contains(accept, t.name) {
			continue
		}
		out, err := b.inBox(ctx, sandbox.Spec{Limits: t.limits, Allow: accept}, t.args...)
		switch {
		case err != nil:
			return all, err
		case t.name == weakCPU && out.Usage.CPU < 10*t.limits.CPU && out.Usage.Wall < t.limits.Wall && out.Cause == t.want:
		case t.name != weakCPU && out.Cause == t.want:
		default:
			all = append(all, sandbox.Weakness{Name: t.name, Why: fmt.Sprintf("tried in a box: %s ended %q, exit %d, cpu %v", strings.Join(t.args, " "), out.Cause, out.Exit, out.Usage.CPU), Fix: t.fix})
			accept = append(accept, t.name)
		}
	}
	return all, nil
}

// tryWorkspace lends a directory of the temporary file system, and looks whose
// a file made in there is.
func (b *Backend) tryWorkspace(ctx context.Context, accept []string) ([]sandbox.Weakness, error) {
	dir, err := os.MkdirTemp("", "kern-jail-probe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out, err := b.inBox(ctx, sandbox.Spec{Dir: dir, Allow: accept, Limits: limits{Memory: ample}}, "own")
	w := sandbox.Weakness{Name: weakIdmap, Fix: "use workspaces on ext4, xfs, btrfs or tmpfs of Linux 6.3 or later"}
	if r := new(sandbox.Refusal); errors.As(err, &r) {
		w.Why = "tried in " + filepath.Dir(dir) + ": " + r.Reason
		return []sandbox.Weakness{w}, nil
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Stat(filepath.Join(dir, "mine"), &st)
	if err != nil || int(st.Uid) != os.Geteuid() || out.Cause != sandbox.OK {
		w.Why = fmt.Sprintf("tried in a box: a file made there belongs to user %d (%v); ended %q: %s", st.Uid, err, out.Cause, out.Stderr)
		return []sandbox.Weakness{w}, nil
	}
	return nil, nil
}

// probeMain is the probe, in the box.
func probeMain(args []string) int {
	err := fmt.Errorf("want a probe, got %q", args)
	switch {
	case len(args) == 1 && args[0] == "walls":
		err = json.NewEncoder(os.Stdout).Encode(breaches())
	case len(args) == 1 && args[0] == "spin":
		//lint:ignore SA5002 the probe looks whether this can be stopped
		for {
		}
	case len(args) == 1 && args[0] == "own":
		err = os.WriteFile(workspace+"/mine", nil, 0o644)
	case len(args) == 2 && args[0] == "touch":
		err = touch(args[1])
	case len(args) == 2 && args[0] == "crowd":
		err = crowd(args[1])
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

// touch uses so many MiB of memory.
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
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	return nil
}

// crowd starts so many processes at one time.
func crowd(n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	for range count {
		c := exec.Command("/proc/self/exe")
		c.Args = []string{probeStage, "stay"}
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
		return os.WriteFile(workspace+"/f", make([]byte, 2<<20), 0o644)
	}
	for i := range 40 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", workspace, i), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// breaches tries every wall once.
func breaches() []breach {
	found := []breach{}
	tries := []struct {
		wall, what string
		want       syscall.Errno
		try        func() error
	}{
		{wallSeccomp, "socket of AF_VSOCK", unix.EPERM, openSocket(unix.AF_VSOCK)},
		{wallSeccomp, "socket of AF_NETLINK", unix.EPERM, openSocket(unix.AF_NETLINK)},
		{wallSeccomp, "socket of AF_PACKET", unix.EPERM, openSocket(unix.AF_PACKET)},
		{wallSeccomp, "ptrace", unix.EPERM, call(unix.SYS_PTRACE, 0, 0)},
		{wallSeccomp, "keyctl", unix.EPERM, call(unix.SYS_KEYCTL, 0, 0)},
		{wallSeccomp, "bpf", unix.EPERM, call(unix.SYS_BPF, 0, 0)},
		{wallSeccomp, "io_uring_setup", unix.EPERM, call(unix.SYS_IO_URING_SETUP, 1, 0)},
		{wallSeccomp, "unshare", unix.EPERM, call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0)},
		{wallSeccomp, "mount", unix.EPERM, call(unix.SYS_MOUNT, 0, 0)},
		{wallSeccomp, "clone3", unix.ENOSYS, call(unix.SYS_CLONE3, 0, 0)},
		{wallNamespaces, "write to /etc", unix.EACCES, create("/etc/x")},
		{wallNamespaces, "write to /usr", unix.EACCES, create("/usr/x")},
		{weakLandlock, "write where no rule allows it", unix.EACCES, create("/unruled/x")},
	}
	for _, t := range tries {
		err := t.try()
		if errors.Is(err, t.want) || t.wall == wallNamespaces && errors.Is(err, unix.EROFS) {
			continue
		}
		found = append(found, breach{t.wall, fmt.Sprintf("%s: want %v, got %v", t.what, t.want, err)})
	}
	if os.Getuid() != insideUID {
		found = append(found, breach{wallNamespaces, fmt.Sprintf("want to be user %d, am %d", insideUID, os.Getuid())})
	}
	if e, err := os.ReadDir("/sys/class/net"); err == nil && len(e) > 1 {
		found = append(found, breach{wallNamespaces, "more network than the loopback"})
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
