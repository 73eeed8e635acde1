package workspace

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/publish"
	"github.com/kern-run/kern/internal/workspace/view"
)

// A plan is a commit as planned under the lock.
type plan struct {
	ops       []publish.Op
	before    []fsys.Edit // updates the known tree at the touched paths
	after     []fsys.Edit // what publishing changes in the tree
	conflicts []string
}

// planner turns changes into operations against what is there now.
type planner struct {
	*plan
	st         *stage
	root       fsys.Item
	newDir     string // the new directory that the following changes go into
	newDirSlot string
	dropped    string // the directory that one operation removes as a whole
	attrs      []publish.Op
	drops      []publish.Op
	dirs       map[string]bool // directories that have an attr operation
}

// plan turns changes into operations, or fails with a Conflict.
func (s *stage) plan(root fsys.Item, changes []view.Staged) (*plan, error) {
	p := &planner{plan: &plan{}, st: s, root: root, dirs: map[string]bool{}}
	for i := range changes {
		if err := p.planChange(&changes[i]); err != nil {
			return nil, err
		}
	}
	// Every operation changes the time of its directory. An undo must restore that time, too.
	for _, o := range slices.Concat(p.ops, p.drops) {
		if err := p.restoreParentTime(path.Dir(o.At())); err != nil {
			return nil, err
		}
	}
	if err := p.completeDirs(); err != nil {
		return nil, err
	}
	slices.Reverse(p.drops)
	// Attributes come last, because every other operation changes the times of directories.
	p.ops = slices.Concat(p.ops, p.drops, p.attrs)
	slices.SortStableFunc(p.before, func(a, b fsys.Edit) int { return fsys.Compare(a.Path, b.Path) })
	slices.SortStableFunc(p.after, func(a, b fsys.Edit) int { return fsys.Compare(a.Path, b.Path) })
	if len(p.conflicts) > 0 {
		slices.Sort(p.conflicts)
		e := fsys.Errorf(Conflict, "", "changed by somebody else since the transaction began; nothing was published")
		e.Paths = slices.Compact(p.conflicts)
		return nil, e
	}
	return p.plan, nil
}

func (p *planner) planChange(c *view.Staged) error {
	// A new directory is filled among the slots and moved into place by one rename, so nobody sees it half full.
	if p.newDir != "" && fsys.Under(c.Path, p.newDir) && c.Path != p.newDir {
		return p.addToNewDir(c)
	}
	// One rename removes the directory with everything below it.
	if p.dropped != "" && fsys.Under(c.Path, p.dropped) {
		return nil
	}
	// A path that is removed or replaced takes everything below it along, so that must be unchanged, too.
	deep := c.To == nil || c.To.Kind != Dir
	cur, err := p.st.newScanner().At(p.st.ground.Place, &p.root, c.Path, deep)
	if c.To == nil && fsys.Is(err, Conflict) {
		err = nil // already gone with a directory above it
	}
	if err != nil {
		return err
	}
	was := p.root.Lookup(c.Path)
	if c.To != nil && c.To.Kind == Dir && (cur == nil || cur.Kind != Dir) {
		if b := p.st.ground.Base.Lookup(c.Path); b != nil && b.Kind == Dir && b.Mode == c.To.Mode {
			return nil // only its content changed, and it is gone: the changes below it will conflict
		}
	}
	if list := p.conflictsAt(c, cur); len(list) > 0 {
		p.conflicts = append(p.conflicts, list...)
		return nil
	}
	// Content from outside is recorded before it is replaced. Otherwise no commit would hold it.
	if (was == nil) != (cur == nil) || cur != nil && (cur.Print != was.Print || cur.Dir != was.Dir || cur.Entry != was.Entry) {
		p.before = append(p.before, fsys.Edit{Path: c.Path, Item: cur})
	}
	switch {
	// Both sides removed it.
	case c.To == nil && cur == nil:
	case c.To == nil:
		if err := p.checkRemovable(c.Path, cur); err != nil {
			return err
		}
		p.drops = append(p.drops, publish.Op{Do: publish.Drop, Path: []byte(c.Path), Slot: "d" + strconv.Itoa(len(p.drops)), Old: fsys.Shape(cur)})
		p.after = append(p.after, fsys.Edit{Path: c.Path, Item: nil})
		p.dropped = c.Path
	case c.To.Kind == Dir && cur != nil && cur.Kind == Dir:
		return p.planAttr(c, cur)
	case c.Seen == nil && cur != nil && c.To.Kind == File && cur.Same(c.To.Entry) && cur.Time == c.To.Time && !cur.Ignored:
		// An overlay copies a file that is only touched. Nothing changed.
	case cur != nil && cur.Kind == File && c.To.Kind == File && cur.Hash == c.To.Hash && !cur.Ignored &&
		cur.Group == 0 && c.To.Group == 0:
		// The content is the same, so only mode and time change. A shared file is swapped instead, because a mode
		// set in place would reach its other names.
		return p.planAttr(c, cur)
	default:
		return p.planPut(c, cur)
	}
	return nil
}

