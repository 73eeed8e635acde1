package workspace

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

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
	st    *stage
	root  entry
	made  string // the new directory that changes are being gathered into
	slot  string // its slot
	gone  string // the directory that an operation takes away as a whole
	attrs []op
	drops []op
	dirs  map[string]bool // directories that have an attr operation
}

func (s *stage) plan(root entry, changes []change) (*plan, error) {
	p := &planner{plan: &plan{}, st: s, root: root, dirs: map[string]bool{}}
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
	cur, err := p.st.scanner().know(p.st.ground.place, &p.root, c.path, deep)
	if c.e == nil && isCodeOf(err, Conflict) {
		err = nil // gone already, with a directory above it
	}
	if err != nil {
		return err
	}
	was := p.root.lookup(c.path)
	if c.e != nil && c.e.Kind == Dir && (cur == nil || cur.Kind != Dir) {
		if b := p.st.ground.base.lookup(c.path); b != nil && b.Kind == Dir && b.Mode == c.e.Mode {
			return nil // only what was in it changed, and it is gone: what is to be put there will clash
		}
	}
	if clash := p.theirs(c, cur); len(clash) > 0 {
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
		if inGit(q) && !p.st.ground.writeGit {
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
	c.e.ignored = p.st.ground.rules.below(c.path, c.e.Kind == Dir)
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
	} else if err := os.Rename(filepath.Join(p.st.slots.name, c.slot), filepath.Join(p.st.slots.name, at)); err != nil {
		return err
	}
	c.slot = at
	p.after = append(p.after, edit{c.path, p.entry(c)})
	return nil
}

// mkdir makes a new directory in the slots. Its time is set when it is full.
func (p *planner) mkdir(c *change, at string) error {
	name := filepath.Join(p.st.slots.name, filepath.FromSlash(at))
	if err := os.Mkdir(name, 0o700); err != nil {
		return err
	}
	if err := own(name, p.st.owner(c.path)); err != nil {
		return err
	}
	c.slot = at
	want := c.e.Entry
	want.Mode |= 0o700 // until it is in place: who may not write to it could not move it
	p.st.made = append(p.st.made, made{at, want})
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
	if b := p.st.ground.base.lookup(c.path); b != nil && b.Mode == c.e.Mode {
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
	e, err := p.st.ground.place.lstat(dir)
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
	for _, m := range slices.Backward(p.st.made) {
		if err := p.st.slots.attr(m.at, m.e); err != nil {
			return err
		}
	}
	for i := range p.ops {
		o := &p.ops[i]
		e, err := bare(p.st.slots, o.Slot)
		if err != nil {
			return err
		}
		o.New = shapeOf(e)
	}
	return nil
}

// theirs names what somebody else changed at c's path since the transaction
// began. Content that is the same is no clash, whoever wrote it.
func (p *planner) theirs(c *change, cur *entry) []string {
	base := p.st.ground.base.lookup(c.path)
	switch {
	case cur == nil:
		if c.e == nil || c.seen != nil && *c.seen == (print{}) || c.seen == nil && base == nil {
			return nil
		}
		if c.seen == nil && hasStamps {
			if dir, err := p.st.ground.place.lstat(path.Dir(c.path)); err == nil && dir.fp.ctime < p.st.began {
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
	for q, e := range cur.walk(c.path) {
		b := p.st.ground.base.lookup(q)
		if b != nil && !b.ignored && b.same(e.Entry) {
			continue
		}
		if hasStamps && e.fp.ctime < p.st.began && (c.seen == nil || q != c.path) {
			continue
		}
		out = append(out, q)
	}
	return out
}
