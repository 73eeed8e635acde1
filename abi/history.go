package abi

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// A Commit is one change of a workspace by a process, or an undo by a person. Seq
// is the number of the record of the process's journal that confirms it.
type Commit struct {
	Seq   uint64       `json:"seq"` // 0: an undo by a person
	Pid   Pid          `json:"pid"`
	Call  uint64       `json:"call,omitempty"`
	Tool  string       `json:"tool"`
	Time  time.Time    `json:"time"`
	Hash  string       `json:"commit"`
	Note  string       `json:"note,omitempty"`
	Paths []PathChange `json:"paths"`
}

// A PathChange names a path and its change: added, removed, changed or mode.
type PathChange struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

// A FileDiff is the change of one file, as a patch that git apply accepts.
type FileDiff struct {
	PathChange
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Binary  bool   `json:"binary,omitempty"`
	Patch   string `json:"patch"`
}

// UndoOptions say how far an undo goes.
type UndoOptions struct {
	To      uint64 `json:"to,omitempty"`      // restore the files as they were after this record; 0: as before the first commit
	Partial bool   `json:"partial,omitempty"` // skip paths that somebody else changed since; without it they refuse the undo
	By      string `json:"by,omitempty"`      // the person that asked
	DryRun  bool   `json:"dry_run,omitempty"` // say what would be restored, and change nothing
}

// An UndoResult lists what an undo restored. An undo is a commit too, so a second
// undo with To, the number of the last record, takes it back.
type UndoResult struct {
	Pid   Pid          `json:"pid"`
	Hash  string       `json:"commit"` // empty: there was nothing to restore
	Paths []PathChange `json:"paths"`
	Kept  []string     `json:"kept"` // paths that somebody else changed, and directories that hold files of others
}

// ForkOptions say where a fork begins. If the process has a workspace, the fork
// works on a copy of the files of that record.
type ForkOptions struct {
	At        uint64 `json:"at,omitempty"`        // the last record that counts; 0: the last there is
	Workspace string `json:"workspace,omitempty"` // the absolute directory of the copy; empty: beside the workspace
	Grant     Grant  `json:"grant,omitzero"`
}

// A Grant changes the limits that a process takes over from the one that it continues.
// Without a grant it gets what that one had left.
type Grant struct {
	Set   Limits   `json:"set,omitzero"`    // replaces what is left
	Add   Limits   `json:"add,omitzero"`    // is added to what is left
	Unset []string `json:"unset,omitempty"` // names of limits that are removed
}

// Names reports whether g changes the limit on u.
func (g *Grant) Names(u Unit) bool {
	_, set := g.Set.Get(u)
	_, add := g.Add.Get(u)
	return set || add || slices.Contains(g.Unset, u.String())
}

// Apply returns the limits after the grant. A limit that is not set has nothing left to
// add to.
func (g *Grant) Apply(left Limits) (Limits, *Error) {
	var bad *Error
	g.Set.Each(left.Set)
	g.Add.Each(func(u Unit, n int64) {
		was, set := left.Get(u)
		if _, twice := g.Set.Get(u); !set || twice {
			bad = &Error{Code: InvalidArguments, Message: fmt.Sprintf("there is no limit on %s to add to", u), Where: "/grant/add/" + u.String(),
				Hint: "give an amount without a plus sign to set the limit"}
			return
		}
		if was > math.MaxInt64-n {
			n = math.MaxInt64 - was
		}
		left.Set(u, was+n)
	})
	for _, name := range g.Unset {
		u, ok := UnitOf(name)
		if !ok {
			return left, &Error{Code: InvalidArguments, Message: fmt.Sprintf("there is no limit %q", name), Where: "/grant/unset"}
		}
		left.Unset(u)
	}
	return left, bad
}

// ContinueOptions say how a process goes on that has exited.
type ContinueOptions struct {
	Say     string  `json:"say,omitempty"`     // a further task for the model; empty: it goes on where it stood
	Account *string `json:"account,omitempty"` // the named account that is charged; nil: the same as before
	Grant   Grant   `json:"grant,omitzero"`
}

// A ForkResult names the new process and its workspace.
type ForkResult struct {
	Pid       Pid    `json:"pid"`
	Workspace string `json:"workspace,omitempty"`
}

// A WorkspaceCheck is the result of reading all that is kept of a workspace.
type WorkspaceCheck struct {
	Dir      string       `json:"dir"`
	History  string       `json:"history"` // a repository for git --git-dir
	Commits  int          `json:"commits"`
	Contents int          `json:"contents"` // different file contents in all commits, each read and compared with its hash
	Files    int          `json:"files"`    // in the directory now
	Bytes    int64        `json:"bytes"`
	Digest   string       `json:"digest"`  // of the directory
	Outside  []PathChange `json:"outside"` // changes since the last commit, made by somebody else
}

// A ReplayResult is the result of replaying the journal of a process.
type ReplayResult struct {
	Pid        Pid         `json:"pid"`
	Records    int         `json:"records"`
	Calls      int         `json:"calls"`
	Exit       Exit        `json:"exit"` // empty: the recording ends before the process does
	Same       bool        `json:"same"`
	Divergence *Divergence `json:"divergence,omitempty"`
}

// A Divergence is the first record at which a replay differs from the recording.
type Divergence struct {
	Record uint64 `json:"record"`
	Why    string `json:"why"`
}

func (d *Divergence) Error() string {
	return "record " + strconv.FormatUint(d.Record, 10) + ": " + d.Why
}
