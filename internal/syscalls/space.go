package syscalls

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/internal/workspace"
)

// A call of a process with a workspace works on a private view of it. What it
// changed there is looked at when it is over, and then published whole or not
// at all; the kernel's record of the call decides whether that stands.

// staged is the view of one call.
type staged struct {
	world  *World
	loaded *Loaded
	space  *workspace.Workspace
	tx     *workspace.Tx
}

// stage begins a view for a call; nil when the process has no workspace.
func (l *Loaded) stage(ctx context.Context, w *World, kind workspace.View) (*staged, *abi.Error) {
	if l.Workspace == "" {
		return nil, nil
	}
	if w.Workspace == nil {
		return nil, &abi.Error{Code: abi.WorkspaceUnsupported, Message: "there are no workspaces here"}
	}
	space, err := w.Workspace(l.Workspace)
	if err != nil {
		return nil, WorkspaceError(err)
	}
	opt := workspace.Options{View: kind, Bytes: l.Quota.Bytes, Files: l.Quota.Files}
	tx, err := space.Begin(ctx, opt)
	if errors.Is(err, &workspace.Error{Code: workspace.InDoubt}) && w.Settle != nil {
		if err = w.Settle(space); err == nil {
			tx, err = space.Begin(ctx, opt)
		}
	}
	if err != nil {
		return nil, WorkspaceError(err)
	}
	return &staged{w, l, space, tx}, nil
}

// Views are the ways in which an agent file may ask for a program to see the
// workspace.
var Views = []string{"auto", "overlay", "copy"}

// CheckSpace says what a program declares of workspaces and undoing that makes
// no sense.
func (p *Program) CheckSpace() error {
	bad := func(format string, a ...any) error {
		return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf(format, a...)}
	}
	if p.View != "" && !slices.Contains(Views, p.View) {
		return bad("view is %q, expected one of %s", p.View, strings.Join(Views, ", "))
	}
	if p.Quota.Bytes < 0 || p.Quota.Files < 0 {
		return bad("the quota of a workspace is %d bytes and %d files, expected 0 or more", p.Quota.Bytes, p.Quota.Files)
	}
	for i := range p.Invariants {
		if err := p.Invariants[i].Validate(); err != nil {
			return bad("invariant %d: %v", i+1, err)
		}
	}
	if p.Workspace == "" && len(p.Invariants) > 0 {
		return bad("there are invariants and no workspace for them, expected workspace: DIR")
	}
	for _, t := range p.Tools {
		if t.Effect == abi.Transactional && p.Workspace == "" {
			return bad("tool %q: effect: transactional cannot be enforced without a workspace, expected workspace: DIR", t.Name)
		}
		if t.Undo != nil && !slices.ContainsFunc(p.Tools, func(u tools.Spec) bool { return u.Name == t.Undo.Tool }) {
			return bad("tool %q: undo: there is no tool %q, expected one of the same agent", t.Name, t.Undo.Tool)
		}
	}
	return nil
}

// view is how a program of this process sees the workspace.
func (p *Program) view() workspace.View {
	switch p.View {
	case "overlay":
		return workspace.Overlay
	case "copy":
		return workspace.Copied
	}
	return workspace.Native
}

// filesKey is where the files of a call stand in its context.
type filesKey struct{}

// context lends the view to what runs in this program.
func (s *staged) context(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, filesKey{}, s)
}

// around is the view that the call of ctx is made within; nil when there is none.
func around(ctx context.Context) *staged {
	s, _ := ctx.Value(filesKey{}).(*staged)
	return s
}

// Files is the workspace as a Go tool sees it in its call; nil when its process
// has none.
func Files(ctx context.Context) *workspace.Layer {
	if s := around(ctx); s != nil {
		return s.tx.Layer()
	}
	return nil
}

// files is the view as a file tool works on it.
func (s *staged) files() (fs files.FS, done func() error, err error) {
	if l := s.tx.Layer(); l != nil {
		return l, func() error { return nil }, nil
	}
	root, err := os.OpenRoot(s.tx.Dir())
	if err != nil {
		return nil, nil, err
	}
	return folder{root}, root.Close, nil
}

