// Package staging gives a call its own view of a workspace. The call changes
// the stage. When the call ends, the changes are published whole if the call
// succeeded and every invariant holds; otherwise they are rolled back.
//
// A published change stays in doubt until the kernel has written its record of
// the call. Then [Outcome.Decide] seals the change or rolls it back.
package staging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/files"
	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/workspace"
)

// Workspaces opens stages. Its functions are set once, before the first call. A
// nil Workspaces is valid: this kernel has no workspaces.
type Workspaces struct {
	// Open returns the workspace of a directory.
	Open func(dir string) (*workspace.Workspace, error)
	// Settle decides a commit that is in doubt, as the journal has it. Nil:
	// such a commit stays in doubt until the next start.
	Settle func(*workspace.Workspace) error
	// Command runs the command of an invariant in dir, with args on stdin.
	Command func(ctx context.Context, command []string, dir string, args json.RawMessage) *abi.Error

	states states
}

// Rules are what an agent declares about its workspace.
type Rules struct {
	Dir        string // empty: the process has no workspace
	View       string // one of [abi.Views]; empty: auto
	Quota      abi.Quota
	Invariants []abi.Invariant
}

// Validate returns an error if the declaration makes no sense.
func (r *Rules) Validate() error {
	switch {
	case r.View != "" && !slices.Contains(abi.Views, r.View):
		return fmt.Errorf("view is %q, expected one of %s", r.View, strings.Join(abi.Views, ", "))
	case r.Quota.Bytes < 0 || r.Quota.Files < 0:
		return fmt.Errorf("the quota of a workspace is %d bytes and %d files, expected 0 or more", r.Quota.Bytes, r.Quota.Files)
	}
	for i := range r.Invariants {
		if err := r.Invariants[i].Validate(); err != nil {
			return fmt.Errorf("invariant %d: %v", i+1, err)
		}
	}
	if r.Dir == "" && len(r.Invariants) > 0 {
		return errors.New("there are invariants and no workspace for them, expected workspace: DIR")
	}
	return nil
}

// CommandView is the view for a program that runs as a command.
func (r *Rules) CommandView() workspace.View {
	switch r.View {
	case "overlay":
		return workspace.Overlay
	case "copy":
		return workspace.Copied
	}
	return workspace.Native
}

// JailView is the view for code in a jail: a copy, unless the agent asks for an
// overlay. A jail gives the files to a user of its own, and an overlay does not
// always allow that.
func (r *Rules) JailView() workspace.View {
	if r.View == "overlay" {
		return workspace.Overlay
	}
	return workspace.Copied
}

// A Stage is the private view of a workspace that one call changes. A nil
// Stage is valid: the process has no workspace.
type Stage struct {
	from  *Workspaces
	rules Rules
	space *workspace.Workspace
	tx    *workspace.Tx
}

// Begin opens a stage for a call. It returns nil when r names no workspace.
func (w *Workspaces) Begin(ctx context.Context, r Rules, view workspace.View) (*Stage, *abi.Error) {
	if r.Dir == "" {
		return nil, nil
	}
	if w == nil {
		return nil, &abi.Error{Code: abi.WorkspaceUnsupported, Message: "there are no workspaces here"}
	}
	opt := workspace.Options{View: view, Bytes: r.Quota.Bytes, Files: r.Quota.Files}
	space, tx, err := w.begin(ctx, r.Dir, opt)
	if errors.Is(err, &workspace.Error{Code: workspace.Ended}) { // replaced since it was opened
		space, tx, err = w.begin(ctx, r.Dir, opt)
	}
	if errors.Is(err, &workspace.Error{Code: workspace.InDoubt}) && w.Settle != nil {
		if err = w.Settle(space); err == nil {
			tx, err = space.Begin(ctx, opt)
		}
	}
	if err != nil {
		return nil, Error(err)
	}
	return &Stage{w, r, space, tx}, nil
}

// begin opens a workspace and a transaction on it.
func (w *Workspaces) begin(ctx context.Context, dir string, opt workspace.Options) (*workspace.Workspace, *workspace.Tx, error) {
	space, err := w.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	tx, err := space.Begin(ctx, opt)
	return space, tx, err
}

// Forget drops what is remembered of a workspace that is no longer used.
func (w *Workspaces) Forget(space *workspace.Workspace) {
	w.states.mu.Lock()
	defer w.states.mu.Unlock()
	delete(w.states.of, space)
}

// stageKey is the key of a stage in a context.
type stageKey struct{}

// Context returns ctx with the stage in it, for calls that run within this one.
func (s *Stage) Context(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, stageKey{}, s)
}

// FromContext returns the stage of the surrounding call, or nil.
func FromContext(ctx context.Context) *Stage {
	s, _ := ctx.Value(stageKey{}).(*Stage)
	return s
}

// Layer returns the workspace as a Go tool sees it during its call. It is nil
// when the process has no workspace, or when the view is a directory.
func Layer(ctx context.Context) *workspace.Layer {
	if s := FromContext(ctx); s != nil {
		return s.tx.Layer()
	}
	return nil
}

// Dir is the directory that shows the stage; empty when the view is a layer.
func (s *Stage) Dir() string {
	if s == nil {
		return ""
	}
	return s.tx.Dir()
}

