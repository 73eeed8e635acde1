package staging

import (
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/workspace"
)

// states remembers what workspaces held after calls. It gives two states the
// same digest only after it compared their content, because the watchdog must
// not take a collision for a loop.
type states struct {
	mu   sync.Mutex
	of   map[*workspace.Workspace][]*state
	hash func(workspace.Hash) abi.Key // nil: the first bytes; a test makes all digests collide
}

// state is the content behind one digest.
type state struct {
	key  abi.Key
	snap *workspace.Snapshot
	id   workspace.Hash // of the commit that has the content, while snap is not loaded
}

// statesKept is how many states are remembered: more than the watchdog looks back.
const statesKept = 64

func (st *states) addCommit(w *workspace.Workspace, c *workspace.Commit) abi.Key {
	return st.keyOf(w, c.Digest, &state{id: c.Hash})
}

func (st *states) addSnapshot(w *workspace.Workspace, s *workspace.Snapshot) abi.Key {
	return st.keyOf(w, s.Digest(), &state{snap: s})
}

// keyOf returns the digest of a state. It differs from the digest of every
// remembered state with other content.
func (st *states) keyOf(w *workspace.Workspace, digest workspace.Hash, now *state) abi.Key {
	st.mu.Lock()
	defer st.mu.Unlock()
	known, loaded := st.of[w]
	if !loaded {
		known = st.load(w)
	}
	if st.of == nil {
		st.of = make(map[*workspace.Workspace][]*state)
	}
	st.of[w] = st.add(w, known, digest, now)
	return now.key
}

// add appends a state to the known ones and gives it its key.
func (st *states) add(w *workspace.Workspace, known []*state, digest workspace.Hash, now *state) []*state {
	copy(now.key[:], digest[:])
	if st.hash != nil {
		now.key = st.hash(digest)
	}
	find := func() int { return slices.IndexFunc(known, func(s *state) bool { return s.key == now.key }) }
	at := find()
	for at >= 0 && !same(w, known[at], now) {
		now.key = process.KeyOf("another state", now.key[:])
		at = find()
	}
	if at >= 0 {
		known = slices.Delete(known, at, at+1)
	} else if len(known) == statesKept {
		known = known[1:]
	}
	return append(known, now)
}

// load reads the latest states from the history, because the journal may hold
// digests from before a restart.
func (st *states) load(w *workspace.Workspace) (known []*state) {
	var list []*workspace.Commit
	for c, err := range w.History() {
		if err != nil || len(list) == statesKept/2 {
			break
		}
		list = append(list, c)
	}
	for _, c := range slices.Backward(list) {
		known = st.add(w, known, c.Digest, &state{id: c.Hash})
	}
	return known
}

// same compares two states name by name. A state that cannot be read counts as
// different.
func same(w *workspace.Workspace, a, b *state) bool {
	for _, s := range []*state{a, b} {
		if s.snap == nil {
			snap, err := w.At(s.id)
			if err != nil {
				return false
			}
			s.snap = snap
		}
	}
	return a.snap.Same(b.snap)
}
