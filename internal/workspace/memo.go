package workspace

import (
	"context"
	"github.com/kern-run/kern/internal/workspace/fsys"
	"os"
	"sync"

	"github.com/kern-run/kern/internal/workspace/scan"
)

// A memo is what is known of the directory.
type memo struct {
	place *fsys.Place // the workspace
	rules *fsys.Rules
	fine  bool   // the file system tells any two writes apart
	index string // where it is kept between two openings

	mu   sync.Mutex      // guards what follows
	root fsys.Item       // as it was last seen; its nodes are shared and never change
	seen bool            // root has been looked at since Open
	last *fsys.Node      // what the last commit recorded
	ids  map[string]Hash // commits by their caller's ID; nil until first asked
}

func (m *memo) scanner(ctx context.Context) *scan.Scanner { return scan.New(ctx, m.rules, m.fine) }

// save writes the index.
func (m *memo) save() error {
	m.mu.Lock()
	root, seen := m.root, m.seen
	m.mu.Unlock()
	if !seen {
		return nil
	}
	return fsys.Replace(m.index, fsys.Encode(&root, m.key()), 0o600, false)
}

// remember reads the index.
func (m *memo) remember() {
	b, err := os.ReadFile(m.index)
	if err != nil {
		return
	}
	if e, ok := fsys.Decode(b, m.key()); ok {
		m.mu.Lock()
		m.root = e
		m.mu.Unlock()
	}
}

// key is what an index must have been written for.
func (m *memo) key() string { return m.place.Name + "\x00" + m.rules.Text }

// forget drops what another process has made stale.
func (m *memo) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.last, m.ids = false, nil, nil
}

// scan looks at the whole directory. The gate is held.
func (m *memo) scan(ctx context.Context, full bool) error {
	s := m.scanner(ctx)
	s.Full = full
	m.mu.Lock()
	prev := m.root
	m.mu.Unlock()
	e, err := s.Tree(m.place, prev)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.root, m.seen = e, true
	m.mu.Unlock()
	return nil
}

func (m *memo) known() fsys.Item {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.root
}