// A folder is a view that is a directory, as a file tool works on it.
type folder struct{ *os.Root }

func (f folder) Stat(name string) (workspace.Entry, error)  { return f.entry(name, f.Root.Stat) }
func (f folder) Lstat(name string) (workspace.Entry, error) { return f.entry(name, f.Root.Lstat) }

func (f folder) entry(name string, look func(string) (fs.FileInfo, error)) (e workspace.Entry, err error) {
	fi, err := look(name)
	if err != nil {
		return e, err
	}
	e = workspace.Entry{Kind: workspace.File, Mode: fi.Mode().Perm(), Size: fi.Size(), Time: fi.ModTime().UnixNano()}
	switch {
	case fi.IsDir():
		e.Kind, e.Size = workspace.Dir, 0
	case fi.Mode()&fs.ModeSymlink != 0:
		e.Kind, e.Size = workspace.Symlink, 0
		e.Target, err = f.Readlink(name)
	case !fi.Mode().IsRegular():
		e.Kind, e.Size = workspace.Other, 0
	}
	return e, err
}

func (f folder) ReadDir(name string) (names []string, err error) {
	d, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	names, err = d.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, d.Close())
}

// lookAfter is how long it may take to see what the workspace holds after a call.
const lookAfter = time.Minute

// finish ends the view of a call that came to d: what it changed is published
// when the call went well and everything declared holds, and is taken back
// otherwise.
func (s *staged) finish(ctx context.Context, j *kernel.Job, d kernel.Done) kernel.Done {
	if s == nil {
		return d
	}
	if d.Err == nil && j.Plan.Effect != abi.Pure {
		var c *workspace.Commit
		var e *abi.Error
		if c, e = s.publish(ctx, j); e != nil {
			d.Value, d.Err, d.Rolled = nil, e, true
		} else if c != nil {
			d.Commit, d.Digest, d.Kept = abi.Hash(c.Hash), s.world.states.commit(s.space, c), s.kept
			return d
		}
	} else if d.Err != nil {
		d.Rolled = j.Plan.Effect == abi.Transactional && rolls(d.Err.Code)
	}
	if err := s.tx.Rollback(); err != nil && d.Err == nil {
		d.Value, d.Err = nil, WorkspaceError(err)
	}
	if ctx.Err() != nil { // who stopped it does not wait for a look
		return d
	}
	look, cancel := context.WithTimeout(ctx, lookAfter)
	defer cancel()
	if snap, err := s.space.Snapshot(look); err == nil {
		d.Digest = s.world.states.snapshot(s.space, snap)
	}
	return d
}

// rolls reports whether a failure of a transactional tool counts as a rollback:
// one that was stopped, or that found its arguments wrong, says nothing of what
// it would have changed.
func rolls(c abi.Code) bool {
	return c != abi.Interrupted && c != abi.InvalidArguments && !c.Mistake()
}

