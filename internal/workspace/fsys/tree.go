package fsys

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
		return h, Errorf(Refused, "", "expected a commit as 64 hexadecimal digits, found %q", Clip(s))
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

// Same tells that a and b hold the same: everything but time and sharing.
func (e Entry) Same(o Entry) bool {
	return e.Kind == o.Kind && e.Mode == o.Mode && e.Size == o.Size && e.Hash == o.Hash && e.Target == o.Target
}

// Print is what the file system says of a file without reading it. While it
// stays the same the content is believed to stay the same.
type Print struct {
	Ino   uint64
	Ctime int64
	Nlink uint32
	Uid   uint32
	Gid   uint32
}

// An Item is one name in a node.
type Item struct {
	Name string
	Entry
	Print   Print
	Dir     *Node // of a Dir
	Ignored bool  // kept out of digest and history
	Racy    bool  // may have changed after it was read without its print telling: read it again
}

// A Node is one directory. It is never changed once it can be seen by two, so
// that two snapshots share what did not change and comparing them costs what
// differs.
type Node struct {
	Ents   []Item // sorted by name
	sum    Hash   // digest, computed when first asked for
	Tree   Hash   // its Git tree, computed when first recorded
	Meta   Hash   // the Git tree that holds its modes and times
	group  bool   // some entry below has a Group
	hasSum bool
}

