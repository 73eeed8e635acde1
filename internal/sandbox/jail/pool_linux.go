package jail

import (
	"context"
	"errors"
	"github.com/kern-run/kern/internal/program/confine"
	"slices"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// A pool counts boxes and keeps the warm ones. Every living box has one of
// Config.Max slots, and the slot decides its user on the host.
type pool struct {
	slots chan int
	want  chan struct{} // wakes keepWarm: the pool may need another warm box

	mu      sync.Mutex
	warm    []*box
	waiting int // runs that wait for a slot
	closed  bool
	runs    sync.WaitGroup
}

// open fills the pool with n free slots and asks for the first warm boxes.
func (p *pool) open(n int) {
	p.slots, p.want = make(chan int, n), make(chan struct{}, 1)
	for i := range n {
		p.slots <- i
	}
	p.refill()
}

// refill wakes keepWarm. It never waits.
func (p *pool) refill() {
	select {
	case p.want <- struct{}{}:
	default:
	}
}

// enter counts a run, unless the pool is closed.
func (p *pool) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	p.runs.Add(1)
	return nil
}

// leave ends a run that enter counted.
func (p *pool) leave() { p.runs.Done() }

// close refuses further runs. It reports whether the pool was open.
func (p *pool) close() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.closed
	p.closed = true
	return !was
}

// drain waits for the runs to end, then ends every warm box.
func (p *pool) drain() {
	p.runs.Wait()
	for x := p.take(); x != nil; x = p.take() {
		x.end()
		p.release(x.slot)
	}
}

// release makes a slot free again.
func (p *pool) release(slot int) {
	p.slots <- slot
	p.refill()
}

// take removes a warm box from the pool and returns it; nil if there is none.
func (p *pool) take() *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first()
}

// first is take for a caller that holds p.mu.
func (p *pool) first() *box {
	if len(p.warm) == 0 {
		return nil
	}
	x := p.warm[0]
	p.warm = p.warm[1:]
	return x
}

// put adds a warm box to the pool and reports true. It reports false if a run waits
// for a slot or the pool is closed; the caller then ends the box.
func (p *pool) put(x *box) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.waiting > 0 {
		return false
	}
	p.warm = append(p.warm, x)
	return true
}

// slot returns a free slot, and waits for one until ctx ends. If all slots are taken,
// it ends a warm box and returns the slot of that box.
func (p *pool) slot(ctx context.Context) (int, error) {
	select {
	case s := <-p.slots:
		return s, nil
	default:
	}
	p.mu.Lock()
	// A run that waits is more urgent than a warm box that may never be used.
	x := p.first()
	if x == nil {
		p.waiting++ // put now keeps no warm box
		defer func() {
			p.mu.Lock()
			p.waiting--
			p.mu.Unlock()
		}()
	}
	p.mu.Unlock()
	// The slot is free only when the box is gone, because its user may still own processes.
	if x != nil {
		x.end()
		return x.slot, nil
	}
	select {
	case s := <-p.slots:
		return s, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// keepWarm replaces the warm boxes that runs take, while slots are free. It returns
// when the backend closes.
func (b *Backend) keepWarm() {
	if b.cfg.Warm == 0 || b.python == "" {
		return
	}
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.pool.want:
		}
		for b.pool.short(b.cfg.Warm) {
			select {
			case s := <-b.pool.slots:
				if b.warmUp(s) {
					continue
				}
			default:
			}
			break // no free slot, or the start failed: try again at the next refill
		}
	}
}

// short reports whether the open pool has fewer than n warm boxes.
func (p *pool) short(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed && len(p.warm) < n
}

// warmUp starts an interpreter in a box and puts the box into the pool. It drops the
// error of a failed start, because the next run starts its own box and reports it.
func (b *Backend) warmUp(slot int) bool {
	ctx := b.ctx
	o := b.order(nil, sandbox.DefaultLimits)
	o.Argv, o.Env, o.Links, o.Warm = b.interpreter(1, true), nil, 1, true
	// The default limits hold until a claim brings the limits of a run.
	x, err := b.start(slot, o, sandbox.DefaultLimits, nil, -1)
	if err == nil {
		err = x.awaitPython(ctx)
		if err == nil && b.pool.put(x) {
			return true
		}
		x.end()
	}
	b.pool.slots <- slot
	return false
}

