package workspace

import (
	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/view"
)

// Types of the packages below that are part of this API.
type (
	Hash     = fsys.Hash     // a SHA-256 sum: of content, of a Git object, or of a tree
	Kind     = fsys.Kind     // the kind of a name in a directory
	Entry    = fsys.Entry    // one name with its metadata
	Snapshot = fsys.Snapshot // the state of a workspace at one moment
	Change   = fsys.Change   // one name before and after

	Layer     = view.Layer     // a copy-on-write file system in Go
	LayerFile = view.LayerFile // an open file of a Layer

	Commit    = git.Commit    // one state in the history
	Note      = git.Note      // the caller's description of a commit
	Retention = git.Retention // how much history is kept

	Error = fsys.Error // what failed, where, and what was expected
	Code  = fsys.Code  // the reason, in one word
)

// The kinds.
const (
	File    = fsys.File
	Dir     = fsys.Dir
	Symlink = fsys.Symlink
	Other   = fsys.Other
)

// The origins of a commit.
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
