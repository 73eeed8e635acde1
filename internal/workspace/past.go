package workspace

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// commit completes c for the state n, after the one rec names, and adds it with
// its companion. rec then names c.
func (r *recorder) commit(c *Commit, n *node, rec *record) {
	rec.Seq++
	c.tree, c.meta, c.Parent, c.Seq = n.tree, n.meta, rec.Commit, rec.Seq
	c.Hash = r.put(typCommit, c.encode())
	side := Commit{tree: n.meta, Parent: rec.Side, Kind: c.Kind, Seq: c.Seq, Time: c.Time, meta: n.meta, Digest: c.Digest,
		Note: Note{Message: "Modes and times of " + c.Hash.String()}}
	rec.Commit, rec.Side = c.Hash, r.put(typCommit, side.encode())
}

// addOutside adds a commit for what somebody else did, when they did. The
// root of r has been recorded.
func (w *Workspace) addOutside(r *recorder, root entry, rec *record) error {
	if !rec.Commit.IsZero() {
		head, err := w.hist.commit(rec.Commit)
		if err != nil {
			return err
		}
		if head.tree == root.dir.tree && head.Digest == root.dir.digest() {
			return nil
		}
	}
	r.commit(&Commit{Kind: Outside, Time: time.Now(), Digest: root.dir.digest()}, root.dir, rec)
	return nil
}

// recordOutside puts what was found in the directory into the history. The
// lock is held and nothing is in doubt.
func (w *Workspace) recordOutside(ctx context.Context) error {
	for try := 0; ; try++ {
		err := w.tryOutside()
		if !isCodeOf(err, Busy) || try == 5 {
			return err
		}
		if err := w.scan(ctx, false); err != nil { // it changed between scan and reading
			return err
		}
	}
}

