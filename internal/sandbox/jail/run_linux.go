package jail

import (
	"context"
	"github.com/kern-run/kern/internal/program/confine"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/program/cgroup"
	"github.com/kern-run/kern/internal/sandbox"
	"golang.org/x/sys/unix"
)

// A run is one Spec in its box.
type run struct {
	spec   *sandbox.Spec
	limits limits
	box    *box
	began  time.Time
	handed bool // a warm interpreter has its code already
	out    output

	mu    sync.Mutex
	cause sandbox.Cause // why we ended it, if we did
	short bool          // the interpreter says that it ended for want of memory
}

// grace is how long a finished run waits for a caller's Writer or Function
// that does not return. The program is gone by then.
const grace = 250 * time.Millisecond

// end kills the run for one reason; the first counts.
func (r *run) end(c sandbox.Cause) {
	r.mu.Lock()
	if r.cause == "" {
		r.cause = c
	}
	r.mu.Unlock()
	r.box.kill()
}

// lacked notes that memory was refused and that the program did not handle it.
func (r *run) lacked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.short = true
}

// wait sees the run to its end.
func (r *run) wait(ctx context.Context) sandbox.Outcome {
	x := r.box
	r.out.left, r.out.over = r.limits.Output, func() { r.end(sandbox.Output) }
	calls, stop := context.WithCancel(ctx)
	defer stop()
	var streams sync.WaitGroup
	streams.Go(func() { r.out.copy(0, x.stdout, r.spec.Stdout) })
	streams.Go(func() { r.out.copy(1, x.stderr, r.spec.Stderr) })
	for i, l := range x.links {
		if i == 0 && r.spec.Proxy != nil {
			streams.Go(func() { bridge(l, r.spec.Proxy) })
			continue
		}
		streams.Go(func() {
			if r.handed || give(l, r.spec) == nil {
				serve(calls, l, r.spec.Functions, r.lacked)
			}
		})
	}
	go feed(x.stdin, r.spec.Stdin)
	last := r.watch(ctx)
	stop()
	if r.spec.Proxy != nil {
		// So that nobody is left reading for a program that is gone.
		r.spec.Proxy.SetDeadline(time.Now())
		defer r.spec.Proxy.SetDeadline(time.Time{})
	}
	wall := time.Since(r.began)
	drained := make(chan struct{})
	go func() { streams.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(grace):
	}
	return r.outcome(last, wall)
}

// watch ends the run at its limits. It returns what init said last: that all
// of the run has ended and been reaped, or, when init was killed, nothing.
func (r *run) watch(ctx context.Context) (last confine.Note) {
	wall := time.NewTimer(r.limits.Wall - time.Since(r.began))
	defer wall.Stop()
	check := time.NewTimer(r.next(0))
	defer check.Stop()
	gone := ctx.Done()
	for {
		select {
		case n, ok := <-r.box.notes:
			if !ok {
				return last
			}
			if last = n; n.Kind == confine.Done {
				return last
			}
		case <-gone:
			r.end(sandbox.Killed)
			gone = nil
		case <-wall.C:
			r.end(sandbox.Timeout)
		case <-check.C:
			if g := r.box.group; g != nil {
				if c, err := g.Read(); err == nil && c.CPU >= r.limits.CPU {
					r.end(sandbox.Timeout)
				} else {
					check.Reset(r.next(c.CPU))
				}
			}
		}
	}
}

// next is when the processor time can be used up at the earliest.
func (r *run) next(used time.Duration) time.Duration {
	return max((r.limits.CPU-used)/time.Duration(runtime.NumCPU()), time.Millisecond)
}

// outcome puts together what is known. A limit that refuses what goes past it,
// as a full disk does, is the cause only of a run that failed.
func (r *run) outcome(n confine.Note, wall time.Duration) sandbox.Outcome {
	out := sandbox.Outcome{Exit: n.Exit, Signal: n.Signal}
	out.Usage = sandbox.Usage{Wall: wall, CPU: n.CPU, PeakBytes: n.Peak}
	var c cgroup.Readings
	if g := r.box.group; g != nil {
		if got, err := g.Read(); err == nil {
			c = got
			out.Usage.CPU, out.Usage.PeakBytes = c.CPU, c.Peak
		}
	}
	out.Stdout, out.Stderr, out.Truncated = r.out.take()
	out.Usage.OutputBytes = int64(len(out.Stdout) + len(out.Stderr))
	if n.Kind != confine.Done {
		// Init was killed with its box, or by somebody outside.
		out.Exit, out.Signal = -1, "SIGKILL"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fine := n.Kind == confine.Done && n.Exit == 0 && n.Signal == ""
	switch {
	case r.cause != "":
		out.Cause = r.cause
	case n.Over != "":
		out.Cause = sandbox.Cause(n.Over)
	case fine:
		out.Cause = sandbox.OK
	case c.OOM > 0 || r.short:
		out.Cause = sandbox.Memory
	case n.Signal == "SIGXFSZ" || n.Full:
		out.Cause = sandbox.Files
	case n.Signal == "SIGXCPU":
		out.Cause = sandbox.Timeout
	case c.Refused > 0:
		out.Cause = sandbox.Processes
	default:
		out.Cause = sandbox.Failed
	}
	if out.Truncated && out.Cause == sandbox.OK {
		out.Cause = sandbox.Output
	}
	return out
}

// bridge carries bytes between the program's socket and its proxy until both
// ways have ended. The program never holds the proxy's own socket: it belongs
// to the host's network and could be turned elsewhere.
func bridge(program *os.File, proxy net.Conn) {
	var in sync.WaitGroup
	in.Go(func() {
		io.Copy(program, proxy)
		shut(program)
	})
	io.Copy(proxy, program)
	if c, ok := proxy.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
	in.Wait()
}

// shut tells the program that no more will come.
func shut(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}