// publish makes what was staged visible; nil when there is nothing.
func (s *staged) publish(ctx context.Context, j *kernel.Job) (*workspace.Commit, *abi.Error) {
	changes, err := s.tx.Diff()
	if err != nil {
		return nil, WorkspaceError(err)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	if e := s.invariants(ctx, changes); e != nil {
		return nil, e
	}
	c, err := s.tx.Publish(ctx, workspace.Note{ID: noteID(j), PID: int64(j.Call.Pid), Call: j.Call.N, Tool: j.Plan.Tool})
	if err != nil {
		return nil, WorkspaceError(err)
	}
	return c, nil
}

// kept ends a published change as the journal has it.
func (s *staged) kept(stands bool) {
	end := s.tx.Rollback
	if stands {
		end = s.tx.Seal
	}
	if end() == nil {
		return
	}
	if s.world.Settle != nil {
		_ = s.world.Settle(s.space) // or whoever needs it next
	}
}

// states remember what a workspace held after calls, so that two digests which
// are the same in the journal are of the same content: it was compared.
type states struct {
	mu   sync.Mutex
	of   map[*workspace.Workspace][]*held
	hash func(workspace.Hash) abi.Key // nil: its first bytes; a test makes all the same
}

// held is what one digest stands for.
type held struct {
	key  abi.Key
	snap *workspace.Snapshot
	id   workspace.Hash // of the commit that has it, when snap was not read yet
}

// statesKept is how many are remembered: more than the watchdog looks back.
const statesKept = 64

func (st *states) commit(w *workspace.Workspace, c *workspace.Commit) abi.Key {
	return st.key(w, c.Digest, &held{id: c.Hash})
}

func (st *states) snapshot(w *workspace.Workspace, s *workspace.Snapshot) abi.Key {
	return st.key(w, s.Digest(), &held{snap: s})
}

// key is the digest of what now holds, different from that of everything
// remembered that holds something else.
func (st *states) key(w *workspace.Workspace, digest workspace.Hash, now *held) abi.Key {
	st.mu.Lock()
	defer st.mu.Unlock()
	known, before := st.of[w]
	if !before {
		known = st.past(w)
	}
	if st.of == nil {
		st.of = make(map[*workspace.Workspace][]*held)
	}
	st.of[w] = st.add(w, known, digest, now)
	return now.key
}

// add puts a state behind those that are known, under a key of its own.
func (st *states) add(w *workspace.Workspace, known []*held, digest workspace.Hash, now *held) []*held {
	copy(now.key[:], digest[:])
	if st.hash != nil {
		now.key = st.hash(digest)
	}
	at := find(known, now.key)
	for at >= 0 && !same(w, known[at], now) {
		now.key = process.KeyOf("another state", now.key[:])
		at = find(known, now.key)
	}
	if at >= 0 {
		known = slices.Delete(known, at, at+1)
	} else if len(known) == statesKept {
		known = known[1:]
	}
	return append(known, now)
}

func find(known []*held, k abi.Key) int {
	return slices.IndexFunc(known, func(h *held) bool { return h.key == k })
}

// past are the states that the history tells of, for what was recorded before a
// restart.
func (st *states) past(w *workspace.Workspace) (known []*held) {
	var list []*workspace.Commit
	for c, err := range w.History() {
		if err != nil || len(list) == statesKept/2 {
			break
		}
		list = append(list, c)
	}
	for _, c := range slices.Backward(list) {
		known = st.add(w, known, c.Digest, &held{id: c.Hash})
	}
	return known
}

// same compares two states name for name. One that cannot be read is not
// known to be the same.
func same(w *workspace.Workspace, a, b *held) bool {
	for _, h := range []*held{a, b} {
		if h.snap == nil {
			s, err := w.At(h.id)
			if err != nil {
				return false
			}
			h.snap = s
		}
	}
	return a.snap.Same(b.snap)
}

// noteID is the name of what one attempt publishes, for ever.
func noteID(j *kernel.Job) string { return fmt.Sprintf("%d/%d/%d", j.Call.Pid, j.Call.N, j.Attempt) }

// WorkspaceError is an error of a workspace as a process sees it: the code is
// the same, and the path stands in Where when there is one, else in the message.
func WorkspaceError(err error) *abi.Error {
	var mine *abi.Error
	if errors.As(err, &mine) {
		return mine
	}
	var e *workspace.Error
	if !errors.As(err, &e) {
		return &abi.Error{Code: abi.WorkspaceUnsupported, Message: "the workspace cannot be used: " + err.Error()}
	}
	out := &abi.Error{Code: abi.Code(e.Code), Message: strings.TrimPrefix(e.Error(), string(e.Code)+": "), Hint: spaceHints[e.Code]}
	if len(e.Paths) == 1 {
		out.Where = e.Paths[0]
	}
	return out
}

// spaceHints say what to do next.
var spaceHints = map[workspace.Code]string{
	workspace.Conflict:    "nothing of this call was published; look at the files named as they are now, then call it again",
	workspace.Locked:      "nothing of this call was published; call it again",
	workspace.Quota:       "nothing of this call was published; write less in one call",
	workspace.Refused:     "nothing of this call was published",
	workspace.Busy:        "nothing of this call was published; let the tool end what it starts",
	workspace.InDoubt:     "start the daemon again: it decides what was left in doubt",
	workspace.Damaged:     "look at it with: kern workspace verify DIR",
	workspace.Unsupported: "choose another view, or another place for the data directory",
}
