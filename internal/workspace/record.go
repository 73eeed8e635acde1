package workspace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A recorder turns directories into Git objects: those that the history does
// not have yet.
type recorder struct {
	h     *objects
	objs  []object
	seen  map[Hash]bool
	bytes int
	file  Opener
}

// An Opener opens the content of the file e at p.
type Opener func(p string, e *entry) (*os.File, error)

func newRecorder(h *history, file Opener) *recorder {
	return &recorder{h: &h.objects, seen: map[Hash]bool{}, file: file}
}

// from says where contents are found from now on.
func (r *recorder) from(file Opener) { r.file = file }

// put adds an object once.
func (r *recorder) put(typ byte, data []byte) Hash {
	id := objectID(typ, data)
	if !r.seen[id] && !r.h.has(id) {
		r.seen[id] = true
		r.objs = append(r.objs, object{id: id, typ: typ, data: data})
	}
	return id
}

// tree records n and what lies below; old is what was recorded at its place
// before.
func (r *recorder) tree(at string, n, old *node) error {
	if n == old && !n.tree.IsZero() {
		return nil
	}
	for i := range n.ents {
		e := &n.ents[i]
		if e.ignored {
			continue
		}
		var was *entry
		if j, ok := old.find(e.name); ok {
			was = &old.ents[j]
		}
		p := path.Join(at, e.name)
		switch {
		case e.Kind == Dir:
			var wasDir *node
			if was != nil {
				wasDir = was.dir
			}
			if err := r.tree(p, e.dir, wasDir); err != nil {
				return err
			}
		case was != nil && was.Hash == e.Hash && !was.ignored:
		case e.Kind == Symlink:
			r.put(typBlob, []byte(e.Target))
		default:
			if err := r.blob(p, e); err != nil {
				return err
			}
		}
	}
	n.tree = r.put(typTree, n.gitTree())
	n.meta = r.put(typTree, r.metaTree(n))
	return nil
}

// small files are read at once, others when the pack is written.
const small = 64 << 10

func (r *recorder) blob(p string, e *entry) error {
	if r.seen[e.Hash] || r.h.has(e.Hash) {
		return nil
	}
	r.seen[e.Hash] = true
	o := object{id: e.Hash, typ: typBlob}
	if e.Size > small || r.bytes > 64<<20 {
		size, open := e.Size, r.file
		o.file = func() (*os.File, int64, error) {
			f, err := open(p, e)
			return f, size, err
		}
		r.objs = append(r.objs, o)
		return nil
	}
	f, err := r.file(p, e)
	if err != nil {
		return err
	}
	defer f.Close()
	o.data = make([]byte, e.Size)
	if n, err := f.ReadAt(o.data, 0); n < len(o.data) {
		return errorf(Busy, p, "another program writes to it while it is recorded: %v", err)
	}
	if blobHash(o.data) != e.Hash {
		return errorf(Busy, p, "another program writes to it while it is recorded")
	}
	r.bytes += len(o.data)
	r.objs = append(r.objs, o)
	return nil
}

// gitTree encodes n for Git, whose order puts a directory where its name with
// a slash would stand.
func (n *node) gitTree() []byte {
	type line struct {
		key  string
		mode string
		name string
		id   Hash
	}
	lines := make([]line, 0, len(n.ents))
	size := 0
	for i := range n.ents {
		e := &n.ents[i]
		l := line{e.name, "100644", e.name, e.Hash}
		switch {
		case e.ignored || e.Kind == Other:
			continue
		case e.Kind == Dir:
			l.key, l.mode, l.id = e.name+"/", "40000", e.dir.tree
		case e.Kind == Symlink:
			l.mode = "120000"
		case e.Mode&0o100 != 0:
			l.mode = "100755"
		}
		size += len(l.mode) + len(l.name) + 34
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b line) int { return strings.Compare(a.key, b.key) })
	b := make([]byte, 0, size)
	for _, l := range lines {
		b = append(b, l.mode...)
		b = append(b, ' ')
		b = append(b, l.name...)
		b = append(b, 0)
		b = append(b, l.id[:]...)
	}
	return b
}

// metaTree encodes what gitTree leaves out, as a tree of its own: the blob "="
// with one record per name, and one tree per directory, its name after a "d".
func (r *recorder) metaTree(n *node) []byte {
	var meta, dirs []byte
	for i := range n.ents {
		e := &n.ents[i]
		if e.ignored || e.Kind == Other {
			continue
		}
		meta = binary.AppendUvarint(meta, uint64(len(e.name)))
		meta = append(meta, e.name...)
		meta = append(meta, byte(e.Kind))
		meta = binary.AppendUvarint(meta, uint64(e.Mode))
		meta = binary.AppendVarint(meta, e.Time)
		meta = binary.AppendUvarint(meta, e.Group)
		meta = binary.AppendUvarint(meta, uint64(e.Size))
		if e.Kind == Dir {
			dirs = append(dirs, "40000 d"+e.name+"\x00"...)
			dirs = append(dirs, e.dir.meta[:]...)
		}
	}
	id := r.put(typBlob, meta)
	head := append([]byte("100644 =\x00"), id[:]...)
	return append(head, sortTree(dirs)...)
}

