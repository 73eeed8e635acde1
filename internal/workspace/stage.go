package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/scan"
	"github.com/kern-run/kern/internal/workspace/view"
)

// A stage is the staged form of a transaction: its changes, with the content in
// slots.
type stage struct {
	ground  view.Ground
	slots   *fsys.Handle
	began   int64 // time of Begin, by the clock of the file system
	fine    bool  // that clock tells any two writes apart
	changes []view.Staged
	newDirs []newDir
}

func (s *stage) newScanner() *scan.Scanner {
	return scan.New(context.Background(), s.ground.Rules, s.fine)
}

// fillSlots moves the content of every change into a slot and hashes it. From
// here on only the slots are needed, and no view.
func (s *stage) fillSlots(changes []view.Staged) error {
	groups := map[uint64]*view.Staged{}
	for i := range changes {
		c := &changes[i]
		if c.To == nil {
			continue
		}
		if err := s.checkAllowed(c); err != nil {
			return err
		}
		c.Slot = strconv.Itoa(i)
		name := filepath.Join(s.slots.Name, c.Slot)
		// Names that share a file in the view must share it when published, so they share a slot.
		if first := groups[c.To.Group]; c.To.Kind == File && c.To.Group != 0 && first != nil {
			if err := os.Link(filepath.Join(s.slots.Name, first.Slot), name); err != nil {
				return err
			}
			c.To.Hash = first.To.Hash
		} else if err := s.fillSlot(c, name); err != nil {
			return err
		}
		if c.To.Kind == File && c.To.Group != 0 && groups[c.To.Group] == nil {
			groups[c.To.Group] = c
		}
	}
	for _, c := range changes { // only now, because making a link changes metadata
		if c.To == nil || c.To.Kind == Dir {
			continue
		}
		now, err := s.slots.Lstat(c.Slot)
		if err != nil {
			return err
		}
		// These entries become the known tree, so the next scan need not read the published files.
		c.To.Print, c.To.Group, c.To.Size, c.To.Time, c.To.Mode = now.Print, now.Group, now.Size, now.Time, now.Mode
		c.To.Racy = !s.fine
	}
	return nil
}

// checkAllowed refuses changes that are never published.
func (s *stage) checkAllowed(c *view.Staged) error {
	if fsys.InGit(c.Path) && !s.ground.WriteGit {
		return fsys.Errorf(Refused, c.Path, "a transaction may not change a person's repository (Config.WriteGit allows it)")
	}
	if c.To.Kind == Other {
		return fsys.Errorf(Refused, c.Path, "expected files, directories and symlinks; found a FIFO, socket, device or mount")
	}
	if (c.To.Kind == File || c.To.Kind == Dir) && !s.hasBits(c.Path, c.To.Kind, c.To.Mode&(fs.ModeSetuid|fs.ModeSetgid)) {
		return fsys.Errorf(Refused, c.Path, "expected a mode without setuid and setgid, found %v", c.To.Mode)
	}
	if need := ownerNeeds[c.To.Kind]; c.To.Mode&need != need && os.Geteuid() > 0 {
		return fsys.Errorf(Refused, c.Path, "expected a mode with at least %v, found %v: the workspace must be able to read it", need, c.To.Mode)
	}
	return nil
}

// ownerNeeds are the permissions without which a workspace that is not run as root
// could neither scan nor record a path.
var ownerNeeds = map[fsys.Kind]fs.FileMode{File: 0o400, Dir: 0o500}

// hasBits reports whether a path had the setuid and setgid bits before. A new
// directory gets the setgid bit from its parent, because file systems do that.
func (s *stage) hasBits(p string, kind fsys.Kind, bits fs.FileMode) bool {
	if bits == 0 {
		return true
	}
	b := s.ground.Base.Lookup(p)
	if b == nil && kind == Dir && bits == fs.ModeSetgid {
		for b == nil && p != "." {
			p = path.Dir(p)
			b = s.ground.Base.Lookup(p)
		}
	}
	return b != nil && b.Kind == kind && b.Mode&(fs.ModeSetuid|fs.ModeSetgid) == bits
}

// fillSlot puts the content of one change into its slot, with mode, time and owner.
func (s *stage) fillSlot(c *view.Staged, name string) (err error) {
	switch {
	case c.To.Kind == Dir:
		return nil // the plan makes it where it is needed
	case c.To.Kind == Symlink:
		c.To.Hash = fsys.Blob([]byte(c.To.Target))
		if err := os.Symlink(c.To.Target, name); err != nil {
			return err
		}
	case c.Base != "":
		return s.linkBase(c)
	case c.Move:
		if err := os.Rename(c.Src, name); err != nil {
			return err
		}
	default:
		if err := fsys.CopyFile(name, c.Src); err != nil {
			return err
		}
	}
	// The owner comes before the mode, because a change of owner clears setuid and setgid.
	if err := fsys.Chown(name, s.ownerOf(c.Path)); err != nil {
		return err
	}
	if err := s.slots.SetAttr(c.Slot, c.To.Entry); err != nil || c.To.Kind == Symlink {
		return err
	}
	f, err := s.slots.Open(c.Slot)
	if err != nil {
		return err
	}
	defer f.Close()
	// A process with the file open could change it after it was checked and hashed.
	if err := fsys.CheckNoWriters(f); err != nil {
		e := fsys.Errorf(Busy, c.Path, "a process still has it open for writing")
		return e
	}
	now, err := fsys.Stat(f)
	if err != nil {
		return err
	}
	c.To.Hash, err = fsys.HashFile(f, now.Size)
	return err
}

