package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A change is one name of the staged form: what path becomes.
type change struct {
	path string
	e    *entry // nil: gone, with all below it
	src  string // the file in scratch that holds the content of a File
	move bool   // src is ours alone and may become the slot; else it is copied
	base string // or: the workspace's own file at this path gets a further name here
	from *entry // what base was when the view looked at it
	seen *print // what the view saw here when it first looked: zero for nothing, nil for unknown
	slot string // where the content lies after fill
}

// fill moves the content of every change into a slot and names it by hash.
// From here on no view is needed, and nothing but the slots is.
func (tx *Tx) fill(changes []change) error {
	groups := map[uint64]*change{}
	for i := range changes {
		c := &changes[i]
		if c.e == nil {
			continue
		}
		if err := tx.allowed(c); err != nil {
			return err
		}
		c.slot = strconv.Itoa(i)
		name := filepath.Join(tx.slots.name, c.slot)
		if first := groups[c.e.Group]; c.e.Kind == File && c.e.Group != 0 && first != nil {
			if err := os.Link(filepath.Join(tx.slots.name, first.slot), name); err != nil {
				return err
			}
			c.e.Hash = first.e.Hash
		} else if err := tx.fillOne(c, name); err != nil {
			return err
		}
		if c.e.Kind == File && c.e.Group != 0 && groups[c.e.Group] == nil {
			groups[c.e.Group] = c
		}
	}
	for _, c := range changes { // when all links are made
		if c.e == nil || c.e.Kind == Dir {
			continue
		}
		now, err := tx.slots.lstat(c.slot)
		if err != nil {
			return err
		}
		c.e.fp, c.e.Group, c.e.Size, c.e.Time, c.e.Mode = now.fp, now.Group, now.Size, now.Time, now.Mode
		c.e.racy = !tx.w.fine
	}
	return nil
}

// allowed refuses what is never published.
func (tx *Tx) allowed(c *change) error {
	if inGit(c.path) && !tx.w.conf.WriteGit {
		return errorf(Refused, c.path, "a transaction may not change a person's repository (Config.WriteGit allows it)")
	}
	if c.e.Kind == Other {
		return errorf(Refused, c.path, "expected files, directories and symlinks; found a FIFO, socket, device or mount")
	}
	const set = fs.ModeSetuid | fs.ModeSetgid
	if c.e.Kind == File && c.e.Mode&set != 0 {
		if b := tx.base.lookup(c.path); b == nil || b.Mode&set != c.e.Mode&set {
			return errorf(Refused, c.path, "expected a mode without setuid and setgid, found %v", c.e.Mode)
		}
	}
	return nil
}

func (tx *Tx) fillOne(c *change, name string) (err error) {
	switch {
	case c.e.Kind == Dir:
		return nil // made where it is needed
	case c.e.Kind == Symlink:
		c.e.Hash = blobHash([]byte(c.e.Target))
		if err := os.Symlink(c.e.Target, name); err != nil {
			return err
		}
	case c.base != "":
		return tx.fillBase(c)
	case c.move:
		if err := os.Rename(c.src, name); err != nil {
			return err
		}
	default:
		if err := copyFile(name, c.src); err != nil {
			return err
		}
	}
	if err := own(name, tx.owner(c.path)); err != nil {
		return err
	}
	if err := tx.slots.attr(c.slot, c.e.Entry); err != nil || c.e.Kind == Symlink {
		return err
	}
	f, err := tx.slots.open(c.slot)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writers(f); err != nil {
		e := errorf(Busy, c.path, "a process still has it open for writing")
		return e
	}
	now, err := fstat(f)
	if err != nil {
		return err
	}
	c.e.Hash, err = hashFile(f, now.Size)
	return err
}

// fillBase makes the slot a further name of a file of the workspace.
func (tx *Tx) fillBase(c *change) error {
	if err := tx.w.place.keep(tx.slots, c.base, c.slot); err != nil {
		return errorf(Conflict, c.base, "changed by somebody else since the transaction looked at it; nothing was published: %v", err)
	}
	now, err := tx.slots.lstat(c.slot)
	if err != nil {
		return err
	}
	if now.Kind != File {
		return errorf(Conflict, c.base, "changed by somebody else since the transaction looked at it; nothing was published")
	}
	f, err := tx.slots.open(c.slot)
	if err != nil {
		return err
	}
	defer f.Close()
	if c.e.Hash, err = hashFile(f, now.Size); err != nil {
		return err
	}
	if !tx.still(c.base, c.from, &now, c.e.Hash) {
		return errorf(Conflict, c.base, "changed by somebody else since the transaction looked at it; nothing was published")
	}
	if now.Mode == c.e.Mode && now.Time == c.e.Time {
		return nil
	}
	old := filepath.Join(tx.slots.name, c.slot)
	if err := os.Rename(old, old+".base"); err != nil {
		return err
	}
	defer os.Remove(old + ".base")
	if err := copyFile(old, old+".base"); err != nil {
		return err
	}
	if err := own(old, now.fp); err != nil {
		return err
	}
	return tx.slots.attr(c.slot, c.e.Entry)
}

