package workspace

import (
	"github.com/kern-run/kern/internal/workspace/fault"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/tree"
	"github.com/kern-run/kern/internal/workspace/view"
)

// What the rooms of this package give to its users, under one name.
type (
	Hash     = tree.Hash     // a SHA-256 sum: of content, of a Git object, or of a tree
	Kind     = tree.Kind     // what a name in a directory is
	Entry    = tree.Entry    // what is known of one name
	Snapshot = tree.Snapshot // what a workspace held at one moment
	Change   = tree.Change   // one name before and after

	Layer     = view.Layer     // a copy-on-write file system in Go
	LayerFile = view.LayerFile // an open file of a Layer

	Commit    = git.Commit    // one state in the history
	Note      = git.Note      // what a commit is for
	Retention = git.Retention // how much history is kept

	Error = fault.Error // what was not done, where, and what was expected
	Code  = fault.Code  // why, in one word
)

// The kinds.
const (
	File    = tree.File
	Dir     = tree.Dir
	Symlink = tree.Symlink
	Other   = tree.Other
)

// How a commit came to be.
const (
	Transaction = git.Transaction
	Outside     = git.Outside
	Restored    = git.Restored
)

// The codes.
const (
	Conflict    = fault.Conflict
	Locked      = fault.Locked
	Refused     = fault.Refused
	Quota       = fault.Quota
	Busy        = fault.Busy
	InDoubt     = fault.InDoubt
	Unsupported = fault.Unsupported
	Missing     = fault.Missing
	Damaged     = fault.Damaged
	Full        = fault.Full
	Ended       = fault.Ended
)

// ParseHash reads what Hash.String writes.
func ParseHash(s string) (Hash, error) { return tree.ParseHash(s) }
