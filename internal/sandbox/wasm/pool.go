package wasm

import (
	"context"
	"errors"
	"sync"
)

// A pool keeps instances ready. An instance is idle, or belongs to the holder of a
// slot. The holder of a slot makes an instance if none is idle. The pool makes one
// in advance only if idle instances and held slots are fewer than slots. So there
// are never more instances than slots.
type pool struct {
	engine *engine
	warm   int
	slots  chan struct{}

	mu     sync.Mutex
	idle   []*instance
	closed bool
	work   sync.WaitGroup // cleaning up after runs, in the background
}

var errClosed = errors.New("sandbox wasm: the backend is closed")

func newPool(e *engine, most, warm int) *pool {
	return &pool{engine: e, warm: warm, slots: make(chan struct{}, most)}
}

// take waits for a slot and returns an instance in the state of the image.
func (p *pool) take(ctx context.Context) (*instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	// close may have come while this call waited for the slot.
	if p.closed {
		p.mu.Unlock()
		<-p.slots
		return nil, errClosed
	}
	if n := len(p.idle); n > 0 {
		in := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return in, nil
	}
	p.mu.Unlock()
	in, err := p.engine.instance()
	if err != nil {
		<-p.slots
	}
	return in, err
}

// give returns an instance to the pool. An instance that cannot be cleaned is closed
// and replaced. That happens in the background; the slot stays taken until then.
func (p *pool) give(in *instance) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.work.Add(1)
	}
	p.mu.Unlock()
	if closed {
		in.close()
		<-p.slots
		return
	}
	go func() {
		defer p.work.Done()
		p.restock(in)
	}()
}

// restock makes in ready again, or another in its place, and frees the slot.
func (p *pool) restock(in *instance) {
	defer func() { <-p.slots }()
	if in != nil && !in.reset() {
		in.close()
		in = nil
	}
	p.mu.Lock()
	enough := p.closed || len(p.idle) >= p.warm
	// An instance takes memory, so idle ones and held slots together stay within the bound.
	room := len(p.idle)+len(p.slots) <= cap(p.slots)
	p.mu.Unlock()
	if enough || in == nil && !room {
		if in != nil {
			in.close()
		}
		return
	}
	if in == nil {
		var err error
		if in, err = p.engine.instance(); err != nil {
			return // the next take makes one itself and reports the error
		}
		in.mem.prefault(p.engine.hot)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// The pool may have closed or filled while the instance was made.
	if p.closed || len(p.idle) >= p.warm {
		in.close()
		return
	}
	p.idle = append(p.idle, in)
}

// fill makes the first instances, as far as slots are free.
func (p *pool) fill() {
	for range p.warm {
		select {
		case p.slots <- struct{}{}:
		default:
			return
		}
		p.work.Go(func() { p.restock(nil) })
	}
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, in := range idle {
		in.close()
	}
	p.work.Wait()
}
