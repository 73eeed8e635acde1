package git

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

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Recorder collects the Git objects of directories that the history lacks.
type Recorder struct {
	h     *Objects
	objs  []object
	seen  map[fsys.Hash]bool
	bytes int
	file  Opener
}

// An Opener opens the content of the file e at p.
type Opener func(p string, e *fsys.Item) (*os.File, error)

// NewRecorder returns a Recorder that reads content with file.
func NewRecorder(h *History, file Opener) *Recorder {
	return &Recorder{h: h.Objects, seen: map[fsys.Hash]bool{}, file: file}
}

// ReadFrom sets where content is read from now on.
func (r *Recorder) ReadFrom(file Opener) { r.file = file }

// addObject adds an object once.
func (r *Recorder) addObject(typ byte, data []byte) fsys.Hash {
	id := objectID(typ, data)
	if !r.seen[id] && !r.h.has(id) {
		r.seen[id] = true
		r.objs = append(r.objs, object{id: id, typ: typ, data: data})
	}
	return id
}

// Tree records n and everything below it. old is the node that was recorded at
// this path before.
func (r *Recorder) Tree(at string, n, old *fsys.Node) error {
	// Shared nodes never change, so an unchanged directory costs nothing.
	if n == old && !n.Tree.IsZero() {
		return nil
	}
	for i := range n.Ents {
		e := &n.Ents[i]
		// An ignored name has no hash, and history must not hold it.
		if e.Ignored {
			continue
		}
		var was *fsys.Item
		if j, ok := old.Find(e.Name); ok {
			was = &old.Ents[j]
		}
		p := path.Join(at, e.Name)
		switch {
		case e.Kind == fsys.Dir:
			var wasDir *fsys.Node
			if was != nil {
				wasDir = was.Dir
			}
			if err := r.Tree(p, e.Dir, wasDir); err != nil {
				return err
			}
		case was != nil && was.Hash == e.Hash && !was.Ignored:
		case e.Kind == fsys.Symlink:
			r.addObject(typBlob, []byte(e.Target))
		default:
			if err := r.addFile(p, e); err != nil {
				return err
			}
		}
	}
	n.Tree = r.addObject(typTree, encodeTree(n))
	n.Meta = r.addObject(typTree, r.metaTree(n))
	return nil
}

// smallFile is the size up to which files are read at once. Larger files are read
// when the pack is written.
const smallFile = 64 << 10

// addFile records the content of a file.
func (r *Recorder) addFile(p string, e *fsys.Item) error {
	if r.seen[e.Hash] || r.h.has(e.Hash) {
		return nil
	}
	r.seen[e.Hash] = true
	o := object{id: e.Hash, typ: typBlob}
	// Large files are streamed into the pack, so that a commit never holds them in memory.
	if e.Size > smallFile || r.bytes > 64<<20 {
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
		return fsys.Errorf(fsys.Busy, p, "another program writes to it while it is recorded: %v", err)
	}
	// The name of the object is a hash from the scan. Other content under it would damage the history.
	if fsys.Blob(o.data) != e.Hash {
		return fsys.Errorf(fsys.Busy, p, "another program writes to it while it is recorded")
	}
	r.bytes += len(o.data)
	r.objs = append(r.objs, o)
	return nil
}

