// Package view shows a transaction's private view of a workspace in one of
// three ways, a layer in Go, an overlay, a copy, and says afterwards what was
// staged on it, in one form for all.
package view

import (
	"github.com/kern-run/kern/internal/workspace/place"
	"github.com/kern-run/kern/internal/workspace/tree"
)

// A Ground is what a view stands on.
type Ground struct {
	Place    *place.Place // the workspace
	Base     tree.Item    // what was known of it when the transaction began
	Scratch  string       // the transaction's own directory
	Quota    place.Bound
	WriteGit bool
	Rules    *tree.Rules
}

// A Staged is one name of the staged form: what path becomes.
type Staged struct {
	Path string
	To   *tree.Item  // nil: gone, with all below it
	Src  string      // the file in scratch that holds the content of a File
	Move bool        // src is ours alone and may become the slot; else it is copied
	Base string      // or: the workspace's own file at this path gets a further name here
	From *tree.Item  // what base was when the view looked at it
	Seen *tree.Print // what the view saw here when it first looked: zero for nothing, nil for unknown
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
func (g *Ground) Still(name string, from, now *tree.Item, h tree.Hash) bool {
	if now.Print.Ino == from.Print.Ino && now.Time == from.Time && now.Size == from.Size {
		return true
	}
	b := g.Base.Lookup(name)
	return b != nil && b.Print.Ino == from.Print.Ino && b.Time == from.Time && !b.Ignored && b.Hash == h
}

func bounded(opt place.Bound) bool { return opt.Bytes > 0 || opt.Files > 0 }