func (n *Node) Find(name string) (int, bool) {
	if n == nil {
		return 0, false
	}
	lo, hi := 0, len(n.Ents)
	for lo < hi { // by hand: an Item is large, and is not copied for each look
		if mid := (lo + hi) / 2; n.Ents[mid].Name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(n.Ents) && n.Ents[lo].Name == name
}

// Root is the entry of a whole tree; its name is empty.
func Root(n *Node, e Entry) Item { e.Kind = Dir; return Item{Entry: e, Dir: n} }

// Lookup finds p below e. "." is e itself.
func (e *Item) Lookup(p string) *Item {
	for p != "." && p != "" {
		name, rest, _ := strings.Cut(p, "/")
		i, ok := e.Dir.Find(name)
		if !ok {
			return nil
		}
		e, p = &e.Dir.Ents[i], rest
	}
	return e
}

// An Edit says what p becomes: nil, gone with all below it. An entry of a
// directory whose dir is nil keeps the children there are.
type Edit struct {
	Path string
	Item *Item
}

// Merge gives the tree e with edits, which are sorted by path, applied; a
// later edit wins. What lies beside them is shared with e.
func (e Item) Merge(edits []Edit) Item {
	for len(edits) > 0 && (edits[0].Path == "." || edits[0].Path == "") {
		kids := e.Dir
		e = *edits[0].Item
		e.Name = ""
		if e.Dir == nil {
			e.Dir = kids
		}
		edits = edits[1:]
	}
	e.Dir = e.Dir.merge(edits, 0)
	return e
}

// merge is entry.merge for the names of one directory; skip is how much of
// every path leads to it.
func (n *Node) merge(edits []Edit, skip int) *Node {
	if len(edits) == 0 {
		if n == nil {
			return &Node{}
		}
		return n
	}
	out := &Node{}
	var old []Item
	if n != nil {
		old = n.Ents
	}
	for len(edits) > 0 {
		name, _, _ := strings.Cut(edits[0].Path[skip:], "/")
		k := 1
		for k < len(edits) && Under(edits[k].Path[skip:], name) {
			k++
		}
		group := edits[:k]
		edits = edits[k:]
		for len(old) > 0 && old[0].Name < name {
			out.Ents = append(out.Ents, old[0])
			old = old[1:]
		}
		cur := &Item{}
		if len(old) > 0 && old[0].Name == name {
			c := old[0]
			cur, old = &c, old[1:]
		}
		for len(group) > 0 && len(group[0].Path) == skip+len(name) {
			if group[0].Item == nil {
				cur = &Item{}
			} else {
				c := *group[0].Item
				if c.Kind == Dir && c.Dir == nil {
					c.Dir = cur.Dir
				}
				cur = &c
			}
			group = group[1:]
		}
		cur.Name = name
		if cur.Kind == Dir {
			cur.Dir = cur.Dir.merge(group, skip+len(name)+1)
		}
		if cur.Kind != 0 {
			out.Ents = append(out.Ents, *cur)
		}
	}
	out.Ents = append(out.Ents, old...)
	return out.Done()
}

// Under tells that p is name or lies below it.
func Under(p, name string) bool {
	return strings.HasPrefix(p, name) && (len(p) == len(name) || p[len(name)] == '/')
}

// Compare orders paths so that everything below a directory follows it at once.
func Compare(a, b string) int {
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

// Done closes a node that was just filled.
func (n *Node) Done() *Node {
	for i := range n.Ents {
		if e := &n.Ents[i]; e.Group != 0 || e.Dir != nil && e.Dir.group {
			n.group = true
			return n
		}
	}
	return n
}

// DigestSum is the hash of the digest. A test weakens it to prove that nothing
// is decided by a digest alone.
var DigestSum = sha256.Sum256

// Digest is the Merkle digest of everything below n that is not ignored:
// names, kinds, modes, contents and targets; neither times nor owners. Nodes
// that did not change keep theirs.
func (n *Node) Digest() Hash {
	if n == nil {
		n = &Node{}
	}
	if n.hasSum {
		return n.sum
	}
	b := make([]byte, 0, 64*len(n.Ents))
	for i := range n.Ents {
		e := &n.Ents[i]
		if e.Ignored || e.Kind == Other {
			continue
		}
		b = append(b, byte(e.Kind))
		b = binary.BigEndian.AppendUint32(b, uint32(e.Mode))
		b = binary.BigEndian.AppendUint32(b, uint32(len(e.Name)))
		b = append(b, e.Name...)
		h := e.Hash
		if e.Kind == Dir {
			h = e.Dir.Digest()
		}
		b = append(b, h[:]...)
	}
	n.sum, n.hasSum = DigestSum(b), true
	return n.sum
}

// A Snapshot is what a workspace held at one moment. It never changes, and it
// shares with other snapshots of its workspace what did not change between them.
type Snapshot struct {
	root Item
	sum  Hash
}

func Of(root Item) *Snapshot {
	return &Snapshot{root: root, sum: root.Dir.Digest()}
}

// Dir is the directory that s holds; nil for none.
func (s *Snapshot) Dir() *Node {
	if s == nil {
		return nil
	}
	return s.root.Dir
}

// Digest sums up the content: names, kinds, permissions, bytes and targets; not
// times, owners or which names share a file. It is a hint: equal digests are
// confirmed with [Snapshot.Same] where something hangs on it.
func (s *Snapshot) Digest() Hash { return s.sum }

// Same tells that s and o hold the same content, name for name, whatever their
// digests say.
func (s *Snapshot) Same(o *Snapshot) bool {
	for range Differ(&s.root, &o.root, false) {
		return false
	}
	return true
}

// Identical is Same with times, and with the same names sharing files.
func (s *Snapshot) Identical(o *Snapshot) bool {
	if s.root.Mode != o.root.Mode || s.root.Time != o.root.Time {
		return false
	}
	for range Differ(&s.root, &o.root, true) {
		return false
	}
	return s.root.Dir == o.root.Dir || slices.EqualFunc(s.groups(), o.groups(), slices.Equal)
}

// groups lists the names that share a file, in an order that does not depend
// on which file it is.
func (s *Snapshot) groups() [][]string {
	by := map[uint64][]string{}
	var order []uint64
	for p, e := range s.root.Walk(".") {
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
	if e := s.root.Lookup(path.Clean(p)); e != nil {
		return e.Entry, true
	}
	return Entry{}, false
}

// All gives every name but the root, a directory before what it holds.
// Ignored names are left out.
func (s *Snapshot) All() iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		for p, e := range s.root.Walk(".") {
			if p != "." && !e.Ignored && !yield(p, e.Entry) {
				return
			}
		}
	}
}

// Diff says what changes from s to o, sorted by path. Times of directories are
// left out: they follow from the rest.
func (s *Snapshot) Diff(o *Snapshot) []Change {
	var out []Change
	for p, d := range Differ(&s.root, &o.root, true) {
		c := Change{Path: p}
		if d[0] != nil {
			c.Before = &d[0].Entry
		}
		if d[1] != nil {
			c.After = &d[1].Entry
		}
		if c.Before == nil || c.After == nil || c.After.Kind != Dir || !c.Before.Same(*c.After) {
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

// Walk gives e and everything below it, parents first.
func (e *Item) Walk(p string) iter.Seq2[string, *Item] {
	return func(yield func(string, *Item) bool) { e.each(p, yield) }
}

func (e *Item) each(p string, yield func(string, *Item) bool) bool {
	if !yield(p, e) {
		return false
	}
	if e.Dir == nil {
		return true
	}
	for i := range e.Dir.Ents {
		c := &e.Dir.Ents[i]
		if !c.each(path.Join(p, c.Name), yield) {
			return false
		}
	}
	return true
}

// Differ gives every name below a and b that is not the same in both, sorted
// by path; times of files and directories count when times is set. It
// compares entries, never digests; it passes over a directory only when both
// sides hold the very same node.
func Differ(a, b *Item, times bool) iter.Seq2[string, [2]*Item] {
	return func(yield func(string, [2]*Item) bool) { differNode(".", a.Dir, b.Dir, times, yield) }
}

func differNode(p string, a, b *Node, times bool, yield func(string, [2]*Item) bool) bool {
	if a == b {
		return true
	}
	var x, y []Item
	if a != nil {
		x = a.Ents
	}
	if b != nil {
		y = b.Ents
	}
	for len(x) > 0 || len(y) > 0 {
		var ex, ey *Item
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].Name < y[0].Name:
			ex, x = &x[0], x[1:]
		case len(x) == 0 || y[0].Name < x[0].Name:
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

func differEntry(p string, x, y *Item, times bool, yield func(string, [2]*Item) bool) bool {
	var nx, ny *Node
	any := x
	if x != nil && !x.Ignored {
		nx = x.Dir
	} else {
		x = nil
	}
	if y != nil && !y.Ignored {
		ny, any = y.Dir, y
	} else {
		y = nil
	}
	if x == nil && y == nil {
		return true
	}
	p = path.Join(p, any.Name)
	if x == nil || y == nil || !x.Same(y.Entry) || times && x.Time != y.Time {
		if !yield(p, [2]*Item{x, y}) {
			return false
		}
	}
	return differNode(p, nx, ny, times, yield)
}

func BlobHead(h hash.Hash, size int64) {
	h.Write(append(strconv.AppendInt([]byte("blob "), size, 10), 0))
}

func Blob(b []byte) (out Hash) {
	h := sha256.New()
	BlobHead(h, int64(len(b)))
	h.Write(b)
	h.Sum(out[:0])
	return out
}

// Believable tells that e, which was just looked at, is what is known of it,
// without a closer look: nearly every name of nearly every scan.
func (e *Item) Believable(old *Item) bool {
	return e.Kind == old.Kind && e.Kind != Dir && !old.Racy && e.Print == old.Print && e.Mode == old.Mode && e.Time == old.Time &&
		(e.Kind != File || e.Size == old.Size)
}
