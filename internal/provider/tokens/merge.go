package tokens

import (
	"math"
	"slices"
)

// A merger merges the bytes of a piece into tokens. It keeps its memory for the next
// piece. At first each byte is a part; a merge joins two neighbouring parts.
type merger struct {
	// For the part that begins at i, next[i] is the start of the next part, and
	// prev[i] is the start of the part before.
	next, prev []int32
	// tree is a binary tree of minimums over n leaves. The leaf tree[n+i] holds the
	// rank of the part at i joined with the next part. The rank is above, and i is in
	// the low 32 bits, so the leftmost of equal ranks wins. tree[1] is the minimum.
	tree []uint64
}

// never is the rank of two parts that are no token together.
const never = math.MaxUint64

// merge splits piece into tokens. It leaves them in m.next and returns their
// number.
func (m *merger) merge(t *table, piece string) int {
	n := len(piece)
	m.next = slices.Grow(m.next[:0], n)[:n]
	m.prev = slices.Grow(m.prev[:0], n+1)[:n+1]
	m.tree = slices.Grow(m.tree[:0], 2*n)[:2*n]
	for i := range n {
		m.next[i], m.prev[i+1] = int32(i+1), int32(i)
	}
	for i := range n {
		m.tree[n+i] = m.rank(t, piece, int32(i))
	}
	// The tree finds the least rank in one step, so a long piece costs n log n and not n squared.
	for i := n - 1; i > 0; i-- {
		m.tree[i] = min(m.tree[2*i], m.tree[2*i+1])
	}
	// Each round joins the two neighbours with the least rank.
	parts := n
	for least := m.tree[1]; least != never; least = m.tree[1] {
		i := int32(uint32(least))
		gone := m.next[i]
		m.next[i] = m.next[gone]
		m.prev[m.next[i]] = i
		// Three places change: the part that is gone, the longer part, and the part before it.
		m.set(gone, never)
		m.set(i, m.rank(t, piece, i))
		if i > 0 {
			m.set(m.prev[i], m.rank(t, piece, m.prev[i]))
		}
		parts--
	}
	return parts
}

// rank returns the rank of the part at i joined with the next part.
func (m *merger) rank(t *table, piece string, i int32) uint64 {
	j := m.next[i]
	if int(j) == len(piece) {
		return never
	}
	id, ok := t.id(piece[i:m.next[j]])
	if !ok {
		return never
	}
	return uint64(id)<<32 | uint64(i)
}

func (m *merger) set(i int32, rank uint64) {
	at := len(m.tree)/2 + int(i)
	for m.tree[at] = rank; at > 1; at /= 2 {
		least := min(m.tree[at], m.tree[at^1])
		// Nothing above changes either.
		if m.tree[at/2] == least {
			return
		}
		m.tree[at/2] = least
	}
}