// still tells that a file of the workspace is what the view found there: the
// file itself, or one with the content that was known.
func (tx *Tx) still(name string, from, now *entry, h Hash) bool {
	if now.fp.ino == from.fp.ino && now.Time == from.Time && now.Size == from.Size {
		return true
	}
	b := tx.base.lookup(name)
	return b != nil && b.fp.ino == from.fp.ino && b.Time == from.Time && !b.ignored && b.Hash == h
}

// owner is who a path belongs to after publishing: who had it, or who has the
// directory it comes to.
func (tx *Tx) owner(p string) print {
	for ; ; p = path.Dir(p) {
		if e := tx.base.lookup(p); e != nil {
			return e.fp
		}
		if e, err := tx.w.place.lstat(p); err == nil {
			return e.fp
		}
		if p == "." {
			return print{}
		}
	}
}

func copyFile(to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	g, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(copyContent(g, f, fi.Size()), g.Close())
}

// A plan is a commit worked out under the lock.
type plan struct {
	ops    []op
	before []edit // brings what is known of the touched paths up to date
	after  []edit // what publishing changes
	clash  []string
}

// planner turns changes into operations against what is there now.
type planner struct {
	*plan
	tx    *Tx
	root  entry
	made  string // the new directory that changes are being gathered into
	slot  string // its slot
	gone  string // the directory that an operation takes away as a whole
	attrs []op
	drops []op
	dirs  map[string]bool // directories that have an attr operation
}

func (tx *Tx) plan(root entry, changes []change) (*plan, error) {
	p := &planner{plan: &plan{}, tx: tx, root: root, dirs: map[string]bool{}}
	for i := range changes {
		if err := p.change(&changes[i]); err != nil {
			return nil, err
		}
	}
	for _, o := range slices.Concat(p.ops, p.drops) {
		if err := p.parent(path.Dir(o.path())); err != nil {
			return nil, err
		}
	}
	if err := p.shapes(); err != nil {
		return nil, err
	}
	slices.Reverse(p.drops)
	p.ops = slices.Concat(p.ops, p.drops, p.attrs)
	slices.SortStableFunc(p.before, func(a, b edit) int { return byPath(a.path, b.path) })
	slices.SortStableFunc(p.after, func(a, b edit) int { return byPath(a.path, b.path) })
	if len(p.clash) > 0 {
		slices.Sort(p.clash)
		e := errorf(Conflict, "", "changed by somebody else since the transaction began; nothing was published")
		e.Paths = slices.Compact(p.clash)
		return nil, e
	}
	return p.plan, nil
}

func (p *planner) change(c *change) error {
	if p.made != "" && under(c.path, p.made) && c.path != p.made {
		return p.gather(c)
	}
	if p.gone != "" && under(c.path, p.gone) {
		return nil
	}
	deep := c.e == nil || c.e.Kind != Dir
	cur, err := p.tx.w.know(p.root, c.path, deep)
	if c.e == nil && isCodeOf(err, Conflict) {
		err = nil // gone already, with a directory above it
	}
	if err != nil {
		return err
	}
	was := p.root.lookup(c.path)
	if c.e != nil && c.e.Kind == Dir && (cur == nil || cur.Kind != Dir) {
		if b := p.tx.base.lookup(c.path); b != nil && b.Kind == Dir && b.Mode == c.e.Mode {
			return nil // only what was in it changed, and it is gone: what is to be put there will clash
		}
	}
	if clash := p.tx.clash(c, was, cur); len(clash) > 0 {
		p.clash = append(p.clash, clash...)
		return nil
	}
	if (was == nil) != (cur == nil) || cur != nil && (cur.fp != was.fp || cur.dir != was.dir || cur.Entry != was.Entry) {
		p.before = append(p.before, edit{c.path, cur})
	}
	switch {
	case c.e == nil && cur == nil:
	case c.e == nil:
		if err := p.keepable(c.path, cur); err != nil {
			return err
		}
		p.drops = append(p.drops, op{Do: opDrop, Path: []byte(c.path), Slot: "d" + strconv.Itoa(len(p.drops)), Old: shapeOf(cur)})
		p.after = append(p.after, edit{c.path, nil})
		p.gone = c.path
	case c.e.Kind == Dir && cur != nil && cur.Kind == Dir:
		return p.attr(c, cur)
	case c.seen == nil && cur != nil && c.e.Kind == File && cur.same(c.e.Entry) && cur.Time == c.e.Time && !cur.ignored:
		// An overlay copies a file that is only touched; nothing changed.
	case cur != nil && cur.Kind == File && c.e.Kind == File && cur.Hash == c.e.Hash && !cur.ignored &&
		cur.Group == 0 && c.e.Group == 0:
		return p.attr(c, cur)
	default:
		return p.put(c, cur)
	}
	return nil
}

