package workspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Hash is a SHA-256 sum: of content (as a Git blob), of a Git object, or of
// a directory tree.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero tells that h names nothing.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads what String writes.
func ParseHash(s string) (h Hash, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, errorf(Refused, "", "expected a commit as 64 hexadecimal digits, found %q", clip(s))
	}
	return Hash(b), nil
}

// Kind says what a name in a directory is.
type Kind byte

// The kinds. Other is what a workspace never publishes: a FIFO, a socket, a
// device, or the root of another mount. What a person has of them stays.
const (
	File    Kind = 'f'
	Dir     Kind = 'd'
	Symlink Kind = 'l'
	Other   Kind = 'o'
)

// An Entry is what a workspace knows of one name.
type Entry struct {
	Kind   Kind
	Mode   fs.FileMode // the permission bits, setuid, setgid and sticky
	Size   int64       // of a File
	Time   int64       // last modification, nanoseconds since 1970
	Hash   Hash        // of the content of a File, of the target of a Symlink; zero when ignored
	Target string      // of a Symlink
	Group  uint64      // names with one Group, not 0, share one file
}

// ModTime is Time as the standard library has it.
func (e Entry) ModTime() time.Time { return time.Unix(0, e.Time) }

// same tells that a and b hold the same: everything but time and sharing.
func (e Entry) same(o Entry) bool {
	return e.Kind == o.Kind && e.Mode == o.Mode && e.Size == o.Size && e.Hash == o.Hash && e.Target == o.Target
}

// print is what the file system says of a file without reading it. While it
// stays the same the content is believed to stay the same.
type print struct {
	ino   uint64
	ctime int64
	nlink uint32
	uid   uint32
	gid   uint32
}

// An entry is one name in a node.
type entry struct {
	name string
	Entry
	fp      print
	dir     *node // of a Dir
	ignored bool  // kept out of digest and history
	racy    bool  // may have changed after it was read without its print telling: read it again
}

// A node is one directory. It is never changed once it can be seen by two, so
// that two snapshots share what did not change and comparing them costs what
// differs.
type node struct {
	ents   []entry // sorted by name
	sum    Hash    // digest, computed when first asked for
	tree   Hash    // its Git tree, computed when first recorded
	meta   Hash    // the Git tree that holds its modes and times
	group  bool    // some entry below has a Group
	hasSum bool
}

func (n *node) find(name string) (int, bool) {
	if n == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(n.ents, name, func(e entry, s string) int { return cmp.Compare(e.name, s) })
}

// root is the entry of a whole tree; its name is empty.
func rootOf(n *node, e Entry) entry { e.Kind = Dir; return entry{Entry: e, dir: n} }

// lookup finds p below e. "." is e itself.
func (e *entry) lookup(p string) *entry {
	for p != "." && p != "" {
		name, rest, _ := strings.Cut(p, "/")
		i, ok := e.dir.find(name)
		if !ok {
			return nil
		}
		e, p = &e.dir.ents[i], rest
	}
	return e
}

// An edit says what p becomes: nil, gone with all below it. An entry of a
// directory whose dir is nil keeps the children there are.
type edit struct {
	path string
	e    *entry
}

// merge gives the tree e with edits, which are sorted by path, applied; a
// later edit wins. What lies beside them is shared with e.
func (e entry) merge(edits []edit) entry {
	for len(edits) > 0 && (edits[0].path == "." || edits[0].path == "") {
		kids := e.dir
		e = *edits[0].e
		e.name = ""
		if e.dir == nil {
			e.dir = kids
		}
		edits = edits[1:]
	}
	e.dir = e.dir.merge(edits, 0)
	return e
}