// linkBase makes the slot a hard link to a file of the workspace, for a change
// that keeps the content of the file.
func (s *stage) linkBase(c *view.Staged) error {
	if err := s.ground.Place.LinkTo(s.slots, c.Base, c.Slot); err != nil {
		return fsys.Errorf(Conflict, c.Base, "changed by somebody else since the transaction looked at it; nothing was published: %v", err)
	}
	now, err := s.slots.Lstat(c.Slot)
	if err != nil {
		return err
	}
	if now.Kind != File {
		return fsys.Errorf(Conflict, c.Base, "changed by somebody else since the transaction looked at it; nothing was published")
	}
	f, err := s.slots.Open(c.Slot)
	if err != nil {
		return err
	}
	defer f.Close()
	if c.To.Hash, err = fsys.HashFile(f, now.Size); err != nil {
		return err
	}
	// The link holds whatever is at the path now. It must be what the transaction saw.
	if !s.ground.Still(c.Base, c.From, &now, c.To.Hash) {
		return fsys.Errorf(Conflict, c.Base, "changed by somebody else since the transaction looked at it; nothing was published")
	}
	// A mode set on the link would show at the published path at once, so such a change needs a copy.
	if now.Mode == c.To.Mode && now.Time == c.To.Time {
		return nil
	}
	old := filepath.Join(s.slots.Name, c.Slot)
	if err := os.Rename(old, old+".base"); err != nil {
		return err
	}
	defer os.Remove(old + ".base")
	if err := fsys.CopyFile(old, old+".base"); err != nil {
		return err
	}
	if err := fsys.Chown(old, now.Print); err != nil {
		return err
	}
	return s.slots.SetAttr(c.Slot, c.To.Entry)
}

// ownerOf returns the owner that a path gets when it is published: the owner of
// the replaced file, or else the owner of the directory.
func (s *stage) ownerOf(p string) fsys.Print {
	for ; ; p = path.Dir(p) {
		if e := s.ground.Base.Lookup(p); e != nil {
			return e.Print
		}
		if e, err := s.ground.Place.Lstat(p); err == nil {
			return e.Print
		}
		if p == "." {
			return fsys.Print{}
		}
	}
}

// checkQuota compares the staged form with the quota. The view enforced the quota
// before, but counted in its own units.
func (s *stage) checkQuota(cs []view.Staged) error {
	var bytes int64
	files := 0
	for _, c := range cs {
		// Removals and links to unchanged files take no space.
		if c.To == nil || c.Base != "" || c.To.Kind == Dir && s.ground.Base.Lookup(c.Path) != nil {
			continue
		}
		files++
		if c.Src != "" {
			bytes += c.To.Size
		}
	}
	if s.ground.Quota.Bytes > 0 && bytes > s.ground.Quota.Bytes {
		return fsys.Errorf(Quota, "", "expected at most %d bytes, found %d staged", s.ground.Quota.Bytes, bytes)
	}
	if s.ground.Quota.Files > 0 && files > s.ground.Quota.Files {
		return fsys.Errorf(Quota, "", "expected at most %d files, found %d staged", s.ground.Quota.Files, files)
	}
	return nil
}

// syncSlots syncs slots and their directories, and runs jobs beside that, because
// syncs at the same moment share one commit of the file system.
func (s *stage) syncSlots(jobs ...func() error) error {
	n := 0
	for _, c := range s.changes {
		if c.To != nil && c.To.Kind == File {
			n++
		}
	}
	// One sync of the whole file system is cheaper than a hundred syncs of files.
	if n+len(s.newDirs) > 100 {
		err := s.slots.SyncAll()
		if !errors.Is(err, errors.ErrUnsupported) {
			return errors.Join(err, fsys.RunAll(jobs))
		}
	}
	err := filepath.WalkDir(s.slots.Name, func(p string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) {
			jobs = append(jobs, func() error { return fsys.Sync(p) })
		}
		return err
	})
	// A file whose directory is not on disk is lost in a power failure, although its content was synced.
	for _, dir := range []string{s.ground.Scratch, filepath.Dir(s.ground.Scratch)} {
		jobs = append(jobs, func() error { return fsys.Sync(dir) })
	}
	return errors.Join(err, fsys.RunAll(jobs))
}
