package jail

import (
	"context"
	"errors"
	"fmt"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/confine"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/program/seccomp"
	"github.com/kern-run/kern/internal/program/userns"
	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

type limits = sandbox.Limits

// A Backend runs each Spec in a box of its own. Make it with [New] and close it.
type Backend struct {
	cfg    Config
	root   bool
	python string
	null   *os.File
	filter string
	abi    int            // of Landlock; 0: none
	driver *cgroup.Driver // nil without cgroups
	mu     sync.Mutex     // guards lacks, because a probe adds to it
	lacks  []sandbox.Weakness
	lender lender
	pool   pool

	clones chan func()     // jobs for cloner's thread
	ctx    context.Context // ends at Close
	cancel context.CancelCauseFunc
	work   sync.WaitGroup
}

// errClosed says that the Backend was closed.
var errClosed = errors.New("sandbox jail: closed")

// The weaknesses that a caller may accept by name in Spec.Allow. The walls that a jail
// always needs have no name here, so a host without one of them is refused.
const (
	weakMemory    = "memory"    // no cgroup: the system limits each process, init watches their sum
	weakCPU       = "cpu"       // no cgroup: the same as memory
	weakProcesses = "processes" // no cgroup: limited, but the reported cause may be failed
	weakLandlock  = "landlock"  // no Landlock
	weakOwner     = "owner"     // the program must run as the workspace's owner on the host
)

// New returns a Backend for this host. It removes the cgroups that killed backends
// left. The caller closes the Backend.
func New(cfg Config) (*Backend, error) {
	// A box starts this binary again. Without program.Main its own main would run a second time.
	if !program.Ready() {
		return nil, refuse(program.ErrNotReady.Error(), "")
	}
	if cfg.Max < 0 || cfg.Warm < 0 {
		return nil, fmt.Errorf("sandbox jail: want Max and Warm at least 0, got %d and %d", cfg.Max, cfg.Warm)
	}
	if cfg.Max == 0 {
		cfg.Max = 64
	}
	if cfg.Warm > cfg.Max {
		return nil, fmt.Errorf("sandbox jail: want Warm at most Max, got %d of %d", cfg.Warm, cfg.Max)
	}
	b := &Backend{cfg: cfg, root: os.Geteuid() == 0, clones: make(chan func())}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	// The directories were checked, so the caller must not change the list later.
	b.cfg.ReadOnly = slices.Clone(cfg.ReadOnly)
	for _, dir := range cfg.ReadOnly {
		if err := checkReadOnly(dir); err != nil {
			return nil, err
		}
	}
	var err error
	if b.filter, err = seccomp.Strict(); err != nil {
		return nil, refuse("no seccomp filter: "+err.Error(), "")
	}
	if b.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	b.python = findPython(cfg)
	b.checkHost()
	b.pool.open(cfg.Max)
	b.work.Go(b.cloner)
	b.work.Go(b.keepWarm)
	return b, nil
}

// checkHost finds the cgroups and the Landlock version of this host, and records the
// weaknesses that follow from them.
func (b *Backend) checkHost() {
	if b.abi = min(confine.LandlockABI(), 6); b.abi == 0 {
		b.lacks = append(b.lacks, sandbox.Weakness{Name: weakLandlock, Why: "this kernel has no Landlock", Fix: "boot with lsm=landlock,... on Linux 5.13 or later"})
	}
	d, err := cgroup.Find(b.cfg.Cgroup)
	if err == nil {
		b.driver = d
		err = d.Sweep()
	}
	if err == nil {
		return
	}
	// Cgroups that cannot be swept cannot be trusted to limit either, so they count as missing.
	b.driver = nil
	fix := "run as root, or where the cgroups are yours: under systemd-run --user --scope -p Delegate=yes, in a service with Delegate=yes and DelegateSubgroup=kern"
	for _, w := range []struct{ name, how string }{
		{weakMemory, "each process alone is limited, all together are watched and killed"},
		{weakCPU, "each process alone is limited, all together are watched and killed"},
		{weakProcesses, "the user's processes are limited, but a run ended by it may be told as failed"},
	} {
		b.lacks = append(b.lacks, sandbox.Weakness{Name: w.name, Why: "no cgroup can be made (" + err.Error() + "): " + w.how, Fix: fix})
	}
}

// cloner runs the jobs that start an init. It keeps one thread for them as long as the
// Backend lives, because init dies with the thread that cloned it.
func (b *Backend) cloner() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case job := <-b.clones:
			job()
		case <-b.ctx.Done():
			return
		}
	}
}

// Close ends every box and waits until they are gone.
func (b *Backend) Close() error {
	if !b.pool.close() {
		return nil
	}
	b.cancel(errClosed)
	b.pool.drain()
	b.work.Wait()
	b.lender.close()
	return b.null.Close()
}

func refuse(reason, fix string) *sandbox.Refusal {
	return &sandbox.Refusal{Backend: "jail", Reason: reason, Fix: fix}
}

// discard ends a box after its run and releases its slot. It runs beside the next run,
// because the kernel takes long to remove the namespaces of a box.
func (b *Backend) discard(x *box) {
	x.end()
	b.pool.release(x.slot)
}