// takeBox returns a box in which the program of r runs. It prefers a warm box, and
// starts a box if no warm one fits.
func (b *Backend) takeBox(ctx context.Context, r *run) (*box, error) {
	// A warm box runs only code, without a proxy. Only root can mount a workspace later.
	warm := r.spec.Code != "" && r.spec.Proxy == nil && (b.root || r.spec.Dir == "")
	for warm {
		x := b.pool.take()
		if x == nil {
			break
		}
		r.began = time.Now()
		lent, owner, err := b.workspace(r.spec, x.slot)
		if err != nil || owner != nil {
			// The box works, but this run needs another user. Keep the box for other runs.
			if !b.pool.put(x) {
				x.end()
				b.pool.release(x.slot)
			}
			break
		}
		// Delay the next warm box, because its start would slow this run down. The end
		// of the run starts it too.
		time.AfterFunc(20*time.Millisecond, b.pool.refill)
		if err := b.claim(ctx, x, r, lent); err == nil {
			r.handed = true
			return x, nil
		} else if x.end(); ctx.Err() != nil {
			b.pool.release(x.slot)
			return nil, err
		}
		// The box broke before the code of the run reached it, so try the next one.
		b.pool.release(x.slot)
	}
	slot, err := b.pool.slot(ctx)
	if err != nil {
		return nil, err
	}
	r.began = time.Now()
	x, err := b.startCold(slot, r)
	if err != nil {
		b.pool.release(slot)
		return nil, err
	}
	return x, nil
}

// startCold starts a box with the program, limits and workspace of r.
func (b *Backend) startCold(slot int, r *run) (*box, error) {
	s := r.spec
	o := b.order(s, r.limits)
	if s.Proxy != nil {
		o.Links++
	}
	if s.Code != "" {
		o.Links++
		o.Argv, o.Env = b.interpreter(o.Links, false), nil
		// This limit makes Python raise a MemoryError, which the code can handle. The
		// cgroup alone would kill the program.
		o.Bounds.Data = r.limits.Memory
	}
	lent, owner, err := b.workspace(s, slot)
	if err != nil {
		return nil, err
	}
	o.Lent = lent >= 0
	x, err := b.start(slot, o, r.limits, owner, lent)
	return x, err
}

// claim gives the warm box x to r and sends the code. It closes lent.
func (b *Backend) claim(ctx context.Context, x *box, r *run, lent int) error {
	if lent >= 0 {
		defer unix.Close(lent)
	}
	// The wall time of the run bounds this too, because an interpreter that hangs must not hold the run.
	ctx, cancel := context.WithTimeout(ctx, r.limits.Wall)
	defer cancel()
	// The box was started with the default limits.
	if x.group != nil {
		if err := x.group.Limit(r.limits.Memory, r.limits.Processes); err != nil {
			return err
		}
	}
	c := confine.Claim{Lent: lent >= 0, Dir: r.spec.Dir, Bounds: b.bounds(r.limits)}
	c.Bounds.Data = r.limits.Memory
	var files []int
	if lent >= 0 {
		files = []int{lent}
	}
	if err := x.wire.Send(&c, files...); err != nil {
		return err
	}
	if _, err := x.await(confine.Claimed); err != nil {
		return err
	}
	return x.sendCode(ctx, r.spec)
}

// workspace returns a mount of the directory of s, or -1 if there is none. Only root
// makes the mount here. For any other user init makes it, with that user's rights.
//
// If the file system cannot map owners, workspace returns the owner of the directory
// instead of a mount: the program must run as that user. Spec.Allow must permit this.
func (b *Backend) workspace(s *sandbox.Spec, slot int) (int, *identity, error) {
	if s.Dir == "" || !b.root {
		return -1, nil, nil
	}
	fd, owner, err := b.lender.lend(s.Dir, user(slot))
	if !errors.Is(err, errNoIdmap) {
		return fd, nil, err
	}
	fix := "use a workspace on ext4, xfs, btrfs or tmpfs of a recent kernel"
	// A program as root of the host is never allowed, whatever the caller accepts.
	if owner.uid == 0 || owner.gid == 0 {
		return -1, nil, refuse("workspace "+s.Dir+": "+err.Error()+", and it belongs to root", fix)
	}
	if slices.Contains(s.Allow, weakOwner) {
		return -1, &owner, nil
	}
	return -1, nil, refuse("workspace "+s.Dir+": "+err.Error()+"; Spec.Allow does not name \""+weakOwner+"\"", fix)
}

// order returns the order for a box that runs s; s is nil for a warm box.
func (b *Backend) order(s *sandbox.Spec, l limits) confine.Order {
	o := confine.Order{Shown: b.cfg.ReadOnly, Filter: b.filter, Landlock: b.abi, Root: b.root, Bounds: b.bounds(l)}
	if s == nil {
		return o
	}
	o.Argv, o.Dir = s.Argv, s.Dir
	for k, v := range s.Env {
		o.Env = append(o.Env, k+"="+v)
	}
	slices.Sort(o.Env)
	return o
}

// bounds returns the limits that init enforces. Without cgroups, init also enforces
// memory, processes and CPU time.
func (b *Backend) bounds(l limits) confine.Bounds {
	n := confine.Bounds{FileBytes: l.FileBytes, Files: l.Files}
	if b.driver == nil {
		n.Data, n.Memory, n.Processes, n.CPU = l.Memory, l.Memory, l.Processes, l.CPU
	}
	return n
}

// Warm returns the number of warm boxes, each with an interpreter that is ready.
func (b *Backend) Warm() int {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return len(b.pool.warm)
}
