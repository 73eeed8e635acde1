// Package view shows a transaction's private view of a workspace in one of
// three ways, a layer in Go, an overlay, a copy, and says afterwards what was
// staged on it, in one form for all.
package view

import (
	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A Ground is what a view stands on.
type Ground struct {
	Place    *fsys.Place // the workspace
	Base     fsys.Item   // what was known of it when the transaction began
	Scratch  string      // the transaction's own directory
	Quota    fsys.Bound
	WriteGit bool
	Rules    *fsys.Rules
}

// A Staged is one name of the staged form: what path becomes.
type Staged struct {
	Path string
	To   *fsys.Item  // nil: gone, with all below it
	Src  string      // the file in scratch that holds the content of a File
	Move bool        // src is ours alone and may become the slot; else it is copied
	Base string      // or: the workspace's own file at this path gets a further name here
	From *fsys.Item  // what base was when the view looked at it
	Seen *fsys.Print // what the view saw here when it first looked: zero for nothing, nil for unknown
	Slot string      // where the content lies after fill
}

// A View is one way to stage changes. changes closes it to its user and says
// what was staged, sorted by path; end takes it down and may come at any time.
type View interface {
	Changes() ([]Staged, error)
	End() error
}

// Still tells that a file of the workspace is what the view found there: the
// file itself, or one with the content that was known.
func (g *Ground) Still(name string, from, now *fsys.Item, h fsys.Hash) bool {
	if now.Print.Ino == from.Print.Ino && now.Time == from.Time && now.Size == from.Size {
		return true
	}
	b := g.Base.Lookup(name)
	return b != nil && b.Print.Ino == from.Print.Ino && b.Time == from.Time && !b.Ignored && b.Hash == h
}

func bounded(opt fsys.Bound) bool { return opt.Bytes > 0 || opt.Files > 0 }
