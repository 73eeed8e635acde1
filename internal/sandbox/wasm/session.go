package wasm

import (
	"context"
	"sync"

	"github.com/kern-run/kern/internal/sandbox"
)

// A session is an instance that stays with its owner. A run that was stopped ends
// the session, because the state of the interpreter is then unknown.
type session struct {
	b      *Backend
	opened sandbox.Spec

	mu   sync.Mutex
	in   *instance
	ran  bool
	over string // why the instance is gone
}

// Run runs code in the state that earlier runs left. Dir and Env come from the
// session, and so do Functions if the Spec has none.
func (s *session) Run(ctx context.Context, spec sandbox.Spec) (sandbox.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := sandbox.Outcome{Cause: sandbox.Refused}
	if s.in == nil {
		r := refuse("the session is over: %s", s.over)
		r.Fix = "open another session; it starts without variables"
		return refused, r
	}
	if spec.Dir != "" && spec.Dir != s.opened.Dir {
		return refused, refuse("want Dir of the session, %q, or none, got %q", s.opened.Dir, spec.Dir)
	}
	if spec.Limits.Memory != 0 && spec.Limits.Memory != s.opened.Limits.Memory {
		return refused, refuse("want Limits.Memory of the session, %d, or none, got %d", s.opened.Limits.Memory, spec.Limits.Memory)
	}
	// The memory of the instance lives on, so its limit cannot change from run to run.
	spec.Limits.Memory = s.opened.Limits.Memory
	if spec.Functions == nil {
		spec.Functions = s.opened.Functions
	}
	if spec.Env == nil && !s.ran {
		spec.Env = s.opened.Env // later runs keep the environment of the interpreter
	}
	if err := check(&spec); err != nil {
		return refused, err
	}
	s.ran = true
	out := s.in.run(ctx, &spec, flagKeep)
	if s.in.broken {
		s.over = "its last run ended with " + string(out.Cause)
		return out, s.drop()
	}
	return out, nil
}

// Close returns the instance to the pool.
func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = "it was closed"
	return s.drop()
}

func (s *session) drop() error {
	if s.in == nil {
		return nil
	}
	in := s.in
	s.in = nil
	err := in.end()
	s.b.pool.give(in)
	return err
}