// merge is entry.merge for the names of one directory; skip is how much of
// every path leads to it.
func (n *node) merge(edits []edit, skip int) *node {
	if len(edits) == 0 {
		if n == nil {
			return &node{}
		}
		return n
	}
	out := &node{}
	var old []entry
	if n != nil {
		old = n.ents
	}
	for len(edits) > 0 {
		name, _, _ := strings.Cut(edits[0].path[skip:], "/")
		k := 1
		for k < len(edits) && under(edits[k].path[skip:], name) {
			k++
		}
		group := edits[:k]
		edits = edits[k:]
		for len(old) > 0 && old[0].name < name {
			out.ents = append(out.ents, old[0])
			old = old[1:]
		}
		cur := &entry{}
		if len(old) > 0 && old[0].name == name {
			c := old[0]
			cur, old = &c, old[1:]
		}
		for len(group) > 0 && len(group[0].path) == skip+len(name) {
			if group[0].e == nil {
				cur = &entry{}
			} else {
				c := *group[0].e
				if c.Kind == Dir && c.dir == nil {
					c.dir = cur.dir
				}
				cur = &c
			}
			group = group[1:]
		}
		cur.name = name
		if cur.Kind == Dir {
			cur.dir = cur.dir.merge(group, skip+len(name)+1)
		}
		if cur.Kind != 0 {
			out.ents = append(out.ents, *cur)
		}
	}
	out.ents = append(out.ents, old...)
	return out.done()
}

// under tells that p is name or lies below it.
func under(p, name string) bool {
	return strings.HasPrefix(p, name) && (len(p) == len(name) || p[len(name)] == '/')
}

// byPath orders paths so that everything below a directory follows it at once.
func byPath(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == ".":
		return -1
	case b == ".":
		return 1
	}
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			switch {
			case a[i] == '/':
				return -1
			case b[i] == '/':
				return 1
			}
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// done closes a node that was just filled.
func (n *node) done() *node {
	for i := range n.ents {
		if e := &n.ents[i]; e.Group != 0 || e.dir != nil && e.dir.group {
			n.group = true
			return n
		}
	}
	return n
}

// digestSum is the hash of the digest. A test weakens it to prove that nothing
// is decided by a digest alone.
var digestSum = sha256.Sum256

// digest is the Merkle digest of everything below n that is not ignored:
// names, kinds, modes, contents and targets; neither times nor owners. Nodes
// that did not change keep theirs.
func (n *node) digest() Hash {
	if n == nil {
		n = &node{}
	}
	if n.hasSum {
		return n.sum
	}
	b := make([]byte, 0, 64*len(n.ents))
	for i := range n.ents {
		e := &n.ents[i]
		if e.ignored || e.Kind == Other {
			continue
		}
		b = append(b, byte(e.Kind))
		b = binary.BigEndian.AppendUint32(b, uint32(e.Mode))
		b = binary.BigEndian.AppendUint32(b, uint32(len(e.name)))
		b = append(b, e.name...)
		h := e.Hash
		if e.Kind == Dir {
			h = e.dir.digest()
		}
		b = append(b, h[:]...)
	}
	n.sum, n.hasSum = digestSum(b), true
	return n.sum
}

// A Snapshot is what a workspace held at one moment. It never changes, and it
// shares with other snapshots of its workspace what did not change between them.
type Snapshot struct {
	root entry
	sum  Hash
}

func snapshot(root entry) *Snapshot {
	return &Snapshot{root: root, sum: root.dir.digest()}
}

// Digest sums up the content: names, kinds, permissions, bytes and targets; not
// times, owners or which names share a file. It is a hint: equal digests are
// confirmed with [Snapshot.Same] where something hangs on it.
func (s *Snapshot) Digest() Hash { return s.sum }

// Same tells that s and o hold the same content, name for name, whatever their
// digests say.
func (s *Snapshot) Same(o *Snapshot) bool {
	for range differ(&s.root, &o.root, false) {
		return false
	}
	return true
}

// Identical is Same with times, and with the same names sharing files.
func (s *Snapshot) Identical(o *Snapshot) bool {
	if s.root.Mode != o.root.Mode || s.root.Time != o.root.Time {
		return false
	}
	for range differ(&s.root, &o.root, true) {
		return false
	}
	return s.root.dir == o.root.dir || slices.EqualFunc(s.groups(), o.groups(), slices.Equal)
}

