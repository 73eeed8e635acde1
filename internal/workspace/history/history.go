// Package history reads what processes did to their workspaces: it lists their
// commits, shows them as patches, undoes them and exports the files of an earlier
// record.
package history

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/diff"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/workspace"
)

// undoTool is the tool that the history names for a commit of kern undo.
const undoTool = "undo"

// A Source reads processes for a history.
type Source struct {
	Records func(pid abi.Pid, after uint64) iter.Seq2[*abi.Record, error]
	Record  func(pid abi.Pid, n uint64) (*abi.Record, error)
	// Process returns the children of a process and the number of its last record.
	Process func(pid abi.Pid) (children []abi.Pid, records uint64, err error)
	// Settle decides a commit that is in doubt, from the journal.
	Settle func(*workspace.Workspace) error
}

// A History holds the commits that a process and its descendants made.
type History struct {
	pid       abi.Pid
	source    Source
	workspace *workspace.Workspace
	commits   []commit // oldest first
	snapshots map[workspace.Hash]*workspace.Snapshot
	last      *workspace.Snapshot // the last one read, because a similar one is cheap to read from it
}

type commit struct {
	*workspace.Commit
	record uint64 // 0: an undo by a person
}

// Read reads the history of a process in its workspace. All records of the process
// must be in the journal already.
func Read(source Source, w *workspace.Workspace, pid abi.Pid) (*History, error) {
	h := &History{pid: pid, source: source, workspace: w, snapshots: make(map[workspace.Hash]*workspace.Snapshot)}
	records, tree, err := h.recordedCommits()
	if err != nil {
		return nil, err
	}
	missing := len(records)
	for c, err := range w.History() {
		if err != nil {
			return nil, staging.Error(err)
		}
		if missing == 0 { // older commits are not of this tree
			break
		}
		// The journal proves which process made a commit. An undo is in no journal, so its name and pid count.
		n, recorded := records[abi.Hash(c.Hash)]
		if recorded || c.Tool == undoTool && tree[abi.Pid(c.PID)] {
			h.commits = append(h.commits, commit{c, n})
		}
		if recorded {
			missing--
		}
	}
	slices.Reverse(h.commits)
	return h, nil
}

// recordedCommits returns the commits in the journals of the process and its
// descendants, with the numbers of their records, and the pids of that tree.
func (h *History) recordedCommits() (commits map[abi.Hash]uint64, tree map[abi.Pid]bool, err error) {
	commits, tree = make(map[abi.Hash]uint64), make(map[abi.Pid]bool)
	for todo := []abi.Pid{h.pid}; len(todo) > 0; todo = todo[1:] {
		tree[todo[0]] = true
		for r, err := range h.source.Records(todo[0], 0) {
			if err != nil {
				return nil, nil, err
			}
			if r.Answer != nil && !r.Answer.Commit.IsZero() {
				commits[r.Answer.Commit] = r.N
			}
		}
		children, _, err := h.source.Process(todo[0])
		if err != nil {
			return nil, nil, err
		}
		todo = append(todo, children...)
	}
	return commits, tree, nil
}

// state returns the files of the workspace at a commit.
func (h *History) state(id workspace.Hash) (*workspace.Snapshot, error) {
	if s := h.snapshots[id]; s != nil {
		return s, nil
	}
	s, err := h.workspace.AtFrom(id, h.last)
	if err != nil {
		return nil, staging.Error(err)
	}
	h.snapshots[id], h.last = s, s
	return s, nil
}

// changes returns the paths that one commit changed.
func (h *History) changes(s commit) ([]workspace.Change, error) {
	if s.Parent.IsZero() {
		return nil, &abi.Error{Code: abi.WorkspaceMissing, Message: fmt.Sprintf("the history of the workspace does not reach back before record %d of process %d", s.record, s.PID)}
	}
	before, err := h.state(s.Parent)
	if err != nil {
		return nil, err
	}
	after, err := h.state(s.Hash)
	if err != nil {
		return nil, err
	}
	delete(h.snapshots, s.Parent) // the next commit begins where this one ends
	return before.Diff(after), nil
}

