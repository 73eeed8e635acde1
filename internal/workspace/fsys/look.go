package fsys

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Metadata looks at every name in p without reading a file. Names that the
// ignore rules keep out are included, and every item is marked as ignored.
func Metadata(ctx context.Context, p *Handle) (Item, error) {
	return newWalk(ctx).below(p, ".")
}

// Look looks at name in p without reading a file, and below it if it is a
// directory.
func Look(p *Handle, name string) (*Item, error) {
	e, err := p.Lstat(name)
	if err == nil && e.Kind == Dir {
		e, err = newWalk(context.Background()).below(p, name)
	}
	return &e, err
}

// A walk reads directories beside each other, at most one for each processor.
type walk struct {
	ctx context.Context
	sem chan struct{}
}

func newWalk(ctx context.Context) *walk {
	return &walk{ctx, make(chan struct{}, runtime.GOMAXPROCS(0))}
}

func (w *walk) below(p *Handle, at string) (Item, error) {
	q, err := p.Sub(at)
	if err != nil {
		return Item{}, err
	}
	defer q.Close()
	e, err := q.Lstat(".")
	if err == nil {
		e.Dir, err = w.node(q)
	}
	return e, err
}

func (w *walk) node(p *Handle) (*Node, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	var ents []Item
	// Ignored marks the entry as one without a hash, so that nobody trusts its content.
	if err := p.Each(func(e *Item) error { e.Ignored = true; ents = append(ents, *e); return nil }); err != nil {
		return nil, err
	}
	slices.SortFunc(ents, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	var wg sync.WaitGroup
	errs := make([]error, len(ents))
	for i := range ents {
		if ents[i].Kind != Dir {
			continue
		}
		select {
		case w.sem <- struct{}{}:
			wg.Go(func() { errs[i] = w.enter(p, &ents[i]); <-w.sem })
		// Waiting for a token could deadlock, because a parent keeps its token until its children are read.
		default:
			errs[i] = w.enter(p, &ents[i])
		}
	}
	wg.Wait()
	return (&Node{Ents: ents}).Done(), errors.Join(errs...)
}

// enter reads the directory e of p. The root of another mount counts as Other.
func (w *walk) enter(p *Handle, e *Item) error {
	q, err := p.Sub(e.Name)
	if IsOtherMount(err) {
		*e = Item{Name: e.Name, Entry: Entry{Kind: Other}, Print: e.Print, Ignored: true}
		return nil
	}
	if err != nil {
		return err
	}
	defer q.Close()
	e.Dir, err = w.node(q)
	return err
}

// Shape sums up which files lie where below e. Equal shapes mean that a slot or
// a path still holds what the plan saw; no file has to be read.
func Shape(e *Item) Hash {
	h := sha256.New()
	for p, x := range e.Walk(".") {
		t, size := x.Time, x.Size
		if x.Kind == Dir || x.Kind == Other {
			t, size = 0, 0
		}
		fmt.Fprintf(h, "%d:%s", len(p), p)
		binary.Write(h, binary.BigEndian, []int64{int64(x.Kind), int64(x.Print.Ino), size, t})
	}
	return Hash(h.Sum(nil))
}

var hashBuffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// HashFile hashes the first size bytes of f as a Git blob.
func HashFile(f *os.File, size int64) (out Hash, err error) {
	h := sha256.New()
	BlobHead(h, size)
	buf := hashBuffers.Get().(*[128 << 10]byte)
	defer hashBuffers.Put(buf)
	for off := int64(0); off < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		h.Write(buf[:n])
		off += int64(n)
		if err == io.EOF {
			break // the file shrank, which its metadata shows
		}
		if err != nil {
			return out, err
		}
	}
	h.Sum(out[:0])
	return out, nil
}