// SandboxFS returns the stage for code that runs in this program; nil when the
// view is a directory.
func (s *Stage) SandboxFS() sandbox.FS {
	if s == nil || s.tx.Layer() == nil {
		return nil
	}
	return layerFS{s.tx.Layer()}
}

// FS returns the stage for a file tool, and a function that closes it.
func (s *Stage) FS() (fs files.FS, closeFS func() error, err error) {
	if l := s.tx.Layer(); l != nil {
		return l, func() error { return nil }, nil
	}
	root, err := os.OpenRoot(s.tx.Dir())
	if err != nil {
		return nil, nil, err
	}
	return dirFS{root}, root.Close, nil
}

// A Call identifies the attempt that a stage belongs to.
type Call struct {
	Pid     abi.Pid
	N       uint64
	Attempt int
	Tool    string
	Effect  abi.Effect
}

// noteID names the commit of one attempt for ever.
func (c *Call) noteID() string { return fmt.Sprintf("%d/%d/%d", c.Pid, c.N, c.Attempt) }

// An Outcome says what became of the changes of a call.
type Outcome struct {
	Err    *abi.Error // the error of the call, or the reason why nothing was published
	Commit abi.Hash   // what was published; in doubt until Decide
	Digest abi.Key    // of the workspace after the call
	Rolled bool       // changes were rolled back, and this counts against the tool
	Decide func(stands bool)
}

// snapshotTimeout bounds how long Finish may look at the workspace after a call.
const snapshotTimeout = time.Minute

// Finish ends the stage of a call that failed with failure, or succeeded. It
// publishes the changes of a successful call if all invariants hold, and rolls
// them back otherwise.
func (s *Stage) Finish(ctx context.Context, c Call, failure *abi.Error) Outcome {
	out := Outcome{Err: failure}
	if s == nil {
		return out
	}
	if failure == nil && c.Effect != abi.Pure {
		commit, e := s.publish(ctx, &c)
		if e != nil {
			out.Err, out.Rolled = e, true
		} else if commit != nil {
			out.Commit, out.Digest, out.Decide = abi.Hash(commit.Hash), s.from.states.addCommit(s.space, commit), s.decide
			return out
		}
	} else if failure != nil {
		out.Rolled = c.Effect == abi.Transactional && countsAsRollback(failure.Code)
	}
	if err := s.tx.Rollback(); err != nil && out.Err == nil {
		out.Err = Error(err)
	}
	if ctx.Err() != nil { // a call that was stopped does not wait for a digest
		return out
	}
	timed, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	if snap, err := s.space.Snapshot(timed); err == nil {
		out.Digest = s.from.states.addSnapshot(s.space, snap)
	}
	return out
}

// countsAsRollback reports whether a failure of a transactional tool counts
// against the tool. An interrupted call and a call with wrong arguments do not,
// because they say nothing about what the tool would have changed.
func countsAsRollback(c abi.Code) bool {
	return c != abi.Interrupted && c != abi.InvalidArguments && !c.Mistake()
}

// publish makes the staged changes visible. It returns nil if there are none.
func (s *Stage) publish(ctx context.Context, call *Call) (*workspace.Commit, *abi.Error) {
	changes, err := s.tx.Diff()
	if err != nil {
		return nil, Error(err)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	if e := s.checkInvariants(ctx, changes); e != nil {
		return nil, e
	}
	c, err := s.tx.Publish(ctx, workspace.Note{ID: call.noteID(), PID: int64(call.Pid), Call: call.N, Tool: call.Tool})
	if err != nil {
		return nil, Error(err)
	}
	return c, nil
}

// decide ends a published change as the journal has it.
func (s *Stage) decide(stands bool) {
	end := s.tx.Rollback
	if stands {
		end = s.tx.Seal
	}
	if end() == nil {
		return
	}
	if s.from.Settle != nil {
		_ = s.from.Settle(s.space) // on failure the next Begin settles it
	}
}

// Error converts an error of a workspace for a process. The code stays the same.
// A single path goes to Where; several stay in the message.
func Error(err error) *abi.Error {
	var known *abi.Error
	if errors.As(err, &known) {
		return known
	}
	var e *workspace.Error
	if !errors.As(err, &e) {
		return &abi.Error{Code: abi.WorkspaceUnsupported, Message: "the workspace cannot be used: " + err.Error()}
	}
	out := &abi.Error{Code: abi.Code(e.Code), Message: strings.TrimPrefix(e.Error(), string(e.Code)+": "), Hint: hints[e.Code]}
	if len(e.Paths) == 1 {
		out.Where = e.Paths[0]
	}
	return out
}

// hints say what to do next.
var hints = map[workspace.Code]string{
	workspace.Conflict:    "nothing of this call was published; look at the files named as they are now, then call it again",
	workspace.Locked:      "nothing of this call was published; call it again",
	workspace.Quota:       "nothing of this call was published; write less in one call",
	workspace.Refused:     "nothing of this call was published",
	workspace.Busy:        "nothing of this call was published; let the tool end what it starts",
	workspace.InDoubt:     "start the daemon again: it decides what was left in doubt",
	workspace.Damaged:     "look at it with: kern workspace verify DIR",
	workspace.Unsupported: "choose another view, or another directory for the data directory",
}
