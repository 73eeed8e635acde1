package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/kern-run/kern/internal/program/confine"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Names of walls and weaknesses that only Probe finds. A jail always needs the two
// walls, so no caller can accept their absence.
const (
	wallNamespaces = "namespaces"
	wallSeccomp    = "seccomp"
	weakFiles      = "files"
	weakIdmap      = "idmap"
)

var walls = []string{wallNamespaces, wallSeccomp}

// Probe tests the limits and walls of a jail on this host. In boxes, this binary tries
// to break each of them. Run then refuses a Spec that does not allow what Probe found.
func (b *Backend) Probe(ctx context.Context) ([]sandbox.Weakness, error) {
	if err := b.pool.enter(); err != nil {
		return nil, err
	}
	defer b.pool.leave()
	var accept []string
	// Known weaknesses are accepted, so that the probe of another limit can run.
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
			break // the other tests need a box that works
		}
	}
	return b.weaknesses(), nil
}

// inBox runs this binary as a probe in a box.
func (b *Backend) inBox(ctx context.Context, s sandbox.Spec, args ...string) (sandbox.Outcome, error) {
	slot, err := b.pool.slot(ctx)
	if err != nil {
		return sandbox.Outcome{}, err
	}
	// Run would refuse the weaknesses that this looks for, so the box is started directly.
	s.Argv = append([]string{confine.RoleProbe}, args...)
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
	defer b.discard(r.box)
	return r.wait(ctx), nil
}

func (b *Backend) tryWalls(ctx context.Context, accept []string) ([]sandbox.Weakness, error) {
	out, err := b.inBox(ctx, sandbox.Spec{Allow: accept, Limits: limits{Memory: ample}}, "walls")
	if ctx.Err() != nil {
		return nil, err
	}
	// A box that does not start means that the namespaces cannot be built.
	if err != nil {
		w := sandbox.Weakness{Name: wallNamespaces, Why: err.Error()}
		if r := new(sandbox.Refusal); errors.As(err, &r) {
			w.Why, w.Fix = r.Reason, r.Fix
		}
		return []sandbox.Weakness{w}, nil
	}
	var found []confine.Breach
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

// ample is more memory than a probe of another limit needs, however this binary was
// built.
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
		// The wall time would end this probe as well, so the CPU time must have ended it first.
		case t.name == weakCPU && out.Usage.CPU < 10*t.limits.CPU && out.Usage.Wall < t.limits.Wall && out.Cause == t.want:
		case t.name != weakCPU && out.Cause == t.want:
		default:
			all = append(all, sandbox.Weakness{Name: t.name, Why: fmt.Sprintf("tried in a box: %s ended %q, exit %d, cpu %v", strings.Join(t.args, " "), out.Cause, out.Exit, out.Usage.CPU), Fix: t.fix})
			accept = append(accept, t.name)
		}
	}
	return all, nil
}

// tryWorkspace mounts a temporary directory as the workspace of a box. It then checks
// the owner of a file that the probe made there.
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