// checkRemovable refuses to remove what a workspace must not touch.
func (p *planner) checkRemovable(at string, cur *fsys.Item) error {
	// A slot with a socket or a device could not be put back faithfully. Everything below is checked before one
	// rename moves it.
	for q, e := range cur.Walk(at) {
		if e.Kind == Other {
			return fsys.Errorf(Refused, q, "a FIFO, socket, device or mount is not removed")
		}
		if fsys.InGit(q) && !p.st.ground.WriteGit {
			return fsys.Errorf(Refused, q, "a transaction may not change a person's repository (Config.WriteGit allows it)")
		}
	}
	return nil
}

// planPut plans a make or a swap.
func (p *planner) planPut(c *view.Staged, cur *fsys.Item) error {
	o := publish.Op{Do: publish.Make, Path: []byte(c.Path), Slot: c.Slot}
	if cur != nil {
		if err := p.checkRemovable(c.Path, cur); err != nil {
			return err
		}
		o.Do, o.Old = publish.Swap, fsys.Shape(cur)
		p.after = append(p.after, fsys.Edit{Path: c.Path, Item: nil})
		if cur.Kind == Dir {
			p.dropped = c.Path
		}
	}
	if c.To.Kind == Dir {
		p.newDir, p.newDirSlot = c.Path, c.Slot
		if err := p.planDir(c, c.Slot); err != nil {
			return err
		}
	}
	p.after = append(p.after, fsys.Edit{Path: c.Path, Item: p.itemOf(c)})
	p.ops = append(p.ops, o)
	return nil
}

// itemOf returns the item that a change leaves in the tree.
func (p *planner) itemOf(c *view.Staged) *fsys.Item {
	c.To.Ignored = p.st.ground.Rules.Below(c.Path, c.To.Kind == Dir)
	if c.To.Kind == Dir && c.To.Dir == nil {
		c.To.Dir = &fsys.Node{}
	}
	return c.To
}

// addToNewDir puts the content of c into the new directory in the slots.
func (p *planner) addToNewDir(c *view.Staged) error {
	if c.To == nil {
		return nil
	}
	at := path.Join(p.newDirSlot, strings.TrimPrefix(c.Path, p.newDir))
	if c.To.Kind == Dir {
		if err := p.planDir(c, at); err != nil {
			return err
		}
	} else if err := os.Rename(filepath.Join(p.st.slots.Name, c.Slot), filepath.Join(p.st.slots.Name, at)); err != nil {
		return err
	}
	c.Slot = at
	p.after = append(p.after, fsys.Edit{Path: c.Path, Item: p.itemOf(c)})
	return nil
}

// planDir makes a new directory in the slots. Its time is set once it is full.
func (p *planner) planDir(c *view.Staged, at string) error {
	name := filepath.Join(p.st.slots.Name, filepath.FromSlash(at))
	if err := os.Mkdir(name, 0o700); err != nil {
		return err
	}
	if err := fsys.Chown(name, p.st.ownerOf(c.Path)); err != nil {
		return err
	}
	c.Slot = at
	want := c.To.Entry
	want.Mode |= 0o700 // until it is in place, because a directory must be writable to be renamed
	p.st.newDirs = append(p.st.newDirs, newDir{at, want})
	if want.Mode != c.To.Mode {
		p.attrs = append(p.attrs, publish.Op{Do: publish.Adjust, Path: []byte(c.Path), Before: publish.AttrOf(want), After: publish.AttrOf(c.To.Entry)})
		p.dirs[c.Path] = true
	}
	return nil
}

