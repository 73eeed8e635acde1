package cli

import (
	"context"
	"errors"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// A Session is a connection that outlives its daemon. When the daemon dies, the
// session starts it again and repeats the request. So a session carries only
// requests that may be repeated.
type Session struct {
	Term    *Terminal
	Connect func(context.Context) (*api.Client, error) // starts the daemon if none runs
	Quiet   bool                                       // do not tell the person that the daemon ended
	Persist bool                                       // reconnect also after kern stop-daemon

	mu     sync.Mutex
	client *api.Client
	losses int
}

// NewSession is a session that begins with a client.
func NewSession(t *Terminal, connect func(context.Context) (*api.Client, error), c *api.Client) *Session {
	return &Session{Term: t, Connect: connect, client: c}
}

// Open makes the first connection.
func (s *Session) Open(ctx context.Context) (err error) {
	s.client, err = s.connect(ctx)
	return err
}

// maxStarts is how often a daemon may die before it is ready. More means that it
// dies of what it reads.
const maxStarts = 3

// connect connects, also when the daemon dies meanwhile.
func (s *Session) connect(ctx context.Context) (c *api.Client, err error) {
	for range maxStarts {
		if c, err = s.Connect(ctx); !errors.Is(err, api.ErrLost) || ctx.Err() != nil {
			break
		}
	}
	return c, err
}

// Once makes a request that must not be made twice.
func (s *Session) Once(request func(c *api.Client) error) error {
	s.mu.Lock()
	c := s.client
	s.mu.Unlock()
	return request(c)
}

// maxLosses is how often a daemon may die in one session. More means that it
// dies of a process that it recovers.
const maxLosses = 20

// Do makes a request, and repeats it when the daemon dies meanwhile.
func (s *Session) Do(ctx context.Context, request func(c *api.Client) error) error {
	for {
		s.mu.Lock()
		c := s.client
		s.mu.Unlock()
		err := request(c)
		if !errors.Is(err, api.ErrLost) && !(s.Persist && isDaemonGone(err)) || ctx.Err() != nil {
			return err
		}
		if err := s.reconnect(ctx, c, err); err != nil {
			return err
		}
	}
}

// reconnect replaces a lost client, once for all requests that lost it.
func (s *Session) reconnect(ctx context.Context, lost *api.Client, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != lost {
		return nil
	}
	if s.losses++; s.losses > maxLosses {
		return cause
	}
	if !s.Quiet {
		s.Term.Note("kern: the daemon ended; starting it again, and the process continues")
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	lost.Close()
	s.client = c
	return nil
}

// Close closes the connection.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
	}
}

// isDaemonGone reports whether a stopping daemon refused the request.
func isDaemonGone(err error) bool {
	var e *abi.Error
	return errors.As(err, &e) && e.Code == abi.DaemonGone
}