// keepable refuses to take away what a workspace does not touch.
func (p *planner) keepable(at string, cur *entry) error {
	for q, e := range cur.walk(at) {
		if e.Kind == Other {
			return errorf(Refused, q, "a FIFO, socket, device or mount is not removed")
		}
		if inGit(q) && !p.tx.w.conf.WriteGit {
			return errorf(Refused, q, "a transaction may not change a person's repository (Config.WriteGit allows it)")
		}
	}
	return nil
}

// put plans a make or a swap.
func (p *planner) put(c *change, cur *entry) error {
	o := op{Do: opMake, Path: []byte(c.path), Slot: c.slot}
	if cur != nil {
		if err := p.keepable(c.path, cur); err != nil {
			return err
		}
		o.Do, o.Old = opSwap, shapeOf(cur)
		p.after = append(p.after, edit{c.path, nil})
		if cur.Kind == Dir {
			p.gone = c.path
		}
	}
	if c.e.Kind == Dir {
		p.made, p.slot = c.path, c.slot
		if err := p.mkdir(c, c.slot); err != nil {
			return err
		}
	}
	p.after = append(p.after, edit{c.path, p.entry(c)})
	p.ops = append(p.ops, o)
	return nil
}

func (p *planner) entry(c *change) *entry {
	c.e.ignored = p.tx.w.rules.below(c.path, c.e.Kind == Dir)
	if c.e.Kind == Dir && c.e.dir == nil {
		c.e.dir = &node{}
	}
	return c.e
}

// gather puts c into the new directory that is being put together.
func (p *planner) gather(c *change) error {
	if c.e == nil {
		return nil
	}
	at := path.Join(p.slot, strings.TrimPrefix(c.path, p.made))
	if c.e.Kind == Dir {
		if err := p.mkdir(c, at); err != nil {
			return err
		}
	} else if err := os.Rename(filepath.Join(p.tx.slots.name, c.slot), filepath.Join(p.tx.slots.name, at)); err != nil {
		return err
	}
	c.slot = at
	p.after = append(p.after, edit{c.path, p.entry(c)})
	return nil
}

// mkdir makes a new directory in the slots. Its time is set when it is full.
func (p *planner) mkdir(c *change, at string) error {
	name := filepath.Join(p.tx.slots.name, filepath.FromSlash(at))
	if err := os.Mkdir(name, 0o700); err != nil {
		return err
	}
	if err := own(name, p.tx.owner(c.path)); err != nil {
		return err
	}
	c.slot = at
	want := c.e.Entry
	want.Mode |= 0o700 // until it is in place: who may not write to it could not move it
	p.tx.made = append(p.tx.made, made{at, want})
	if want.Mode != c.e.Mode {
		p.attrs = append(p.attrs, op{Do: opAttr, Path: []byte(c.path), Before: attrOf(want), After: attrOf(c.e.Entry)})
		p.dirs[c.path] = true
	}
	return nil
}

// A made is a directory in the slots that waits for its mode and time.
type made struct {
	at string
	e  Entry
}