// A newDir is a directory in the slots that gets its mode and time later.
type newDir struct {
	at string
	e  Entry
}

// planAttr plans a change of mode and time in place.
func (p *planner) planAttr(c *view.Staged, cur *fsys.Item) error {
	to := *cur
	to.Mode, to.Time = c.To.Mode, c.To.Time
	if b := p.st.ground.Base.Lookup(c.Path); b != nil && b.Mode == c.To.Mode {
		to.Mode = cur.Mode // the transaction did not change the mode, so a change from outside wins
	}
	p.attrs = append(p.attrs, publish.Op{Do: publish.Adjust, Path: []byte(c.Path), Before: publish.AttrOf(cur.Entry), After: publish.AttrOf(to.Entry)})
	p.after = append(p.after, fsys.Edit{Path: c.Path, Item: &to})
	p.dirs[c.Path] = true
	return nil
}

// restoreParentTime makes sure that undoing restores the time of a touched
// directory.
func (p *planner) restoreParentTime(dir string) error {
	if p.dirs[dir] {
		return nil
	}
	p.dirs[dir] = true
	e, err := p.st.ground.Place.Lstat(dir)
	if err != nil && fsys.ChangedOutside(err) || err == nil && e.Kind != Dir {
		p.conflicts = append(p.conflicts, dir)
		return nil
	}
	if err != nil {
		return err
	}
	p.attrs = append(p.attrs, publish.Op{Do: publish.Adjust, Path: []byte(dir), Before: publish.AttrOf(e.Entry)})
	return nil
}

// completeDirs sets mode and time of new directories and records the shape of
// every slot.
func (p *planner) completeDirs() error {
	for _, m := range slices.Backward(p.st.newDirs) {
		if err := p.st.slots.SetAttr(m.at, m.e); err != nil {
			return err
		}
	}
	for i := range p.ops {
		o := &p.ops[i]
		e, err := fsys.Look(p.st.slots, o.Slot)
		if err != nil {
			return err
		}
		o.New = fsys.Shape(e)
	}
	return nil
}

// conflictsAt names what somebody else changed at the path of c since the
// transaction began. The same content is no conflict, even if somebody else wrote
// it.
func (p *planner) conflictsAt(c *view.Staged, cur *fsys.Item) []string {
	base := p.st.ground.Base.Lookup(c.Path)
	switch {
	case cur == nil:
		// Nothing is there, and the transaction expected nothing or wants to remove it.
		if c.To == nil || c.Seen != nil && *c.Seen == (fsys.Print{}) || c.Seen == nil && base == nil {
			return nil
		}
		// The removal is older than the transaction if the directory did not change since Begin.
		if c.Seen == nil && fsys.HasStamps {
			if dir, err := p.st.ground.Place.Lstat(path.Dir(c.Path)); err == nil && dir.Print.Ctime < p.st.began {
				return nil
			}
		}
		return []string{c.Path}
	case c.To != nil && c.To.Kind == Dir && cur.Kind == Dir:
		return nil
	// The view saw nothing here, so somebody else made the path meanwhile.
	case c.Seen != nil && *c.Seen == fsys.Print{}:
		return []string{c.Path}
	// The view saw this very file. Its change time cannot be set by programs, so nobody wrote since.
	case c.Seen != nil && c.Seen.Ino == cur.Print.Ino && c.Seen.Ctime == cur.Print.Ctime && cur.Kind != Dir:
		return nil
	}
	var out []string
	// Now content decides. A change that is older than Begin is no conflict, because the transaction could see it.
	for q, e := range cur.Walk(c.Path) {
		b := p.st.ground.Base.Lookup(q)
		if b != nil && !b.Ignored && b.Same(e.Entry) {
			continue
		}
		if fsys.HasStamps && e.Print.Ctime < p.st.began && (c.Seen == nil || q != c.Path) {
			continue
		}
		out = append(out, q)
	}
	return out
}
