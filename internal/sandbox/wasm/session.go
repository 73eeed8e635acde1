package wasm

import (
	"context"
	"sync"

	"github.com/kern-run/kern/internal/sandbox"
)

// A session is an instance that stays with its owner. A run that was stopped
// ends it: what the interpreter held then is in no known state.
type session struct {
	b      *Backend
	opened sandbox.Spec

	mu   sync.Mutex
	in   *instance
	ran  bool
	over string // why there is no instance any more
}

// Run runs code after what ran before it. Dir and Env are those of the
// session; Functions, if none are given here, too.
func (s *session) Run(ctx context.Context, spec sandbox.Spec) (sandbox.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := sandbox.Outcome{Cause: sandbox.Refused}
	if s.in == nil {
		r := refuse("the session is over: %s", s.over)
		r.Fix = "open another; its variables begin anew"
		return refused, r
	}
	if spec.Dir != "" && spec.Dir != s.opened.Dir {
		return refused, refuse("want Dir of the session, %q, or none, got %q", s.opened.Dir, spec.Dir)
	}
	if spec.Limits.Memory != 0 && spec.Limits.Memory != s.opened.Limits.Memory {
		return refused, refuse("want Limits.Memory of the session, %d, or none, got %d", s.opened.Limits.Memory, spec.Limits.Memory)
	}
	spec.Limits.Memory = s.opened.Limits.Memory
	if spec.Functions == nil {
		spec.Functions = s.opened.Functions
	}
	if spec.Env == nil && !s.ran {
		spec.Env = s.opened.Env // later runs find it, and what the code made of it
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

// Close gives the instance back.
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
