package wasm

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/wasm/wasi"
)

// An instance is one interpreter. One run at a time uses it.
type instance struct {
	engine *engine
	mod    api.Module
	mem    *memory
	alloc  api.Function
	enter  api.Function
	stack  api.Global
	top    uint64 // where the stack begins
	broken bool   // it was stopped or trapped, so the state of its memory is unknown
	host   hostRun
}

// The results of kern_run, as in reactor.c.
const (
	runOK        = 0
	runException = 1
	runMemory    = 2
	runExit      = 0x100
)

// Flags of kern_run.
const (
	flagEnv  = 1
	flagKeep = 2
)

// once does one run: it opens the files, runs the code, and closes the files.
func (in *instance) once(ctx context.Context, s *sandbox.Spec) (sandbox.Outcome, error) {
	if err := in.begin(s); err != nil {
		return sandbox.Outcome{Cause: sandbox.Refused}, err
	}
	out := in.run(ctx, s, 0)
	return out, in.end()
}

// begin opens the files of a run or a session for the instance.
func (in *instance) begin(s *sandbox.Spec) error {
	g := &in.host
	g.sys = wasi.System{
		Random: rand.Reader,
		Wall:   time.Now,
		Mono:   monotonic,
		CPU:    func() time.Duration { return g.meter.spent },
		Output: func(stream int, b []byte) { g.out.write(stream, b) },
		Wait: func(f func()) {
			g.turn.give()
			f()
			g.turn.take(g.life.done)
		},
	}
	g.sys.Tree.Base = in.engine.library
	if err := g.sys.Tree.Open(s.Dir, s.Files); err != nil {
		return errors.Join(refuse("Dir: %v", err), in.end())
	}
	g.sys.Start()
	in.mem.limit = min(uint64(s.Limits.Memory)/wasmPage*wasmPage, maxMemory)
	return nil
}

// end takes the files away again.
func (in *instance) end() error {
	g := &in.host
	err := g.sys.Stop()
	in.host = hostRun{}
	in.mem.limit, in.mem.denied = in.mem.size, false
	return err
}

var started = time.Now()

func monotonic() time.Duration { return time.Since(started) }

// run runs source text until it ends or is stopped.
func (in *instance) run(ctx context.Context, s *sandbox.Spec, flags uint64) sandbox.Outcome {
	from := time.Now()
	g := &in.host
	l := newLife() // a variable of its own, because a late timer must not end the next run
	g.life = l
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.functions, g.env, g.limits = s.Functions, s.Env, s.Limits
	g.meter = meter{}
	g.out = newOutput(l, s)
	g.sys.Stdin, g.sys.Done = s.Stdin, l.done
	g.sys.Tree.Quota.Bytes, g.sys.Tree.Quota.Files = s.Limits.FileBytes, s.Limits.Files
	g.sys.Tree.Quota.Hit, in.mem.denied = false, false

	timer := time.AfterFunc(s.Limits.Wall, func() { l.end(sandbox.Timeout) })
	unwatch := context.AfterFunc(ctx, func() { l.end(sandbox.Killed) })
	o := in.call(s, flags)
	timer.Stop()
	unwatch()
	o.Cause = l.settle(o.Cause)
	g.cancel()
	g.out.flush(ctx, s.Limits.Wall-time.Since(from))
	if o.Cause != sandbox.OK && o.Exit == 0 && o.Signal == "" {
		o.Exit = -1
	}
	// A stopped interpreter may hold half of a change, so its memory is never used again.
	if o.Cause == sandbox.Timeout || o.Cause == sandbox.Killed || o.Cause == sandbox.Output {
		in.broken = true
	}
	o.Stdout, o.Stderr, o.Truncated = g.out.kept[0], g.out.kept[1], g.out.truncated
	o.Usage = sandbox.Usage{
		Wall: time.Since(from), CPU: g.meter.spent,
		PeakBytes: int64(in.mem.size), OutputBytes: int64(len(o.Stdout) + len(o.Stderr)),
	}
	return o
}

// call enters the code and returns how it ended.
func (in *instance) call(s *sandbox.Spec, flags uint64) sandbox.Outcome {
	if len(s.Env) > 0 {
		flags |= flagEnv
	}
	g := &in.host
	ctx := &runContext{Context: context.Background(), g: g}
	stack := [3]uint64{uint64(len(s.Code) + 1)}
	g.turn = turn{of: in.engine.turns}
	g.turn.take(g.life.done)
	defer g.turn.give()
	g.meter.enter()
	err := in.alloc.CallWithStack(ctx, stack[:])
	if err == nil {
		at := uint32(stack[0])
		// kern_alloc returns zero when the memory limit leaves no room for the code.
		if at == 0 || !in.mod.Memory().WriteString(at, s.Code) || !in.mod.Memory().WriteByte(at+uint32(len(s.Code)), 0) {
			return sandbox.Outcome{Cause: sandbox.Memory, Exit: 1}
		}
		stack = [3]uint64{uint64(at), uint64(len(s.Code)), flags}
		err = in.enter.CallWithStack(ctx, stack[:])
	}
	g.meter.leave()
	if err != nil {
		return in.trapped(err)
	}
	rc := int(int32(stack[0]))
	switch {
	case rc == runOK || rc == runExit:
		return sandbox.Outcome{Cause: sandbox.OK}
	case rc&runExit != 0:
		return sandbox.Outcome{Cause: in.failure(false), Exit: rc &^ runExit}
	}
	return sandbox.Outcome{Cause: in.failure(rc == runMemory), Exit: 1}
}

// failure returns the cause of a failed run: the limit that refused something, if
// there is one.
func (in *instance) failure(memory bool) sandbox.Cause {
	switch {
	case memory && in.mem.denied:
		return sandbox.Memory
	case in.host.sys.Tree.Quota.Hit:
		return sandbox.Files
	case in.mem.denied:
		return sandbox.Memory
	}
	return sandbox.Failed
}

// trapped returns the outcome of a run that did not return normally.
func (in *instance) trapped(err error) sandbox.Outcome {
	in.broken = true
	var exit wasi.Exit
	switch {
	case errors.Is(err, errEnded):
		return sandbox.Outcome{Cause: sandbox.Killed}
	case errors.As(err, &exit) && exit.Code == 0:
		return sandbox.Outcome{Cause: sandbox.OK}
	case errors.As(err, &exit):
		return sandbox.Outcome{Cause: in.failure(false), Exit: int(exit.Code)}
	// CPython calls abort, and wasi-libc makes that an unreachable instruction.
	case strings.Contains(err.Error(), "unreachable"):
		return sandbox.Outcome{Cause: in.failure(false), Exit: 128 + 6, Signal: "SIGABRT"}
	}
	return sandbox.Outcome{Cause: in.failure(false), Exit: 128 + 11, Signal: "SIGSEGV"}
}

// reset makes the instance the image again, and reports whether it could.
func (in *instance) reset() bool {
	return !in.broken && in.stack.Get() == in.top && in.mem.reset(in.engine.hot)
}

func (in *instance) close() {
	in.mod.Close(context.Background())
	in.mem.Free()
	in.engine.live.Add(-1)
}
