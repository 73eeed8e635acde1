package wasi

import "github.com/tetratelabs/wazero/sys"

// A Quota bounds what a run may add on disk. Removing a file that the run made
// returns its size to the quota; removing an older file does not.
type Quota struct {
	Bytes int64 // left
	Files int   // left
	Hit   bool  // something was refused

	nodes map[nodeKey]*node
}

type nodeKey struct{ dev, ino uint64 }

// A node is a file that the run wrote or made, under any name.
type node struct {
	key     nodeKey
	size    int64 // as far as this run knows
	charged int64 // bytes that count against the quota
	created bool  // it counts against the number of files
	opens   int
	gone    bool // the file has no name any more
}

// node returns the node of a file. If the host has no inode numbers, every opening
// gets a new node, and nothing is returned to the quota.
func (q *Quota) node(st sys.Stat_t) *node {
	k := nodeKey{st.Dev, uint64(st.Ino)}
	if n := q.nodes[k]; n != nil && k.ino != 0 {
		return n
	}
	n := &node{key: k, size: st.Size}
	if k.ino != 0 {
		if q.nodes == nil {
			q.nodes = make(map[nodeKey]*node)
		}
		q.nodes[k] = n
	}
	return n
}

func (q *Quota) takeFile() bool {
	if q.Files <= 0 {
		q.Hit = true
		return false
	}
	q.Files--
	return true
}

// resize counts the change of n to size, and reports whether the quota allows it.
func (q *Quota) resize(n *node, size int64) bool {
	d := size - n.size
	if d > q.Bytes {
		q.Hit = true
		return false
	}
	if d < 0 {
		// Only bytes that this run added come back. An older file that shrinks gives nothing.
		d = -min(-d, n.charged)
	}
	q.Bytes -= d
	n.charged += d
	n.size = size
	return true
}

// removed counts a file that lost its last name.
func (q *Quota) removed(st sys.Stat_t) {
	if n := q.nodes[nodeKey{st.Dev, uint64(st.Ino)}]; n != nil && st.Ino != 0 {
		n.gone = true
		q.settle(n)
	}
}

func (q *Quota) closed(n *node) {
	n.opens--
	q.settle(n)
}

// settle drops a node that nothing can change any more.
func (q *Quota) settle(n *node) {
	// A removed file keeps its bytes on disk while it is open.
	if n.opens > 0 {
		return
	}
	if n.gone {
		q.Bytes += n.charged
		if n.created {
			q.Files++
		}
	}
	if n.gone || !n.created && n.charged == 0 {
		delete(q.nodes, n.key)
	}
}
