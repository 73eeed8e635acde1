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
	handed bool // the warm interpreter already has the code
	out    output

	mu    sync.Mutex
	cause sandbox.Cause // why the backend ended the run; "": it did not
	short bool          // the interpreter reported an unhandled MemoryError
}

// grace is how long a finished run waits for its streams to end. The streams end with
// the program, unless a Writer or a Function of the caller does not return. The wait
// is long, because reading is slow on a busy machine and must not lose output.
const grace = 3 * time.Second

// end kills the run for the cause c. Only the first cause counts.
func (r *run) end(c sandbox.Cause) {
	r.mu.Lock()
	if r.cause == "" {
		r.cause = c
	}
	r.mu.Unlock()
	r.box.kill()
}

// noteMemoryError records that the program did not handle a MemoryError.
func (r *run) noteMemoryError() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.short = true
}

// wait copies the streams of the run, answers its calls and returns its outcome when
// it has ended.
func (r *run) wait(ctx context.Context) sandbox.Outcome {
	x := r.box
	r.out.left, r.out.over = r.limits.Output, func() { r.end(sandbox.Output) }
	// Functions must not outlive the run.
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
			if r.handed || writeCode(l, r.spec) == nil {
				answerCalls(calls, l, r.spec.Functions, r.noteMemoryError)
			}
		})
	}
	// Nobody waits for feed, because a Reader may never return.
	go feed(x.stdin, r.spec.Stdin)
	last := r.watch(ctx)
	stop()
	if r.spec.Proxy != nil {
		// The program is gone, so bridge must stop reading from the proxy.
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

// watch kills the run at its limits. It returns when all processes of the run have
// ended, with the last note of init. The note is not Done if init was killed.
func (r *run) watch(ctx context.Context) (last confine.Note) {
	wall := time.NewTimer(r.limits.Wall - time.Since(r.began))
	defer wall.Stop()
	// A cgroup counts CPU time but ends nothing, so the backend looks.
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
			gone = nil // a closed channel would spin; wait for the last note
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

// next returns the shortest time in which the run can use up its CPU time.
func (r *run) next(used time.Duration) time.Duration {
	return max((r.limits.CPU-used)/time.Duration(runtime.NumCPU()), time.Millisecond)
}

// outcome builds the outcome from the last note, the cgroup and the output. A limit
// that only makes calls fail, like a full disk, is a cause only if the run failed.
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
		// Init sent no Done, so the backend or another process killed it.
		out.Exit, out.Signal = -1, "SIGKILL"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// The order counts: a limit that killed the run comes before its exit code.
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
	// The program ended before the kill reached it, but its output is cut.
	if out.Truncated && out.Cause == sandbox.OK {
		out.Cause = sandbox.Output
	}
	return out
}

// bridge copies bytes between the socket of the program and its proxy until both
// directions have ended. The program never gets the proxy's own socket, because
// that belongs to the network of the host.
func bridge(program *os.File, proxy net.Conn) {
	var in sync.WaitGroup
	in.Go(func() {
		io.Copy(program, proxy)
		closeWrite(program)
	})
	io.Copy(proxy, program)
	if c, ok := proxy.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
	in.Wait()
}

// closeWrite ends the input of the program.
func closeWrite(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}