// Commits describes the commits of the history, the oldest first.
func (h *History) Commits() ([]abi.Commit, error) {
	list := []abi.Commit{}
	for _, s := range h.commits {
		changes, err := h.changes(s)
		if err != nil {
			return nil, err
		}
		c := abi.Commit{Seq: s.record, Pid: abi.Pid(s.PID), Call: s.Call, Tool: s.Tool, Time: s.Time, Hash: s.Hash.String(), Paths: []abi.PathChange{}}
		if s.record == 0 {
			c.Note = s.Message
		}
		for _, ch := range changes {
			if w := changeName(ch.Before, ch.After); w != "" {
				c.Paths = append(c.Paths, abi.PathChange{Path: ch.Path, Change: w})
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// changeName names the change of a path. It is empty if only the time changed.
func changeName(before, after *workspace.Entry) string {
	switch {
	case before == nil:
		return "added"
	case after == nil:
		return "removed"
	case !sameContent(before, after):
		if before.Kind == after.Kind && before.Hash == after.Hash && before.Target == after.Target {
			return "mode"
		}
		return "changed"
	}
	return ""
}

// sameContent reports whether two entries are the same, apart from their times.
func sameContent(a, b *workspace.Entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Mode == b.Mode && a.Hash == b.Hash && a.Target == b.Target
}

// Diff returns the patches of the history: for all commits together if seq is 0,
// else for the commit of the process's record seq.
func (h *History) Diff(seq uint64) ([]abi.FileDiff, error) {
	steps := h.commits
	if seq != 0 {
		i := slices.IndexFunc(steps, func(s commit) bool { return s.record == seq && abi.Pid(s.PID) == h.pid })
		if i < 0 {
			return nil, h.noCommit(seq)
		}
		steps = steps[i : i+1]
	}
	// The first commit with a path has its state before, the last one its state after.
	before, after := make(map[string]*workspace.Entry), make(map[string]*workspace.Entry)
	for _, s := range steps {
		changes, err := h.changes(s)
		if err != nil {
			return nil, err
		}
		for _, c := range changes {
			if _, seen := before[c.Path]; !seen {
				before[c.Path] = c.Before
			}
			after[c.Path] = c.After
		}
	}
	list := []abi.FileDiff{}
	for _, p := range slices.Sorted(maps.Keys(before)) {
		// A path that was changed and changed back is no difference.
		if sameContent(before[p], after[p]) {
			continue
		}
		d, err := h.file(p, before[p], after[p])
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// noCommit returns the error for a record without a commit.
func (h *History) noCommit(seq uint64) error {
	var have []string
	for _, s := range h.commits {
		if s.record != 0 && abi.Pid(s.PID) == h.pid {
			have = append(have, strconv.FormatUint(s.record, 10))
		}
	}
	e := &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("record %d of process %d changed no file", seq, h.pid), Hint: "it changed none at all"}
	if len(have) > 0 {
		e.Hint = fmt.Sprintf("those that did: %s; kern history %d shows them", strings.Join(have[:min(len(have), 20)], ", "), h.pid)
	}
	return e
}

// file returns the patch of one path. For a directory it names the change only.
func (h *History) file(p string, before, after *workspace.Entry) (abi.FileDiff, error) {
	d := abi.FileDiff{PathChange: abi.PathChange{Path: p, Change: changeName(before, after)}}
	from, err := h.version(before)
	if err != nil {
		return d, err
	}
	to, err := h.version(after)
	if err != nil {
		return d, err
	}
	var s diff.Stat
	d.Patch, s = diff.File(p, from, to)
	d.Added, d.Removed, d.Binary = s.Added, s.Removed, s.Binary
	return d, nil
}

// maxShown is the largest file whose content is shown in a patch.
const maxShown = 8 << 20

// version returns an entry as a patch shows it, or nil for an entry that is neither
// a file nor a link. The hash replaces content above maxShown, so that a patch
// still sees a difference.
func (h *History) version(e *workspace.Entry) (*diff.Version, error) {
	switch {
	case e == nil || e.Kind != workspace.File && e.Kind != workspace.Symlink:
		return nil, nil
	case e.Kind == workspace.Symlink:
		return &diff.Version{Mode: 0o120000, Content: []byte(e.Target)}, nil
	}
	v := &diff.Version{Mode: 0o100644}
	// Git knows only this bit of the permissions.
	if e.Mode&0o100 != 0 {
		v.Mode = 0o100755
	}
	if e.Size > maxShown {
		v.Content = append(e.Hash[:], 0) // the zero byte makes the patch call it binary
		return v, nil
	}
	r, err := h.workspace.Content(e.Hash)
	if err != nil {
		return nil, staging.Error(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, r); err != nil {
		return nil, staging.Error(err)
	}
	v.Content = b.Bytes()
	return v, nil
}

// after returns the index of the first commit after record seq of the process. It
// compares record numbers for commits of the process, and times for all others.
func (h *History) after(ctx context.Context, seq uint64) (int, error) {
	_, records, err := h.source.Process(h.pid)
	if err != nil {
		return 0, err
	}
	if seq > records {
		return 0, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has %d records, and %d was asked for", h.pid, records, seq), Hint: fmt.Sprintf("kern history %d shows those that changed files", h.pid)}
	}
	r, err := h.source.Record(h.pid, seq)
	if err != nil {
		return 0, err
	}
	for i, s := range h.commits {
		later := s.Time.UnixNano() > r.Time
		if abi.Pid(s.PID) == h.pid && s.record != 0 {
			later = s.record > seq
		}
		if later {
			return i, ctx.Err()
		}
	}
	return len(h.commits), nil
}
