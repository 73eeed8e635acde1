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

// IsZero reports whether h is unset.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash parses the output of String.
func ParseHash(s string) (h Hash, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, Errorf(Refused, "", "expected a commit as 64 hexadecimal digits, found %q", Clip(s))
	}
	return Hash(b), nil
}

// Kind is the kind of a name in a directory.
type Kind byte

// The kinds. Other is a FIFO, a socket, a device, or the root of another mount. A
// workspace never publishes or removes those.
const (
	File    Kind = 'f'
	Dir     Kind = 'd'
	Symlink Kind = 'l'
	Other   Kind = 'o'
)

// An Entry is the metadata of one name.
type Entry struct {
	Kind   Kind
	Mode   fs.FileMode // the permission bits, setuid, setgid and sticky
	Size   int64       // of a File
	Time   int64       // last modification, nanoseconds since 1970
	Hash   Hash        // of the content of a File, of the target of a Symlink; zero when ignored
	Target string      // of a Symlink
	Group  uint64      // names with one Group, not 0, share one file
}

// ModTime returns Time as a time.Time.
func (e Entry) ModTime() time.Time { return time.Unix(0, e.Time) }

// Same reports whether two entries are equal, except for time and sharing.
func (e Entry) Same(o Entry) bool {
	return e.Kind == o.Kind && e.Mode == o.Mode && e.Size == o.Size && e.Hash == o.Hash && e.Target == o.Target
}

// Print is metadata that changes with the content of a file. While it stays the
// same, the content is taken as unchanged.
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
	Racy    bool  // it may have changed after the scan with the same Print: read it again
}

// A Node is one directory. A node that is shared never changes. So snapshots share
// what did not change, and comparing two of them costs only what differs.
type Node struct {
	Ents   []Item // sorted by name
	sum    Hash   // digest, computed when first asked for
	Tree   Hash   // its Git tree, computed when first recorded
	Meta   Hash   // the Git tree that holds its modes and times
	group  bool   // some entry below has a Group
	hasSum bool
}

// Find returns the position of name in n, or the position where it belongs.
func (n *Node) Find(name string) (int, bool) {
	if n == nil {
		return 0, false
	}
	lo, hi := 0, len(n.Ents)
	for lo < hi { // written out, because slices.BinarySearchFunc would copy large items
		if mid := (lo + hi) / 2; n.Ents[mid].Name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(n.Ents) && n.Ents[lo].Name == name
}

// Root returns the item of a whole tree. Its name is empty.
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

// An Edit replaces the item at Path. A nil Item removes the path with everything
// below it. A directory item without a node keeps the existing children.
type Edit struct {
	Path string
	Item *Item
}

// Merge returns the tree e with edits applied. The edits are sorted by path, and a
// later edit wins. Unchanged nodes are shared with e.
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

// merge applies edits to one directory. The first skip bytes of every path lead to
// it.
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
		// Edits of one name and below it stand together, because they are sorted by Compare.
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
		// Edits of the name itself come before those below it. A removal before a new item drops the old children.
		for len(group) > 0 && len(group[0].Path) == skip+len(name) {
			if group[0].Item == nil {
				cur = &Item{}
			} else {
				c := *group[0].Item
				// Only the metadata of the directory changed.
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
		// A removed name has no kind.
		if cur.Kind != 0 {
			out.Ents = append(out.Ents, *cur)
		}
	}
	out.Ents = append(out.Ents, old...)
	return out.Done()
}

// Under reports whether p is name or lies below it.
func Under(p, name string) bool {
	return strings.HasPrefix(p, name) && (len(p) == len(name) || p[len(name)] == '/')
}

// Compare orders paths so that everything below a directory follows it directly.
func Compare(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == ".":
		return -1
	case b == ".":
		return 1
	}
	// The slash sorts before every byte. Otherwise "a-b" would stand between "a" and "a/x".
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

// Done completes a new node.
func (n *Node) Done() *Node {
	for i := range n.Ents {
		if e := &n.Ents[i]; e.Group != 0 || e.Dir != nil && e.Dir.group {
			n.group = true
			return n
		}
	}
	return n
}

// DigestSum is the hash function of digests. A test weakens it to prove that no
// decision depends on a digest alone.
var DigestSum = sha256.Sum256

// Digest is the Merkle digest of everything below n that is not ignored: names,
// kinds, modes, contents and targets, but not times or owners. A node caches it.
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
		// The length makes the encoding unambiguous: no name can look like the next entry.
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

// A Snapshot is the state of a workspace at one moment. It never changes. It
// shares unchanged nodes with other snapshots of its workspace.
type Snapshot struct {
	root Item
	sum  Hash
}

// SnapshotOf returns the snapshot of a tree.
func SnapshotOf(root Item) *Snapshot {
	return &Snapshot{root: root, sum: root.Dir.Digest()}
}

// Dir returns the top directory; nil for a nil Snapshot.
func (s *Snapshot) Dir() *Node {
	if s == nil {
		return nil
	}
	return s.root.Dir
}

// Digest covers names, kinds, permissions, content and targets, but not times,
// owners, or which names share a file. It is a hint: confirm equal digests with
// [Snapshot.Same] if a decision depends on them.
func (s *Snapshot) Digest() Hash { return s.sum }

// Same reports whether s and o have the same content, name by name. It does not
// look at digests.
func (s *Snapshot) Same(o *Snapshot) bool {
	for range Differences(&s.root, &o.root, false) {
		return false
	}
	return true
}

// Identical is like Same, but also compares times and which names share files.
func (s *Snapshot) Identical(o *Snapshot) bool {
	if s.root.Mode != o.root.Mode || s.root.Time != o.root.Time {
		return false
	}
	for range Differences(&s.root, &o.root, true) {
		return false
	}
	// Inodes differ between copies, so groups are compared by the names that share a file.
	return s.root.Dir == o.root.Dir || slices.EqualFunc(s.groups(), o.groups(), slices.Equal)
}

// groups lists the names that share a file. The order does not depend on inodes.
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

// Lookup returns the entry of a path with slashes, relative to the workspace.
func (s *Snapshot) Lookup(p string) (Entry, bool) {
	if e := s.root.Lookup(path.Clean(p)); e != nil {
		return e.Entry, true
	}
	return Entry{}, false
}

// All yields every name except the root and ignored names. A directory comes
// before its children.
func (s *Snapshot) All() iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		for p, e := range s.root.Walk(".") {
			if p != "." && !e.Ignored && !yield(p, e.Entry) {
				return
			}
		}
	}
}

