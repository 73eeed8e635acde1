// Package wasm runs Python inside this process: CPython compiled to
// WebAssembly, a new interpreter for each run in less than a millisecond.
//
// Every instance starts as a copy-on-write view of one image (package image): the
// memory of the interpreter when it was ready to run code. The code can only use the
// functions that it imports: the system of package wasi and [sandbox.Function]s. A
// countdown that package rewrite put into every loop can stop it, and so can every
// function that waits.
//
// An instance that ran to its end is reset to the image and used again. An instance
// that was stopped or that trapped is never used again.
package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// Config bounds a Backend. The zero Config is useful.
type Config struct {
	MaxInstances int    // how many interpreters exist at one time, busy or ready; 0: 256
	Warm         int    // interpreters kept ready; 0: one for each processor; below zero: none
	CacheDir     string // where compiled code is kept for the next process; "": it is not kept
}

// A Backend is a [sandbox.Backend], [sandbox.Sessioner] and [sandbox.Prober].
type Backend struct {
	engine *engine
	pool   *pool
}

var (
	_ sandbox.Backend   = (*Backend)(nil)
	_ sandbox.Sessioner = (*Backend)(nil)
	_ sandbox.Prober    = (*Backend)(nil)
)

// New makes a Backend. Without a filled CacheDir it compiles the interpreter,
// which takes seconds.
func New(c Config) (*Backend, error) {
	if c.MaxInstances < 0 {
		return nil, refuse("want MaxInstances of 1 or more, or 0 for 256, got %d", c.MaxInstances)
	}
	if c.MaxInstances == 0 {
		c.MaxInstances = 256
	}
	if c.Warm == 0 {
		c.Warm = runtime.GOMAXPROCS(0)
	}
	e, err := newEngine(c.CacheDir)
	if err != nil {
		return nil, err
	}
	b := &Backend{engine: e, pool: newPool(e, c.MaxInstances, min(max(c.Warm, 0), c.MaxInstances))}
	if err := b.learn(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.pool.fill()
	return b, nil
}

// Close ends the Backend. Runs and sessions must have ended.
func (b *Backend) Close() error {
	b.pool.close()
	return b.engine.close()
}

// Run runs one program in a new interpreter.
func (b *Backend) Run(ctx context.Context, s sandbox.Spec) (sandbox.Outcome, error) {
	if err := check(&s); err != nil {
		return sandbox.Outcome{Cause: sandbox.Refused}, err
	}
	in, err := b.pool.take(ctx)
	if err != nil {
		return sandbox.Outcome{Cause: causeOf(err)}, err
	}
	defer b.pool.give(in)
	return in.once(ctx, &s)
}

// Open keeps an interpreter for one owner.
func (b *Backend) Open(ctx context.Context, s sandbox.Spec) (sandbox.Session, error) {
	if err := checkSession(&s); err != nil {
		return nil, err
	}
	in, err := b.pool.take(ctx)
	if err != nil {
		return nil, err
	}
	if err := in.begin(&s); err != nil {
		b.pool.give(in)
		return nil, err
	}
	return &session{b: b, in: in, opened: s}, nil
}

func refuse(format string, args ...any) *sandbox.Refusal {
	return &sandbox.Refusal{Backend: "wasm", Reason: fmt.Sprintf(format, args...)}
}

// check refuses a Spec that this backend cannot run or cannot bound.
func check(s *sandbox.Spec) error {
	if err := s.Check(); err != nil {
		return refuse("%v", err)
	}
	return checkHost(s)
}

func checkSession(s *sandbox.Spec) error {
	if err := s.CheckSession(); err != nil {
		return refuse("%v", err)
	}
	return checkHost(s)
}

func checkHost(s *sandbox.Spec) error {
	if len(s.Argv) > 0 {
		r := refuse("it runs Python source, not programs: got Argv %.60q", s.Argv[0])
		r.Fix = "use the sandbox jail, or set Code"
		return r
	}
	if s.Proxy != nil {
		r := refuse("it has no sockets, so no Proxy can be handed in")
		r.Fix = "use the sandbox jail, or a Function"
		return r
	}
	s.Limits = s.Limits.WithDefaults()
	if s.Limits.Memory < minMemory {
		return refuse("want Limits.Memory of %d bytes or more, which the interpreter itself takes, got %d", int64(minMemory), s.Limits.Memory)
	}
	if s.Dir == "" {
		return nil
	}
	if st, err := os.Stat(s.Dir); err != nil || !st.IsDir() {
		return refuse("want Dir to be a directory, got %q", s.Dir)
	}
	return nil
}

// causeOf returns the cause for an error from before anything ran.
func causeOf(err error) sandbox.Cause {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sandbox.Killed
	}
	return sandbox.Refused
}

// learn runs a first program and notes the pages of memory that it touched. New
// instances get these pages ready in advance.
func (b *Backend) learn() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	in, err := b.pool.take(ctx)
	if err != nil {
		return err
	}
	s := sandbox.Spec{Code: "print('ready')", Limits: sandbox.DefaultLimits}
	s.Limits.Wall = time.Minute
	out, err := in.once(ctx, &s)
	if err == nil && (out.Cause != sandbox.OK || string(out.Stdout) != "ready\n") {
		err = refuse("the interpreter does not work here: %s: %s%s", out.Cause, out.Stdout, out.Stderr)
	}
	if err == nil {
		b.engine.hot = in.mem.touched()
	}
	b.pool.give(in)
	return err
}
