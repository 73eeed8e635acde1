package workspace

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A gate lets one at a time publish: of this process by a channel, of all by
// a file lock that dies with its holder.
type gate struct {
	ch   chan struct{}
	file *os.File
	wait time.Duration
}

func (g *gate) open(name string, wait time.Duration) (err error) {
	g.ch, g.wait = make(chan struct{}, 1), wait
	g.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	return err
}

func (g *gate) close() error {
	if g.file == nil {
		return nil
	}
	return g.file.Close()
}

// taken tells that somebody of this process is inside.
func (g *gate) taken() bool { return len(g.ch) > 0 }

// enter keeps others of this process out.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	select {
	case g.ch <- struct{}{}:
		return func() { <-g.ch }, nil
	case <-ctx.Done():
		return nil, g.locked(ctx)
	}
}

// lock keeps everybody out.
func (g *gate) lock(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.flock(ctx); err != nil {
		leave()
		return nil, err
	}
	g.file.WriteAt(fmt.Appendf(nil, "%-10d\n", os.Getpid()), 0)
	return func() { fsys.Unlock(g.file); leave() }, nil
}

func (g *gate) flock(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if ok, err := fsys.TryLock(g.file); ok || err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return g.locked(ctx)
		}
	}
}

func (g *gate) locked(ctx context.Context) error {
	b := make([]byte, 10)
	n, _ := g.file.ReadAt(b, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	e := fsys.Errorf(Locked, "", "waited for the commit of another (process %d) until the deadline", pid)
	e.Err = ctx.Err()
	return e
}
