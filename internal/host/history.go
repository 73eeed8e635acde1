package host

import (
	"bytes"
	"context"
	"fmt"
	"github.com/kern-run/kern/internal/staging"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/diff"
	"github.com/kern-run/kern/internal/workspace"
)

// A Commit is one change of a workspace by a process, or by a person who took
// such changes back. Its Seq is the number of the record in the journal of the
// process which says that it stands: the number that kern log shows.
type Commit struct {
	Seq   uint64    `json:"seq"` // 0: a person's
	Pid   abi.Pid   `json:"pid"`
	Call  uint64    `json:"call,omitempty"`
	Tool  string    `json:"tool"`
	Time  time.Time `json:"time"`
	Hash  string    `json:"commit"`
	Note  string    `json:"note,omitempty"`
	Paths []Changed `json:"paths"`
}

// Changed is a path and what became of it: added, removed, changed or mode.
type Changed struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

// FileDiff is what a process changed in one file, as a patch that git apply
// takes.
type FileDiff struct {
	Changed
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Binary  bool   `json:"binary,omitempty"`
	Patch   string `json:"patch"`
}

// undoTool stands in the history as the tool of what a person took back.
const undoTool = "undo"

// A Trail is what a process, and those it started, did to their workspace.
type Trail struct {
	pid   abi.Pid
	k     *Kernel
	space *workspace.Workspace
	steps []trailStep // oldest first
	at    map[workspace.Hash]*workspace.Snapshot
	near  *workspace.Snapshot // the last that was read: the next is much like it
}

type trailStep struct {
	*workspace.Commit
	n uint64 // of its record; 0: a person's
}

// past is what processes did to their workspaces.
type past struct{ k *Kernel }

// Trail reads what a process did to its workspace.
func (p past) Trail(ctx context.Context, pid abi.Pid) (*Trail, error) {
	dir, err := p.k.workspaceOf(pid)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no workspace, so there is no history of its files", pid),
			Hint: "an agent file has workspace: DIR, and kern run has --workspace DIR"}
	}
	t := &Trail{pid: pid, k: p.k, at: make(map[workspace.Hash]*workspace.Snapshot)}
	if t.space, err = p.k.spaces.get(dir); err != nil {
		return nil, err
	}
	if err := p.k.log.Flush(ctx); err != nil {
		return nil, err
	}
	records, family, err := t.records()
	if err != nil {
		return nil, err
	}
	left := len(records)
	for c, err := range t.space.History() {
		if err != nil {
			return nil, staging.Error(err)
		}
		if left == 0 { // what lies before the first of them is not theirs
			break
		}
		n, known := records[abi.Hash(c.Hash)]
		if known || c.Tool == undoTool && family[abi.Pid(c.PID)] {
			t.steps = append(t.steps, trailStep{c, n})
		}
		if known {
			left--
		}
	}
	slices.Reverse(t.steps)
	return t, nil
}

// workspaceOf is the directory that a process works in.
func (p past) workspaceOf(pid abi.Pid) (string, error) {
	v, err := p.k.View(pid)
	if err != nil {
		return "", err
	}
	l, err := p.k.world.Load(v.Spawn.Program)
	if err != nil {
		return "", err
	}
	return l.Workspace, nil
}

// records are the commits that stand in the journals of the process and of
// those below it, with the numbers of their records, and those processes.
func (t *Trail) records() (found map[abi.Hash]uint64, family map[abi.Pid]bool, err error) {
	found, family = make(map[abi.Hash]uint64), make(map[abi.Pid]bool)
	for todo := []abi.Pid{t.pid}; len(todo) > 0; todo = todo[1:] {
		family[todo[0]] = true
		for r, err := range t.k.store.Records(todo[0], 0) {
			if err != nil {
				return nil, nil, err
			}
			if r.Answer != nil && !r.Answer.Commit.IsZero() {
				found[r.Answer.Commit] = r.N
			}
		}
		i, err := t.k.Info(todo[0])
		if err != nil {
			return nil, nil, err
		}
		todo = append(todo, i.Kids...)
	}
	return found, family, nil
}

// state is what the workspace held at a commit.
func (t *Trail) state(id workspace.Hash) (*workspace.Snapshot, error) {
	if s := t.at[id]; s != nil {
		return s, nil
	}
	s, err := t.space.AtFrom(id, t.near)
	if err != nil {
		return nil, staging.Error(err)
	}
	t.at[id], t.near = s, s
	return s, nil
}

// changes are what one step changed.
func (t *Trail) changes(s trailStep) ([]workspace.Change, error) {
	if s.Parent.IsZero() {
		return nil, &abi.Error{Code: abi.WorkspaceMissing, Message: fmt.Sprintf("the history of the workspace does not reach back before record %d of process %d", s.n, s.PID)}
	}
	before, err := t.state(s.Parent)
	if err != nil {
		return nil, err
	}
	after, err := t.state(s.Hash)
	if err != nil {
		return nil, err
	}
	delete(t.at, s.Parent) // the next step begins where this one ends
	return before.Diff(after), nil
}

