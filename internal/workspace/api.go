package workspace

import (
	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/view"
)

// What the rooms of this package give to its users, under one name.
type (
	Hash     = fsys.Hash     // a SHA-256 sum: of content, of a Git object, or of a tree
	Kind     = fsys.Kind     // what a name in a directory is
	Entry    = fsys.Entry    // what is known of one name
	Snapshot = fsys.Snapshot // what a workspace held at one moment
	Change   = fsys.Change   // one name before and after

	Layer     = view.Layer     // a copy-on-write file system in Go
	LayerFile = view.LayerFile // an open file of a Layer

	Commit    = git.Commit    // one state in the history
	Note      = git.Note      // what a commit is for
	Retention = git.Retention // how much history is kept

	Error = fsys.Error // what was not done, where, and what was expected
	Code  = fsys.Code  // why, in one word
)

// The kinds.
const (
	File    = fsys.File
	Dir     = fsys.Dir
	Symlink = fsys.Symlink
	Other   = fsys.Other
)

// How a commit came to be.
const (
	Transaction = git.Transaction
	Outside     = git.Outside
	Restored    = git.Restored
)

// The codes.
const (
	Conflict    = fsys.Conflict
	Locked      = fsys.Locked
	Refused     = fsys.Refused
	Quota       = fsys.Quota
	Busy        = fsys.Busy
	InDoubt     = fsys.InDoubt
	Unsupported = fsys.Unsupported
	Missing     = fsys.Missing
	Damaged     = fsys.Damaged
	Full        = fsys.Full
	Ended       = fsys.Ended
)

// ParseHash reads what Hash.String writes.
func ParseHash(s string) (Hash, error) { return fsys.ParseHash(s) }