// groups lists the names that share a file, in an order that does not depend
// on which file it is.
func (s *Snapshot) groups() [][]string {
	by := map[uint64][]string{}
	var order []uint64
	for p, e := range s.root.walk(".") {
		if e.Group != 0 {
			if by[e.Group] == nil {
				order = append(order, e.Group)
			}
			by[e.Group] = append(by[e.Group], p)
		}
	}
	var out [][]string
	for _, g := range order {
		if len(by[g]) > 1 {
			out = append(out, by[g])
		}
	}
	return out
}

// Lookup finds a name, given with slashes and relative to the workspace.
func (s *Snapshot) Lookup(p string) (Entry, bool) {
	if e := s.root.lookup(path.Clean(p)); e != nil {
		return e.Entry, true
	}
	return Entry{}, false
}

// All gives every name but the root, a directory before what it holds.
// Ignored names are left out.
func (s *Snapshot) All() iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		for p, e := range s.root.walk(".") {
			if p != "." && !e.ignored && !yield(p, e.Entry) {
				return
			}
		}
	}
}

// Diff says what changes from s to o, sorted by path. Times of directories are
// left out: they follow from the rest.
func (s *Snapshot) Diff(o *Snapshot) []Change {
	var out []Change
	for p, d := range differ(&s.root, &o.root, true) {
		c := Change{Path: p}
		if d[0] != nil {
			c.Before = &d[0].Entry
		}
		if d[1] != nil {
			c.After = &d[1].Entry
		}
		if c.Before == nil || c.After == nil || c.After.Kind != Dir || !c.Before.same(*c.After) {
			out = append(out, c)
		}
	}
	return out
}

// A Change is one name before and after; nil where there is none.
type Change struct {
	Path   string
	Before *Entry
	After  *Entry
}

// walk gives e and everything below it, parents first.
func (e *entry) walk(p string) iter.Seq2[string, *entry] {
	return func(yield func(string, *entry) bool) { e.each(p, yield) }
}

func (e *entry) each(p string, yield func(string, *entry) bool) bool {
	if !yield(p, e) {
		return false
	}
	if e.dir == nil {
		return true
	}
	for i := range e.dir.ents {
		c := &e.dir.ents[i]
		if !c.each(path.Join(p, c.name), yield) {
			return false
		}
	}
	return true
}

// differ gives every name below a and b that is not the same in both, sorted
// by path; times of files and directories count when times is set. It
// compares entries, never digests; it passes over a directory only when both
// sides hold the very same node.
func differ(a, b *entry, times bool) iter.Seq2[string, [2]*entry] {
	return func(yield func(string, [2]*entry) bool) { differNode(".", a.dir, b.dir, times, yield) }
}

func differNode(p string, a, b *node, times bool, yield func(string, [2]*entry) bool) bool {
	if a == b {
		return true
	}
	var x, y []entry
	if a != nil {
		x = a.ents
	}
	if b != nil {
		y = b.ents
	}
	for len(x) > 0 || len(y) > 0 {
		var ex, ey *entry
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].name < y[0].name:
			ex, x = &x[0], x[1:]
		case len(x) == 0 || y[0].name < x[0].name:
			ey, y = &y[0], y[1:]
		default:
			ex, ey, x, y = &x[0], &y[0], x[1:], y[1:]
		}
		if !differEntry(p, ex, ey, times, yield) {
			return false
		}
	}
	return true
}

func differEntry(p string, x, y *entry, times bool, yield func(string, [2]*entry) bool) bool {
	var nx, ny *node
	any := x
	if x != nil && !x.ignored {
		nx = x.dir
	} else {
		x = nil
	}
	if y != nil && !y.ignored {
		ny, any = y.dir, y
	} else {
		y = nil
	}
	if x == nil && y == nil {
		return true
	}
	p = path.Join(p, any.name)
	if x == nil || y == nil || !x.same(y.Entry) || times && x.Time != y.Time {
		if !yield(p, [2]*entry{x, y}) {
			return false
		}
	}
	return differNode(p, nx, ny, times, yield)
}

func blobHead(h hash.Hash, size int64) {
	h.Write(append(strconv.AppendInt([]byte("blob "), size, 10), 0))
}

func blobHash(b []byte) (out Hash) {
	h := sha256.New()
	blobHead(h, int64(len(b)))
	h.Write(b)
	h.Sum(out[:0])
	return out
}
