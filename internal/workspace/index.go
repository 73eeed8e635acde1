package workspace

import (
	"context"
	"os"
	"sync"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/scan"
)

// An index holds the known state of the directory. It is kept in a file, so that the
// next Open reads only files that changed since. It is a cache: an index that
// does not read back is ignored.
type index struct {
	place *fsys.Handle // the workspace
	rules *fsys.Rules
	fine  bool   // the time stamps of the file system tell any two writes apart
	file  string // keeps the index between two openings

	mu   sync.Mutex // guards what follows
	root fsys.Item  // the tree as last seen; its nodes are shared and never change
	seen bool       // root was scanned since Open, and since the last commit of another process
	last *fsys.Node // the tree of the last commit
}

func (x *index) newScanner(ctx context.Context) *scan.Scanner { return scan.New(ctx, x.rules, x.fine) }

// save writes the index.
func (x *index) save() error {
	x.mu.Lock()
	root, seen := x.root, x.seen
	x.mu.Unlock()
	if !seen {
		return nil
	}
	return fsys.Replace(x.file, fsys.Encode(&root, x.key()), 0o600, false)
}

// load reads the index.
func (x *index) load() {
	b, err := os.ReadFile(x.file)
	if err != nil {
		return
	}
	if e, ok := fsys.Decode(b, x.key()); ok {
		x.mu.Lock()
		x.root = e
		x.mu.Unlock()
	}
}

// key identifies the directory and the rules that the index was written for.
func (x *index) key() string { return x.place.Name + "\x00" + x.rules.Text }

// invalidate drops the parts that a commit of another process made stale.
func (x *index) invalidate() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen, x.last = false, nil
}

// scan looks at the whole directory; with full, it reads every file. The lock of
// this process is held.
func (x *index) scan(ctx context.Context, full bool) error {
	s := x.newScanner(ctx)
	s.Full = full
	x.mu.Lock()
	prev := x.root
	x.mu.Unlock()
	e, err := s.Tree(x.place, prev)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.root, x.seen = e, true
	x.mu.Unlock()
	return nil
}

// refresh scans the directory if the known tree is stale. The lock is held.
func (x *index) refresh(ctx context.Context) error {
	x.mu.Lock()
	seen := x.seen
	x.mu.Unlock()
	if seen {
		return nil
	}
	return x.scan(ctx, false)
}

// current returns the tree as last seen.
func (x *index) current() fsys.Item {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.root
}
