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

// A plan is a commit worked out under the lock.
type plan struct {
	ops    []publish.Op
	before []fsys.Edit // brings what is known of the touched paths up to date
	after  []fsys.Edit // what publishing changes
	clash  []string
}

// planner turns changes into operations against what is there now.
type planner struct {
	*plan
	st    *stage
	root  fsys.Item
	made  string // the new directory that changes are being gathered into
	slot  string // its slot
	gone  string // the directory that an operation takes away as a whole
	attrs []publish.Op
	drops []publish.Op
	dirs  map[string]bool // directories that have an attr operation
}

func (s *stage) plan(root fsys.Item, changes []view.Staged) (*plan, error) {
	p := &planner{plan: &plan{}, st: s, root: root, dirs: map[string]bool{}}
	for i := range changes {
		if err := p.change(&changes[i]); err != nil {
			return nil, err
		}
	}
	for _, o := range slices.Concat(p.ops, p.drops) {
		if err := p.parent(path.Dir(o.At())); err != nil {
			return nil, err
		}
	}
	if err := p.shapes(); err != nil {
		return nil, err
	}
	slices.Reverse(p.drops)
	p.ops = slices.Concat(p.ops, p.drops, p.attrs)
	slices.SortStableFunc(p.before, func(a, b fsys.Edit) int { return fsys.Compare(a.Path, b.Path) })
	slices.SortStableFunc(p.after, func(a, b fsys.Edit) int { return fsys.Compare(a.Path, b.Path) })
	if len(p.clash) > 0 {
		slices.Sort(p.clash)
		e := fsys.Errorf(Conflict, "", "changed by somebody else since the transaction began; nothing was published")
		e.Paths = slices.Compact(p.clash)
		return nil, e
	}
	return p.plan, nil
}

func (p *planner) change(c *view.Staged) error {
	if p.made != "" && fsys.Under(c.Path, p.made) && c.Path != p.made {
		return p.gather(c)
	}
	if p.gone != "" && fsys.Under(c.Path, p.gone) {
		return nil
	}
	deep := c.To == nil || c.To.Kind != Dir
	cur, err := p.st.scanner().Know(p.st.ground.Place, &p.root, c.Path, deep)
	if c.To == nil && fsys.Is(err, Conflict) {
		err = nil // gone already, with a directory above it
	}
	if err != nil {
		return err
	}
	was := p.root.Lookup(c.Path)
	if c.To != nil && c.To.Kind == Dir && (cur == nil || cur.Kind != Dir) {
		if b := p.st.ground.Base.Lookup(c.Path); b != nil && b.Kind == Dir && b.Mode == c.To.Mode {
			return nil // only what was in it changed, and it is gone: what is to be put there will clash
		}
	}
	if clash := p.theirs(c, cur); len(clash) > 0 {
		p.clash = append(p.clash, clash...)
		return nil
	}
	if (was == nil) != (cur == nil) || cur != nil && (cur.Print != was.Print || cur.Dir != was.Dir || cur.Entry != was.Entry) {
		p.before = append(p.before, fsys.Edit{Path: c.Path, Item: cur})
	}
	switch {
	case c.To == nil && cur == nil:
	case c.To == nil:
		if err := p.keepable(c.Path, cur); err != nil {
			return err
		}
		p.drops = append(p.drops, publish.Op{Do: publish.Drop, Path: []byte(c.Path), Slot: "d" + strconv.Itoa(len(p.drops)), Old: fsys.Shape(cur)})
		p.after = append(p.after, fsys.Edit{Path: c.Path, Item: nil})
		p.gone = c.Path
	case c.To.Kind == Dir && cur != nil && cur.Kind == Dir:
		return p.attr(c, cur)
	case c.Seen == nil && cur != nil && c.To.Kind == File && cur.Same(c.To.Entry) && cur.Time == c.To.Time && !cur.Ignored:
		// An overlay copies a file that is only touched; nothing changed.
	case cur != nil && cur.Kind == File && c.To.Kind == File && cur.Hash == c.To.Hash && !cur.Ignored &&
		cur.Group == 0 && c.To.Group == 0:
		return p.attr(c, cur)
	default:
		return p.put(c, cur)
	}
	return nil
}

