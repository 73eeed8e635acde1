// Package view shows a private view of a workspace to a transaction, as a layer in
// Go, an overlay or a copy. Afterwards it lists what was staged, in one form for
// all three.
package view

import (
	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Ground is what a view needs to know of the workspace.
type Ground struct {
	Place    *fsys.Handle // the workspace
	Base     fsys.Item    // its tree when the transaction began
	Scratch  string       // directory of the transaction
	Quota    fsys.Limit
	WriteGit bool
	Rules    *fsys.Rules
}

// A Staged is one changed name.
type Staged struct {
	Path string
	To   *fsys.Item  // nil: removed with everything below
	Src  string      // the file in scratch with the content of a File
	Move bool        // Src may become the slot; else it is copied
	Base string      // or the slot becomes a hard link to this file of the workspace
	From *fsys.Item  // Base when the view read it
	Seen *fsys.Print // the path when the view first read it; zero: nothing was there; nil: unknown
	Slot string      // holds the content after fillSlots
}

// A View is one way to stage changes. Changes closes the view to its user and
// returns what was staged. End removes the view and may be called at any time.
type View interface {
	Changes() ([]Staged, error)
	End() error
}

// Still reports whether a file of the workspace is still the file that the view
// found there, or has the content that was known.
func (g *Ground) Still(name string, from, now *fsys.Item, h fsys.Hash) bool {
	if now.Print.Ino == from.Print.Ino && now.Time == from.Time && now.Size == from.Size {
		return true
	}
	b := g.Base.Lookup(name)
	return b != nil && b.Print.Ino == from.Print.Ino && b.Time == from.Time && !b.Ignored && b.Hash == h
}

func bounded(opt fsys.Limit) bool { return opt.Bytes > 0 || opt.Files > 0 }