func (w *Workspace) tryOutside() error {
	root := w.known()
	r := newRecorder(w.hist, func(p string, e *entry) (*os.File, error) { return w.place.open(p) })
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if err := r.tree(".", root.dir, last); err != nil {
		return err
	}
	rec := &record{Kind: "head", Seq: w.log.seq, Commit: w.log.commit, Side: w.log.side}
	if err := w.addOutside(r, root, rec); err != nil {
		return err
	}
	if len(r.objs) > 0 { // times alone make no commit, but the next one builds on them
		pk, err := w.hist.add(r.objs)
		if err != nil {
			return err
		}
		if err := errors.Join(pk.f.Sync(), syncPath(w.hist.packDir()), w.hist.adopt(pk)); err != nil {
			return err
		}
	}
	if rec.Commit != w.log.commit {
		if err := errors.Join(w.log.append(*rec), w.putRefs()); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = root.dir
	return nil
}

// lastNode is what the last commit recorded.
func (w *Workspace) lastNode() (*node, error) {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if last != nil || w.log.commit.IsZero() {
		return last, nil
	}
	c, err := w.hist.commit(w.log.commit)
	if err != nil {
		return nil, err
	}
	e, err := w.hist.state(c, w.known().dir)
	return e.dir, err
}

// History gives the commits there are, newest first.
func (w *Workspace) History() iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		w.mu.Lock()
		id := w.log.commit
		w.mu.Unlock()
		cut, err := w.hist.cut()
		for err == nil && !id.IsZero() {
			var c *Commit
			if c, err = w.hist.commit(id); err != nil {
				break
			}
			if cut[id] {
				c.Parent = Hash{}
			}
			if !yield(c, nil) {
				return
			}
			id = c.Parent
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// find looks a commit up by its caller's ID.
func (w *Workspace) find(id string) (Hash, bool, error) {
	w.mu.Lock()
	ids := w.ids
	w.mu.Unlock()
	if ids == nil {
		ids = map[string]Hash{}
		for c, err := range w.History() {
			if err != nil {
				return Hash{}, false, err
			}
			if c.ID != "" {
				ids[c.ID] = c.Hash
			}
		}
		w.mu.Lock()
		w.ids = ids
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h, ok := ids[id]
	return h, ok, nil
}

// Commit reads one commit.
func (w *Workspace) Commit(id Hash) (*Commit, error) { return w.hist.commit(id) }

// At reads the state that a commit recorded.
func (w *Workspace) At(id Hash) (*Snapshot, error) {
	c, err := w.hist.commit(id)
	if err != nil {
		return nil, err
	}
	e, err := w.hist.state(c, nil)
	if err != nil {
		return nil, err
	}
	return snapshot(e), nil
}

// Content opens the content of a file that the history holds, by Entry.Hash.
func (w *Workspace) Content(id Hash) (io.ReadCloser, error) {
	typ, _, r, done, err := w.hist.open(id)
	if err != nil {
		return nil, err
	}
	if typ != typBlob {
		done()
		return nil, errorf(Missing, id.String(), "expected the content of a file, found a %s", typNames[typ])
	}
	return content{r, done}, nil
}

type content struct {
	io.Reader
	done func()
}

func (c content) Close() error { c.done(); return nil }

// Restore brings back the state of a commit, as a commit of its own after all
// the others. It writes what differs, and leaves ignored files alone.
func (w *Workspace) Restore(ctx context.Context, id Hash, note Note) (*Commit, error) {
	c, err := w.hist.commit(id)
	if err != nil {
		return nil, err
	}
	if _, err := w.Snapshot(ctx); err != nil {
		return nil, err
	}
	tx, err := w.Begin(ctx, Options{})
	if err != nil {
		return nil, err
	}
	done, err := tx.restore(ctx, c, note)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return done, nil
}

func (tx *Tx) restore(ctx context.Context, c *Commit, note Note) (*Commit, error) {
	want, err := tx.w.hist.state(c, tx.base.dir)
	if err != nil {
		return nil, err
	}
	cs, err := tx.toward(&want)
	if err != nil {
		return nil, err
	}
	if err := tx.view.end(); err != nil {
		return nil, err
	}
	tx.view = fixed(cs)
	if note.Message == "" {
		note.Message = "Restore " + c.Hash.String()[:12] + ": " + strings.SplitN(c.subject(), "\n", 2)[0]
	}
	auto := note.ID == ""
	if auto {
		note.ID = "restore-" + tx.name
	}
	out, err := tx.publish(ctx, note, Restored, true)
	if err != nil {
		return nil, err
	}
	return out, tx.Seal()
}

// fixed is a view whose changes are known beforehand.
type fixed []change

func (f fixed) changes() ([]change, error) { return f, nil }
func (f fixed) end() error                 { return nil }

// toward stages what makes the base into want.
func (tx *Tx) toward(want *entry) ([]change, error) {
	var out []change
	for p, d := range differ(&tx.base, want, true) {
		if d[1] == nil {
			out = append(out, change{path: p})
			continue
		}
		e := *d[1]
		e.dir, e.fp = nil, print{}
		out = append(out, change{path: p, e: &e})
	}
	return out, tx.w.fetch(out, tx.dir.name)
}

// fetch writes the content of changes that come from the history.
func (w *Workspace) fetch(cs []change, dir string) error {
	for i := range cs {
		c := &cs[i]
		if c.e == nil || c.e.Kind != File {
			continue
		}
		c.src, c.move = filepath.Join(dir, "h"+itoa(i)), true
		if err := w.fetchOne(c.e.Hash, c.src); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workspace) fetchOne(id Hash, name string) error {
	r, err := w.Content(id)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// Export writes the state of a commit into dir, which must be empty or not
// exist: the files of that moment, for a workspace of their own.
func (w *Workspace) Export(ctx context.Context, id Hash, dir string) error {
	c, err := w.hist.commit(id)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if ents, err := os.ReadDir(dir); err != nil || len(ents) > 0 {
		return errors.Join(err, errorf(Refused, dir, "expected an empty directory, found %d names", len(ents)))
	}
	root, err := w.hist.state(c, nil)
	if err != nil {
		return err
	}
	p, err := openPlace(dir)
	if err != nil {
		return err
	}
	defer p.close()
	var dirs []change
	groups := map[uint64]string{}
	for at, e := range root.walk(".") {
		if at == "." {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(at))
		switch {
		case e.Kind == Dir:
			dirs = append(dirs, change{path: at, e: e})
			err = os.Mkdir(name, 0o700)
		case e.Kind == Symlink:
			err = os.Symlink(e.Target, name)
		case e.Group != 0 && groups[e.Group] != "":
			err = os.Link(groups[e.Group], name)
		default:
			err = w.fetchOne(e.Hash, name)
			groups[e.Group] = name
		}
		if err == nil && e.Kind != Dir {
			err = p.attr(at, e.Entry)
		}
		if err != nil {
			return err
		}
	}
	for _, d := range slices.Backward(dirs) {
		if err := p.attr(d.path, d.e.Entry); err != nil {
			return err
		}
	}
	return p.syncAllOr()
}

// The index remembers what was known of the directory, so that the next Open
// reads only what has changed since. It is a cache: one that does not read
// back is as good as none.

func (w *Workspace) indexName() string { return filepath.Join(w.conf.Store, "index") }

const indexMagic = "kernidx1"

// save writes the index.
func (w *Workspace) save() error {
	w.mu.Lock()
	root, seen := w.root, w.seen
	w.mu.Unlock()
	if !seen {
		return nil
	}
	b := append([]byte(indexMagic), putString(nil, w.dir+"\x00"+w.rules.text)...)
	b = putEntry(b, &root)
	sum := blobHash(b)
	return replaceFile(w.indexName(), append(b, sum[:]...), 0o600, false)
}

// remember reads the index.
func (w *Workspace) remember() {
	b, err := os.ReadFile(w.indexName())
	if err != nil || len(b) < len(indexMagic)+32 {
		return
	}
	sum := Hash(b[len(b)-32:])
	b = b[:len(b)-32]
	if blobHash(b) != sum || string(b[:len(indexMagic)]) != indexMagic {
		return
	}
	r := &indexReader{b: b[len(indexMagic):]}
	if r.text() != w.dir+"\x00"+w.rules.text {
		return
	}
	if e := r.entry(); !r.bad && len(r.b) == 0 {
		w.mu.Lock()
		w.root = e
		w.mu.Unlock()
	}
}

func putString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func putEntry(b []byte, e *entry) []byte {
	b = append(putString(b, e.name), byte(e.Kind))
	flags := uint64(0)
	for i, f := range []bool{e.ignored, e.racy} {
		if f {
			flags |= 1 << i
		}
	}
	for _, v := range []uint64{flags, uint64(e.Mode), uint64(e.Size), e.Group, e.fp.ino, uint64(e.fp.nlink), uint64(e.fp.uid), uint64(e.fp.gid)} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendVarint(binary.AppendVarint(b, e.Time), e.fp.ctime)
	switch e.Kind {
	case Dir:
		if e.dir == nil {
			return binary.AppendUvarint(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(len(e.dir.ents)))
		for i := range e.dir.ents {
			b = putEntry(b, &e.dir.ents[i])
		}
	case Symlink:
		b = putString(append(b, e.Hash[:]...), e.Target)
	default:
		b = append(b, e.Hash[:]...)
	}
	return b
}

type indexReader struct {
	b   []byte
	bad bool
}

func (r *indexReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad = true
		return make([]byte, min(n, 64))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *indexReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *indexReader) text() string { return string(r.take(r.uint())) }

func (r *indexReader) entry() (e entry) {
	e.name, e.Kind = r.text(), Kind(r.take(1)[0])
	flags := r.uint()
	e.ignored, e.racy = flags&1 != 0, flags&2 != 0
	e.Mode, e.Size, e.Group = os.FileMode(r.uint()), int64(r.uint()), r.uint()
	e.fp = print{ino: r.uint(), nlink: uint32(r.uint()), uid: uint32(r.uint()), gid: uint32(r.uint())}
	e.Time, e.fp.ctime = r.int(), r.int()
	switch e.Kind {
	case Dir:
		n := r.uint()
		if n > uint64(len(r.b)) {
			r.bad = true
			return e
		}
		d := &node{ents: make([]entry, 0, n)}
		for range n {
			d.ents = append(d.ents, r.entry())
		}
		e.dir = d.done()
	default:
		e.Hash = Hash(r.take(32))
		if e.Kind == Symlink {
			e.Target = r.text()
		}
	}
	return e
}
