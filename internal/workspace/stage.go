package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// A stage is the staged form of a transaction: what its view left, in slots.
type stage struct {
	ground  ground
	slots   *place
	began   int64 // when that was, by the clock of the file system
	fine    bool  // that clock tells any two writes apart
	changes []change
	made    []made
}

func (s *stage) scanner() *scanner { return newScanner(context.Background(), s.ground.rules, s.fine) }

// fill moves the content of every change into a slot and names it by hash.
// From here on no view is needed, and nothing but the slots is.
func (s *stage) fill(changes []change) error {
	groups := map[uint64]*change{}
	for i := range changes {
		c := &changes[i]
		if c.e == nil {
			continue
		}
		if err := s.allowed(c); err != nil {
			return err
		}
		c.slot = strconv.Itoa(i)
		name := filepath.Join(s.slots.name, c.slot)
		if first := groups[c.e.Group]; c.e.Kind == File && c.e.Group != 0 && first != nil {
			if err := os.Link(filepath.Join(s.slots.name, first.slot), name); err != nil {
				return err
			}
			c.e.Hash = first.e.Hash
		} else if err := s.fillOne(c, name); err != nil {
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
		now, err := s.slots.lstat(c.slot)
		if err != nil {
			return err
		}
		c.e.fp, c.e.Group, c.e.Size, c.e.Time, c.e.Mode = now.fp, now.Group, now.Size, now.Time, now.Mode
		c.e.racy = !s.fine
	}
	return nil
}

// allowed refuses what is never published.
func (s *stage) allowed(c *change) error {
	if inGit(c.path) && !s.ground.writeGit {
		return errorf(Refused, c.path, "a transaction may not change a person's repository (Config.WriteGit allows it)")
	}
	if c.e.Kind == Other {
		return errorf(Refused, c.path, "expected files, directories and symlinks; found a FIFO, socket, device or mount")
	}
	const set = fs.ModeSetuid | fs.ModeSetgid
	if c.e.Kind == File && c.e.Mode&set != 0 {
		if b := s.ground.base.lookup(c.path); b == nil || b.Mode&set != c.e.Mode&set {
			return errorf(Refused, c.path, "expected a mode without setuid and setgid, found %v", c.e.Mode)
		}
	}
	return nil
}

func (s *stage) fillOne(c *change, name string) (err error) {
	switch {
	case c.e.Kind == Dir:
		return nil // made where it is needed
	case c.e.Kind == Symlink:
		c.e.Hash = blobHash([]byte(c.e.Target))
		if err := os.Symlink(c.e.Target, name); err != nil {
			return err
		}
	case c.base != "":
		return s.fillBase(c)
	case c.move:
		if err := os.Rename(c.src, name); err != nil {
			return err
		}
	default:
		if err := copyFile(name, c.src); err != nil {
			return err
		}
	}
	if err := own(name, s.owner(c.path)); err != nil {
		return err
	}
	if err := s.slots.attr(c.slot, c.e.Entry); err != nil || c.e.Kind == Symlink {
		return err
	}
	f, err := s.slots.open(c.slot)
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
func (s *stage) fillBase(c *change) error {
	if err := s.ground.place.keep(s.slots, c.base, c.slot); err != nil {
		return errorf(Conflict, c.base, "changed by somebody else since the transaction looked at it; nothing was published: %v", err)
	}
	now, err := s.slots.lstat(c.slot)
	if err != nil {
		return err
	}
	if now.Kind != File {
		return errorf(Conflict, c.base, "changed by somebody else since the transaction looked at it; nothing was published")
	}
	f, err := s.slots.open(c.slot)
	if err != nil {
		return err
	}
	defer f.Close()
	if c.e.Hash, err = hashFile(f, now.Size); err != nil {
		return err
	}
	if !s.ground.still(c.base, c.from, &now, c.e.Hash) {
		return errorf(Conflict, c.base, "changed by somebody else since the transaction looked at it; nothing was published")
	}
	if now.Mode == c.e.Mode && now.Time == c.e.Time {
		return nil
	}
	old := filepath.Join(s.slots.name, c.slot)
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
	return s.slots.attr(c.slot, c.e.Entry)
}

// owner is who a path belongs to after publishing: who had it, or who has the
// directory it comes to.
func (s *stage) owner(p string) print {
	for ; ; p = path.Dir(p) {
		if e := s.ground.base.lookup(p); e != nil {
			return e.fp
		}
		if e, err := s.ground.place.lstat(p); err == nil {
			return e.fp
		}
		if p == "." {
			return print{}
		}
	}
}

// within holds the staged form to the quota: the view enforced it while it
// was staged, in its own units.
func (s *stage) within(cs []change) error {
	var bytes int64
	files := 0
	for _, c := range cs {
		if c.e == nil || c.base != "" || c.e.Kind == Dir && s.ground.base.lookup(c.path) != nil {
			continue
		}
		files++
		if c.src != "" {
			bytes += c.e.Size
		}
	}
	if s.ground.quota.Bytes > 0 && bytes > s.ground.quota.Bytes {
		return errorf(Quota, "", "expected at most %d bytes, found %d staged", s.ground.quota.Bytes, bytes)
	}
	if s.ground.quota.Files > 0 && files > s.ground.quota.Files {
		return errorf(Quota, "", "expected at most %d files, found %d staged", s.ground.quota.Files, files)
	}
	return nil
}

// sync makes slots, their directories and the pack last. Syncs of one moment
// share the file system's own commit, so they are started together.
func (s *stage) sync(pk *pack, packs string) error {
	jobs := []func() error{pk.f.Sync, func() error { return syncPath(packs) }}
	n := 0
	for _, c := range s.changes {
		if c.e != nil && c.e.Kind == File {
			n++
		}
	}
	if n+len(s.made) > 100 {
		err := s.slots.syncAll()
		if !errors.Is(err, errors.ErrUnsupported) {
			return errors.Join(err, together(jobs))
		}
	}
	err := filepath.WalkDir(s.slots.name, func(p string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) {
			jobs = append(jobs, func() error { return syncPath(p) })
		}
		return err
	})
	return errors.Join(err, together(append(jobs, func() error { return syncPath(s.ground.scratch) })))
}