// attr plans a change of mode and time in place.
func (p *planner) attr(c *change, cur *entry) error {
	to := *cur
	to.Mode, to.Time = c.e.Mode, c.e.Time
	if b := p.tx.base.lookup(c.path); b != nil && b.Mode == c.e.Mode {
		to.Mode = cur.Mode // who changed it outside is right
	}
	p.attrs = append(p.attrs, op{Do: opAttr, Path: []byte(c.path), Before: attrOf(cur.Entry), After: attrOf(to.Entry)})
	p.after = append(p.after, edit{c.path, &to})
	p.dirs[c.path] = true
	return nil
}

// parent makes sure that undoing puts the time of a touched directory back.
func (p *planner) parent(dir string) error {
	if p.dirs[dir] {
		return nil
	}
	p.dirs[dir] = true
	e, err := p.tx.w.place.lstat(dir)
	if err != nil && skippable(err) || err == nil && e.Kind != Dir {
		p.clash = append(p.clash, dir)
		return nil
	}
	if err != nil {
		return err
	}
	p.attrs = append(p.attrs, op{Do: opAttr, Path: []byte(dir), Before: attrOf(e.Entry)})
	return nil
}

// shapes completes new directories and says what each slot holds.
func (p *planner) shapes() error {
	for _, m := range slices.Backward(p.tx.made) {
		if err := p.tx.slots.attr(m.at, m.e); err != nil {
			return err
		}
	}
	for i := range p.ops {
		o := &p.ops[i]
		e, err := p.tx.w.bare(p.tx.slots, o.Slot)
		if err != nil {
			return err
		}
		o.New = shapeOf(e)
	}
	return nil
}

// know says what is at path now, as believed from root where its metadata has
// not changed; nil for nothing. With deep a directory is looked through.
func (w *Workspace) know(root entry, at string, deep bool) (*entry, error) {
	cur, err := w.place.lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil, errorf(Conflict, at, "a directory on the way to it was replaced: %v", err)
	}
	if err != nil && foreign(err) {
		return nil, errorf(Refused, at, "it lies in another mount: %v", err)
	}
	if err != nil {
		return nil, err
	}
	was := root.lookup(at)
	parent, err := w.place.sub(path.Dir(at))
	if err != nil {
		return nil, err
	}
	defer parent.close()
	s := w.scanner(context.Background())
	s.deep = deep
	if cur.Kind == Dir && !deep {
		s.flat = true
	}
	cur.name = path.Base(at)
	_, err = s.entry(parent, at, &cur, was)
	return &cur, err
}

// clash names what somebody else changed at c's path since the transaction
// began. Content that is the same is no clash, whoever wrote it.
func (tx *Tx) clash(c *change, was, cur *entry) []string {
	base := tx.base.lookup(c.path)
	switch {
	case cur == nil:
		if c.e == nil || c.seen != nil && *c.seen == (print{}) || c.seen == nil && base == nil {
			return nil
		}
		if c.seen == nil && hasStamps {
			if dir, err := tx.w.place.lstat(path.Dir(c.path)); err == nil && dir.fp.ctime < tx.began {
				return nil
			}
		}
		return []string{c.path}
	case c.e != nil && c.e.Kind == Dir && cur.Kind == Dir:
		return nil
	case c.seen != nil && *c.seen == print{}:
		return []string{c.path}
	case c.seen != nil && c.seen.ino == cur.fp.ino && c.seen.ctime == cur.fp.ctime && cur.Kind != Dir:
		return nil
	}
	var out []string
	for p, e := range cur.walk(c.path) {
		b := tx.base.lookup(p)
		if b != nil && !b.ignored && b.same(e.Entry) {
			continue
		}
		if hasStamps && e.fp.ctime < tx.began && (c.seen == nil || p != c.path) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// bare looks at name in p without reading any file.
func (w *Workspace) bare(p *place, name string) (*entry, error) {
	e, err := p.lstat(name)
	if err != nil {
		return nil, err
	}
	if e.Kind == Dir {
		s := w.scanner(context.Background())
		s.bare = true
		e, err = s.below(p, name, entry{})
	}
	return &e, err
}

// shapeOf sums up which files stand where below e: enough to tell whether a
// slot or a path still holds what the plan saw, without reading it.
func shapeOf(e *entry) Hash {
	h := sha256.New()
	for p, x := range e.walk(".") {
		t := x.Time
		size := x.Size
		if x.Kind == Dir || x.Kind == Other {
			t, size = 0, 0
		}
		fmt.Fprintf(h, "%d:%s", len(p), p)
		binary.Write(h, binary.BigEndian, []int64{int64(x.Kind), int64(x.fp.ino), size, t})
	}
	return Hash(h.Sum(nil))
}