// Commits are the steps of the trail, the oldest first.
func (t *Trail) Commits() ([]Commit, error) {
	list := []Commit{}
	for _, s := range t.steps {
		changes, err := t.changes(s)
		if err != nil {
			return nil, err
		}
		c := Commit{Seq: s.n, Pid: abi.Pid(s.PID), Call: s.Call, Tool: s.Tool, Time: s.Time, Hash: s.Hash.String(), Paths: []Changed{}}
		if s.n == 0 {
			c.Note = s.Message
		}
		for _, ch := range changes {
			if w := what(ch.Before, ch.After); w != "" {
				c.Paths = append(c.Paths, Changed{ch.Path, w})
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// what became of a path; empty when only its time changed.
func what(before, after *workspace.Entry) string {
	switch {
	case before == nil:
		return "added"
	case after == nil:
		return "removed"
	case !alike(before, after):
		if before.Kind == after.Kind && before.Hash == after.Hash && before.Target == after.Target {
			return "mode"
		}
		return "changed"
	}
	return ""
}

// alike tells that two entries hold the same, whenever they were written.
func alike(a, b *workspace.Entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Mode == b.Mode && a.Hash == b.Hash && a.Target == b.Target
}

// Diff is what the process changed in all, or in the commit of its record seq.
func (t *Trail) Diff(seq uint64) ([]FileDiff, error) {
	steps := t.steps
	if seq != 0 {
		i := slices.IndexFunc(steps, func(s trailStep) bool { return s.n == seq && abi.Pid(s.PID) == t.pid })
		if i < 0 {
			return nil, t.noStep(seq)
		}
		steps = steps[i : i+1]
	}
	before, after := make(map[string]*workspace.Entry), make(map[string]*workspace.Entry)
	for _, s := range steps {
		changes, err := t.changes(s)
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
	list := []FileDiff{}
	for _, p := range slices.Sorted(maps.Keys(before)) {
		if alike(before[p], after[p]) {
			continue
		}
		d, err := t.file(p, before[p], after[p])
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// noStep is the error for a record without a commit.
func (t *Trail) noStep(seq uint64) error {
	var have []string
	for _, s := range t.steps {
		if s.n != 0 && abi.Pid(s.PID) == t.pid {
			have = append(have, strconv.FormatUint(s.n, 10))
		}
	}
	e := &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("record %d of process %d changed no file", seq, t.pid), Hint: "it changed none at all"}
	if len(have) > 0 {
		e.Hint = fmt.Sprintf("those that did: %s; kern history %d shows them", strings.Join(have[:min(len(have), 20)], ", "), t.pid)
	}
	return e
}

// file is the patch of one path. A directory has none, only what became of it.
func (t *Trail) file(p string, before, after *workspace.Entry) (FileDiff, error) {
	d := FileDiff{Changed: Changed{p, what(before, after)}}
	from, err := t.version(before)
	if err != nil {
		return d, err
	}
	to, err := t.version(after)
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

// version is an entry as a patch shows it; nil for what is no file. Content
// that is too large to show is only told apart.
func (t *Trail) version(e *workspace.Entry) (*diff.Version, error) {
	switch {
	case e == nil || e.Kind != workspace.File && e.Kind != workspace.Symlink:
		return nil, nil
	case e.Kind == workspace.Symlink:
		return &diff.Version{Mode: 0o120000, Content: []byte(e.Target)}, nil
	}
	v := &diff.Version{Mode: 0o100644}
	if e.Mode&0o100 != 0 {
		v.Mode = 0o100755
	}
	if e.Size > maxShown {
		v.Content = append(e.Hash[:], 0) // binary, and different for each
		return v, nil
	}
	r, err := t.space.Content(e.Hash)
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

// after is the first step that came after record seq of the process, and after
// the moment of that record where it is another's.
func (t *Trail) after(ctx context.Context, seq uint64) (int, error) {
	i, err := t.k.Info(t.pid)
	if err != nil {
		return 0, err
	}
	if seq > i.Records {
		return 0, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has %d records, and %d was asked for", t.pid, i.Records, seq), Hint: fmt.Sprintf("kern history %d shows those that changed files", t.pid)}
	}
	r, err := t.k.Record(t.pid, seq)
	if err != nil {
		return 0, err
	}
	for i, s := range t.steps {
		later := s.Time.UnixNano() > r.Time
		if abi.Pid(s.PID) == t.pid && s.n != 0 {
			later = s.n > seq
		}
		if later {
			return i, ctx.Err()
		}
	}
	return len(t.steps), nil
}