// keepable refuses to take away what a workspace does not touch.
func (p *planner) keepable(at string, cur *fsys.Item) error {
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

// put plans a make or a swap.
func (p *planner) put(c *view.Staged, cur *fsys.Item) error {
	o := publish.Op{Do: publish.Make, Path: []byte(c.Path), Slot: c.Slot}
	if cur != nil {
		if err := p.keepable(c.Path, cur); err != nil {
			return err
		}
		o.Do, o.Old = publish.Swap, fsys.Shape(cur)
		p.after = append(p.after, fsys.Edit{Path: c.Path, Item: nil})
		if cur.Kind == Dir {
			p.gone = c.Path
		}
	}
	if c.To.Kind == Dir {
		p.made, p.slot = c.Path, c.Slot
		if err := p.mkdir(c, c.Slot); err != nil {
			return err
		}
	}
	p.after = append(p.after, fsys.Edit{Path: c.Path, Item: p.entry(c)})
	p.ops = append(p.ops, o)
	return nil
}

func (p *planner) entry(c *view.Staged) *fsys.Item {
	c.To.Ignored = p.st.ground.Rules.Below(c.Path, c.To.Kind == Dir)
	if c.To.Kind == Dir && c.To.Dir == nil {
		c.To.Dir = &fsys.Node{}
	}
	return c.To
}

// gather puts c into the new directory that is being put together.
func (p *planner) gather(c *view.Staged) error {
	if c.To == nil {
		return nil
	}
	at := path.Join(p.slot, strings.TrimPrefix(c.Path, p.made))
	if c.To.Kind == Dir {
		if err := p.mkdir(c, at); err != nil {
			return err
		}
	} else if err := os.Rename(filepath.Join(p.st.slots.Name, c.Slot), filepath.Join(p.st.slots.Name, at)); err != nil {
		return err
	}
	c.Slot = at
	p.after = append(p.after, fsys.Edit{Path: c.Path, Item: p.entry(c)})
	return nil
}

// mkdir makes a new directory in the slots. Its time is set when it is full.
func (p *planner) mkdir(c *view.Staged, at string) error {
	name := filepath.Join(p.st.slots.Name, filepath.FromSlash(at))
	if err := os.Mkdir(name, 0o700); err != nil {
		return err
	}
	if err := fsys.Own(name, p.st.owner(c.Path)); err != nil {
		return err
	}
	c.Slot = at
	want := c.To.Entry
	want.Mode |= 0o700 // until it is in place: who may not write to it could not move it
	p.st.made = append(p.st.made, made{at, want})
	if want.Mode != c.To.Mode {
		p.attrs = append(p.attrs, publish.Op{Do: publish.Adjust, Path: []byte(c.Path), Before: publish.AttrOf(want), After: publish.AttrOf(c.To.Entry)})
		p.dirs[c.Path] = true
	}
	return nil
}

// A made is a directory in the slots that waits for its mode and time.
type made struct {
	at string
	e  Entry
}

// attr plans a change of mode and time in place.
func (p *planner) attr(c *view.Staged, cur *fsys.Item) error {
	to := *cur
	to.Mode, to.Time = c.To.Mode, c.To.Time
	if b := p.st.ground.Base.Lookup(c.Path); b != nil && b.Mode == c.To.Mode {
		to.Mode = cur.Mode // who changed it outside is right
	}
	p.attrs = append(p.attrs, publish.Op{Do: publish.Adjust, Path: []byte(c.Path), Before: publish.AttrOf(cur.Entry), After: publish.AttrOf(to.Entry)})
	p.after = append(p.after, fsys.Edit{Path: c.Path, Item: &to})
	p.dirs[c.Path] = true
	return nil
}

// parent makes sure that undoing puts the time of a touched directory back.
func (p *planner) parent(dir string) error {
	if p.dirs[dir] {
		return nil
	}
	p.dirs[dir] = true
	e, err := p.st.ground.Place.Lstat(dir)
	if err != nil && fsys.Theirs(err) || err == nil && e.Kind != Dir {
		p.clash = append(p.clash, dir)
		return nil
	}
	if err != nil {
		return err
	}
	p.attrs = append(p.attrs, publish.Op{Do: publish.Adjust, Path: []byte(dir), Before: publish.AttrOf(e.Entry)})
	return nil
}

// shapes completes new directories and says what each slot holds.
func (p *planner) shapes() error {
	for _, m := range slices.Backward(p.st.made) {
		if err := p.st.slots.Attr(m.at, m.e); err != nil {
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

// theirs names what somebody else changed at c's path since the transaction
// began. Content that is the same is no clash, whoever wrote it.
func (p *planner) theirs(c *view.Staged, cur *fsys.Item) []string {
	base := p.st.ground.Base.Lookup(c.Path)
	switch {
	case cur == nil:
		if c.To == nil || c.Seen != nil && *c.Seen == (fsys.Print{}) || c.Seen == nil && base == nil {
			return nil
		}
		if c.Seen == nil && fsys.HasStamps {
			if dir, err := p.st.ground.Place.Lstat(path.Dir(c.Path)); err == nil && dir.Print.Ctime < p.st.began {
				return nil
			}
		}
		return []string{c.Path}
	case c.To != nil && c.To.Kind == Dir && cur.Kind == Dir:
		return nil
	case c.Seen != nil && *c.Seen == fsys.Print{}:
		return []string{c.Path}
	case c.Seen != nil && c.Seen.Ino == cur.Print.Ino && c.Seen.Ctime == cur.Print.Ctime && cur.Kind != Dir:
		return nil
	}
	var out []string
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