// sortTree puts the directories of a tree into Git's order.
func sortTree(b []byte) []byte {
	var items [][]byte
	for len(b) > 0 {
		n := bytes.IndexByte(b, 0) + 33
		items = append(items, b[:n])
		b = b[n:]
	}
	key := func(x []byte) string { return string(x[6:len(x)-33]) + "/" }
	slices.SortFunc(items, func(x, y []byte) int { return strings.Compare(key(x), key(y)) })
	return bytes.Join(items, nil)
}

// state reads the state of c. Directories that have hold (same objects of Git)
// are shared with it, so that reading costs what differs.
func (h *history) state(c *Commit, have *node) (entry, error) {
	n, err := h.loadNode(".", c.tree, c.meta, have)
	return rootOf(n, Entry{}), err
}

func (h *history) loadNode(at string, tree, meta Hash, have *node) (*node, error) {
	if have != nil && have.tree == tree && have.meta == meta {
		return have, nil
	}
	bad := func(why error) error {
		return errorf(Damaged, at, "the history does not read back: %v", why)
	}
	ids, err := h.treeOf(tree)
	if err != nil {
		return nil, bad(err)
	}
	sub, err := h.treeOf(meta)
	if err != nil {
		return nil, bad(err)
	}
	_, b, err := h.read(sub["="])
	if err != nil {
		return nil, bad(err)
	}
	n := &node{tree: tree, meta: meta}
	for r := bytes.NewReader(b); r.Len() > 0; {
		e, err := readMeta(r)
		if err != nil {
			return nil, bad(err)
		}
		id, ok := ids[e.name]
		if !ok {
			return nil, bad(fmt.Errorf("%q has modes but no content", e.name))
		}
		p := path.Join(at, e.name)
		switch e.Kind {
		case Dir:
			var sib *node
			if i, ok := have.find(e.name); ok {
				sib = have.ents[i].dir
			}
			e.dir, err = h.loadNode(p, id, sub["d"+e.name], sib)
		case Symlink:
			var t []byte
			_, t, err = h.read(id)
			e.Hash, e.Target = id, string(t)
		default:
			e.Hash = id
		}
		if err != nil {
			return nil, err
		}
		n.ents = append(n.ents, e)
	}
	return n.done(), nil
}

func readMeta(r *bytes.Reader) (e entry, err error) {
	k, err := binary.ReadUvarint(r)
	if err != nil || k > uint64(r.Len()) {
		return e, fmt.Errorf("a record of modes is cut: %v", err)
	}
	name := make([]byte, k)
	r.Read(name)
	kind, _ := r.ReadByte()
	mode, _ := binary.ReadUvarint(r)
	e.Time, _ = binary.ReadVarint(r)
	e.Group, _ = binary.ReadUvarint(r)
	size, err := binary.ReadUvarint(r)
	e.name, e.Kind, e.Mode, e.Size = string(name), Kind(kind), fs.FileMode(mode), int64(size)
	return e, err
}

// treeOf reads one of Git's trees.
func (h *history) treeOf(id Hash) (map[string]Hash, error) {
	typ, b, err := h.read(id)
	if err != nil {
		return nil, err
	}
	if typ != typTree {
		return nil, fmt.Errorf("expected a tree, found a %s", typNames[typ])
	}
	out := map[string]Hash{}
	for len(b) > 0 {
		sp, nul := bytes.IndexByte(b, ' '), bytes.IndexByte(b, 0)
		if sp < 0 || nul < sp || len(b) < nul+33 {
			return nil, fmt.Errorf("a tree is cut")
		}
		if _, err := strconv.ParseUint(string(b[:sp]), 8, 32); err != nil {
			return nil, err
		}
		out[string(b[sp+1:nul])] = Hash(b[nul+1:])
		b = b[nul+33:]
	}
	return out, nil
}

// commit completes c for the state n, after head, and adds it with its
// companion. It gives the new head.
func (r *recorder) commit(c *Commit, n *node, head Head) Head {
	head.Seq++
	c.tree, c.meta, c.Parent, c.Seq = n.tree, n.meta, head.Commit, head.Seq
	c.Hash = r.put(typCommit, c.encode())
	side := Commit{tree: n.meta, Parent: head.Side, Kind: c.Kind, Seq: c.Seq, Time: c.Time, meta: n.meta, Digest: c.Digest,
		Note: Note{Message: "Modes and times of " + c.Hash.String()}}
	head.Commit, head.Side = c.Hash, r.put(typCommit, side.encode())
	return head
}

// write writes what was recorded as one pack, neither synced nor known yet.
func (r *recorder) write() (*pack, error) { return writePack(r.h.packDir(), r.objs) }

// empty tells that there is nothing to write.
func (r *recorder) empty() bool { return len(r.objs) == 0 }

// holds tells that c recorded n.
func (c *Commit) holds(n *node) bool { return c.tree == n.tree && c.Digest == n.digest() }
