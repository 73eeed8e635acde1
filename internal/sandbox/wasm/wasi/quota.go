package wasi

import "github.com/tetratelabs/wazero/sys"

// A Quota bounds what a run may newly hold on disk. What the run itself made
// and removed again is given back; what was there before never gives room.
type Quota struct {
	Bytes int64 // left
	Files int   // left
	Hit   bool  // something was refused

	nodes map[nodeKey]*node
}

type nodeKey struct{ dev, ino uint64 }

// A node is a file that the run wrote or made, whatever its name is now.
type node struct {
	key     nodeKey
	size    int64 // as this run knows it
	charged int64 // bytes of it that were taken from the quota
	created bool  // it was taken from the quota's files
	opens   int
	gone    bool // has no name any more
}

// node finds or begins the account of a file. A host that does not number its
// files gets an account for each opening, so nothing is ever given back there.
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

// resize takes the bytes by which n grows to size, or gives back those that it
// shrinks, and reports whether there was room.
func (q *Quota) resize(n *node, size int64) bool {
	d := size - n.size
	if d > q.Bytes {
		q.Hit = true
		return false
	}
	if d < 0 {
		d = -min(-d, n.charged)
	}
	q.Bytes -= d
	n.charged += d
	n.size = size
	return true
}

// removed is called when the file lost its last name.
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

// settle ends an account that nothing can change any more.
func (q *Quota) settle(n *node) {
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