// Diff returns the changes from s to o, sorted by path. It leaves out times of
// directories, because they follow from the other changes.
func (s *Snapshot) Diff(o *Snapshot) []Change {
	var out []Change
	for p, d := range Differences(&s.root, &o.root, true) {
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

// A Change is one name before and after; nil if the name does not exist.
type Change struct {
	Path   string
	Before *Entry
	After  *Entry
}

// Walk yields e and everything below it, parents first.
func (e *Item) Walk(p string) iter.Seq2[string, *Item] {
	return func(yield func(string, *Item) bool) { e.walk(p, yield) }
}

func (e *Item) walk(p string, yield func(string, *Item) bool) bool {
	if !yield(p, e) {
		return false
	}
	if e.Dir == nil {
		return true
	}
	for i := range e.Dir.Ents {
		c := &e.Dir.Ents[i]
		if !c.walk(path.Join(p, c.Name), yield) {
			return false
		}
	}
	return true
}

// Differences yields every name below a and b that is not the same in both, sorted
// by path. With times, it also compares times. It compares entries and never
// digests. It skips a directory only if both sides share the same node.
func Differences(a, b *Item, times bool) iter.Seq2[string, [2]*Item] {
	return func(yield func(string, [2]*Item) bool) { diffNodes(".", a.Dir, b.Dir, times, yield) }
}

func diffNodes(p string, a, b *Node, times bool, yield func(string, [2]*Item) bool) bool {
	// A shared node never changes, so everything below it is the same.
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
		if !diffEntries(p, ex, ey, times, yield) {
			return false
		}
	}
	return true
}

func diffEntries(p string, x, y *Item, times bool, yield func(string, [2]*Item) bool) bool {
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
	// Ignored names are in no history, so they make no difference.
	if x == nil && y == nil {
		return true
	}
	p = path.Join(p, any.Name)
	if x == nil || y == nil || !x.Same(y.Entry) || times && x.Time != y.Time {
		if !yield(p, [2]*Item{x, y}) {
			return false
		}
	}
	return diffNodes(p, nx, ny, times, yield)
}

// BlobHead writes the header that Git hashes before the content of a file.
func BlobHead(h hash.Hash, size int64) {
	h.Write(append(strconv.AppendInt([]byte("blob "), size, 10), 0))
}

// Blob hashes b as Git hashes a file.
func Blob(b []byte) (out Hash) {
	h := sha256.New()
	BlobHead(h, int64(len(b)))
	h.Write(b)
	h.Sum(out[:0])
	return out
}

// Unchanged reports whether the metadata of e proves that it is still old. That
// holds for nearly every name of nearly every scan.
func (e *Item) Unchanged(old *Item) bool {
	return e.Kind == old.Kind && e.Kind != Dir && !old.Racy && e.Print == old.Print && e.Mode == old.Mode && e.Time == old.Time &&
		(e.Kind != File || e.Size == old.Size)
}