// encodeTree encodes n for Git. Git sorts a directory as if its name ended with a
// slash.
func encodeTree(n *fsys.Node) []byte {
	type line struct {
		key  string
		mode string
		name string
		id   fsys.Hash
	}
	lines := make([]line, 0, len(n.Ents))
	size := 0
	for i := range n.Ents {
		e := &n.Ents[i]
		l := line{e.Name, "100644", e.Name, e.Hash}
		switch {
		case e.Ignored || e.Kind == fsys.Other:
			continue
		case e.Kind == fsys.Dir:
			l.key, l.mode, l.id = e.Name+"/", "40000", e.Dir.Tree
		case e.Kind == fsys.Symlink:
			l.mode = "120000"
		case e.Mode&0o100 != 0:
			l.mode = "100755"
		}
		// A blank, a zero byte and 32 bytes of hash.
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

// metaTree encodes what encodeTree leaves out, as a tree of its own. The blob "="
// holds one record for each name; a directory is a tree with "d" before its name.
func (r *Recorder) metaTree(n *fsys.Node) []byte {
	var meta, dirs []byte
	for i := range n.Ents {
		e := &n.Ents[i]
		if e.Ignored || e.Kind == fsys.Other {
			continue
		}
		meta = binary.AppendUvarint(meta, uint64(len(e.Name)))
		meta = append(meta, e.Name...)
		meta = append(meta, byte(e.Kind))
		meta = binary.AppendUvarint(meta, uint64(e.Mode))
		meta = binary.AppendVarint(meta, e.Time)
		meta = binary.AppendUvarint(meta, e.Group)
		meta = binary.AppendUvarint(meta, uint64(e.Size))
		if e.Kind == fsys.Dir {
			dirs = append(dirs, "40000 d"+e.Name+"\x00"...)
			dirs = append(dirs, e.Dir.Meta[:]...)
		}
	}
	id := r.addObject(typBlob, meta)
	head := append([]byte("100644 =\x00"), id[:]...)
	return append(head, sortTree(dirs)...)
}

// sortTree sorts the directories of a tree as Git does.
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

// State reads the state of c. It reads only directories that differ from have, and
// shares the others with it.
func (h *History) State(c *Commit, have *fsys.Node) (fsys.Item, error) {
	n, err := h.loadNode(".", c.tree, c.meta, have)
	return fsys.Root(n, fsys.Entry{}), err
}

// loadNode reads one directory and everything below it.
func (h *History) loadNode(at string, content, meta fsys.Hash, have *fsys.Node) (*fsys.Node, error) {
	// Equal names mean equal content, so the known node is shared.
	if have != nil && have.Tree == content && have.Meta == meta {
		return have, nil
	}
	bad := func(why error) error {
		return fsys.Errorf(fsys.Damaged, at, "the history does not read back: %v", why)
	}
	ids, err := h.treeOf(content)
	if err != nil {
		return nil, bad(err)
	}
	sub, err := h.treeOf(meta)
	if err != nil {
		return nil, bad(err)
	}
	// The record of modes leads, because it has the order and the kinds of all names.
	_, b, err := h.Objects.read(sub["="])
	if err != nil {
		return nil, bad(err)
	}
	n := &fsys.Node{Tree: content, Meta: meta}
	for r := bytes.NewReader(b); r.Len() > 0; {
		e, err := readMeta(r)
		if err != nil {
			return nil, bad(err)
		}
		// Both trees were written together. A name in only one of them means damage.
		id, ok := ids[e.Name]
		if !ok {
			return nil, bad(fmt.Errorf("%q has modes but no content", e.Name))
		}
		p := path.Join(at, e.Name)
		switch e.Kind {
		case fsys.Dir:
			var sib *fsys.Node
			if i, ok := have.Find(e.Name); ok {
				sib = have.Ents[i].Dir
			}
			e.Dir, err = h.loadNode(p, id, sub["d"+e.Name], sib)
		case fsys.Symlink:
			var t []byte
			_, t, err = h.Objects.read(id)
			e.Hash, e.Target = id, string(t)
		default:
			e.Hash = id
		}
		if err != nil {
			return nil, err
		}
		n.Ents = append(n.Ents, e)
	}
	return n.Done(), nil
}

func readMeta(r *bytes.Reader) (e fsys.Item, err error) {
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
	e.Name, e.Kind, e.Mode, e.Size = string(name), fsys.Kind(kind), fs.FileMode(mode), int64(size)
	return e, err
}

// treeOf reads a tree of Git: the hashes by name.
func (h *History) treeOf(id fsys.Hash) (map[string]fsys.Hash, error) {
	typ, b, err := h.Objects.read(id)
	if err != nil {
		return nil, err
	}
	if typ != typTree {
		return nil, fmt.Errorf("expected a tree, found a %s", typNames[typ])
	}
	out := map[string]fsys.Hash{}
	for len(b) > 0 {
		sp, nul := bytes.IndexByte(b, ' '), bytes.IndexByte(b, 0)
		if sp < 0 || nul < sp || len(b) < nul+33 {
			return nil, fmt.Errorf("a tree is cut")
		}
		if _, err := strconv.ParseUint(string(b[:sp]), 8, 32); err != nil {
			return nil, err
		}
		out[string(b[sp+1:nul])] = fsys.Hash(b[nul+1:])
		b = b[nul+33:]
	}
	return out, nil
}

// Commit completes c for the state n, after head, and adds it and its companion
// with modes and times. It returns the new head.
func (r *Recorder) Commit(c *Commit, n *fsys.Node, head Head) Head {
	head.Seq++
	c.tree, c.meta, c.Parent, c.Seq = n.Tree, n.Meta, head.Commit, head.Seq
	c.Hash = r.addObject(typCommit, c.encode())
	side := Commit{tree: n.Meta, Parent: head.Side, Kind: c.Kind, Seq: c.Seq, Time: c.Time, meta: n.Meta, Digest: c.Digest,
		Note: Note{Message: "Modes and times of " + c.Hash.String()}}
	head.Commit, head.Side = c.Hash, r.addObject(typCommit, side.encode())
	return head
}

// Write writes the recorded objects as one pack. The caller syncs the pack, then
// calls Adopt.
func (r *Recorder) Write() (*Pack, error) { return writePack(r.h.PackDir(), r.objs) }

// Empty reports whether there is nothing to write.
func (r *Recorder) Empty() bool { return len(r.objs) == 0 }

// Holds reports whether c recorded the state n.
func (c *Commit) Holds(n *fsys.Node) bool { return c.tree == n.Tree && c.Digest == n.Digest() }