// check returns a refusal if the Spec cannot run on this host.
func (b *Backend) check(s *sandbox.Spec) error {
	if err := s.Check(); err != nil {
		return refuse(err.Error(), "")
	}
	if s.Files != nil {
		return refuse("what it runs needs a directory of the host as the workspace, got Files", "set Dir")
	}
	if s.Code != "" && b.python == "" {
		return refuse("no python3 in what the box can see", "apt-get install python3, or set Config.Python and Config.ReadOnly")
	}
	// A missing wall refuses every Spec; another weakness only a Spec that does not
	// allow it.
	for _, w := range b.weaknesses() {
		if slices.Contains(walls, w.Name) {
			return refuse(fmt.Sprintf("this host does not hold the wall %q: %s", w.Name, w.Why), w.Fix)
		}
		if !slices.Contains(s.Allow, w.Name) {
			return refuse(fmt.Sprintf("this host cannot enforce %q: %s; Spec.Allow does not name it", w.Name, w.Why), w.Fix)
		}
	}
	if s.Dir == "" {
		return nil
	}
	// A link could lead to a system directory, so the check is on the real path.
	dir, err := filepath.EvalSymlinks(s.Dir)
	if err != nil {
		return refuse("workspace: "+err.Error(), "")
	}
	if systemOwned(dir) {
		return refuse(fmt.Sprintf("want a directory of files as the workspace, got %s", s.Dir), "")
	}
	if why := confine.Shared(dir); why != "" {
		return refuse(fmt.Sprintf("want a directory of its own as the workspace, and %s is %s", s.Dir, why), "use a directory of your own: mkdir -p ~/work")
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return refuse(fmt.Sprintf("want Dir to be a directory, got %s", s.Dir), "")
	}
	return nil
}

// systemOwned reports whether a directory belongs to the system. The host's programs
// in /usr/local and files in /dev/shm are those of its users.
func systemOwned(dir string) bool {
	within := func(p string) bool { return dir == p || strings.HasPrefix(dir, p+"/") }
	users := func(p string) bool { return strings.HasPrefix(dir, p+"/") }
	return dir == "/" || dir == "/run" || slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/etc", "/boot", "/usr"}, within) && !users("/dev/shm") && !users("/usr/local")
}

// checkReadOnly returns an error if the box cannot show a host directory. The box must
// not hide the directory, and the directory must not hide a part of the box.
func checkReadOnly(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return fmt.Errorf("sandbox jail: want Config.ReadOnly as clean absolute paths, got %q", dir)
	}
	for _, own := range []string{"/usr", "/etc", "/dev", "/proc", "/tmp", confine.Workspace, "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if dir == "/" || dir == own || strings.HasPrefix(dir, own+"/") {
			return fmt.Errorf("sandbox jail: want Config.ReadOnly outside of %s, got %q", own, dir)
		}
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return fmt.Errorf("sandbox jail: want Config.ReadOnly to be directories, got %q", dir)
	}
	return nil
}

// visible reports whether the box shows a path of the host.
func (c *Config) visible(path string) bool {
	for _, dir := range append([]string{"/usr"}, c.ReadOnly...) {
		if strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// findPython returns the first interpreter that a box can see and run, or "". If the
// Config names an interpreter, no other one counts.
func findPython(cfg Config) string {
	for _, p := range []string{cfg.Python, "/usr/local/bin/python3", "/usr/bin/python3"} {
		if p == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(p)
		if err == nil && cfg.visible(real) && unix.Access(real, unix.X_OK) == nil {
			return p
		}
		// A named interpreter that cannot run is an error. Another one could have other modules.
		if p == cfg.Python {
			return ""
		}
	}
	return ""
}

func (b *Backend) weaknesses() []sandbox.Weakness {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lacks)
}

// refuseNamespaces returns the refusal for a host that allows no namespaces, or no
// rights in them.
func refuseNamespaces(why string) error {
	return refuse("this host does not let this user build in user namespaces: "+why, userns.Remedy())
}

// Run runs s in a box of its own.
func (b *Backend) Run(ctx context.Context, s sandbox.Spec) (sandbox.Outcome, error) {
	refused := sandbox.Outcome{Cause: sandbox.Refused}
	if err := b.check(&s); err != nil {
		return refused, err
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Outcome{Cause: sandbox.Killed}, context.Cause(ctx)
	}
	if err := b.pool.enter(); err != nil {
		return refused, err
	}
	defer b.pool.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Close must end this run, although the caller's context does not.
	defer context.AfterFunc(b.ctx, func() { cancel(errClosed) })()
	r := &run{spec: &s, limits: s.Limits.WithDefaults()}
	var err error
	if r.box, err = b.takeBox(ctx, r); err != nil {
		// An error of a cancelled start is no refusal: the same Spec may run later.
		if ctx.Err() != nil {
			return sandbox.Outcome{Cause: sandbox.Killed}, context.Cause(ctx)
		}
		var start *sandbox.Refusal
		if errors.As(err, &start) {
			return refused, err
		}
		return refused, refuse(err.Error(), "")
	}
	out := r.wait(ctx)
	b.work.Go(func() { b.discard(r.box) })
	return out, nil
}
