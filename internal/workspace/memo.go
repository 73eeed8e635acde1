package workspace

import (
	"context"
	"os"
	"sync"
)

// A memo is what is known of the directory.
type memo struct {
	place *place // the workspace
	rules *rules
	fine  bool   // the file system tells any two writes apart
	index string // where it is kept between two openings

	mu   sync.Mutex      // guards what follows
	root entry           // as it was last seen; its nodes are shared and never change
	seen bool            // root has been looked at since Open
	last *node           // what the last commit recorded
	ids  map[string]Hash // commits by their caller's ID; nil until first asked
}

func (m *memo) scanner(ctx context.Context) *scanner { return newScanner(ctx, m.rules, m.fine) }

// save writes the index.
func (m *memo) save() error {
	m.mu.Lock()
	root, seen := m.root, m.seen
	m.mu.Unlock()
	if !seen {
		return nil
	}
	return replaceFile(m.index, encode(&root, m.key()), 0o600, false)
}

// remember reads the index.
func (m *memo) remember() {
	b, err := os.ReadFile(m.index)
	if err != nil {
		return
	}
	if e, ok := decode(b, m.key()); ok {
		m.mu.Lock()
		m.root = e
		m.mu.Unlock()
	}
}

// key is what an index must have been written for.
func (m *memo) key() string { return m.place.name + "\x00" + m.rules.text }

// forget drops what another process has made stale.
func (m *memo) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.last, m.ids = false, nil, nil
}

// scan looks at the whole directory. The gate is held.
func (m *memo) scan(ctx context.Context, full bool) error {
	s := m.scanner(ctx)
	s.full = full
	m.mu.Lock()
	prev := m.root
	m.mu.Unlock()
	e, err := s.tree(m.place, prev)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.root, m.seen = e, true
	m.mu.Unlock()
	return nil
}

func (m *memo) known() entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.root
}
