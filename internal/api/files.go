package api

import (
	"context"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/kern-run/kern/abi"
)

// Workspaces reads and undoes the changes of processes to workspaces.
type Workspaces interface {
	Commits(ctx context.Context, pid abi.Pid) ([]abi.Commit, error)
	Diff(ctx context.Context, pid abi.Pid, seq uint64) ([]abi.FileDiff, error) // seq 0: all changes
	Undo(ctx context.Context, pid abi.Pid, o abi.UndoOptions) (abi.UndoResult, error)
	Verify(ctx context.Context, dir string) (abi.WorkspaceCheck, error)
}

// Place names a directory.
type Place struct {
	Dir string `json:"dir"`
}

// A workspaceHandler answers requests about workspaces.
type workspaceHandler struct{ workspaces Workspaces }

func (h workspaceHandler) commits(_ http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	if err := query(r); err != nil {
		return nil, err
	}
	return h.workspaces.Commits(r.Context(), pid)
}

func (h workspaceHandler) diff(_ http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	if err := query(r, "seq"); err != nil {
		return nil, err
	}
	var err error
	seq := uint64(0)
	if s := r.URL.Query().Get("seq"); s != "" {
		if seq, err = strconv.ParseUint(s, 10, 32); err != nil || seq == 0 {
			return nil, expected("/seq", s, "the number of a record")
		}
	}
	return h.workspaces.Diff(r.Context(), pid, seq)
}

func (h workspaceHandler) undo(ctx context.Context, pid abi.Pid, u *abi.UndoOptions) (any, error) {
	return h.workspaces.Undo(ctx, pid, *u)
}

func (h workspaceHandler) verify(w http.ResponseWriter, r *http.Request) (any, error) {
	var p Place
	if err := decode(w, r, maxRequest, &p); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(p.Dir) {
		return nil, expected("/dir", p.Dir, "the absolute name of a directory")
	}
	return h.workspaces.Verify(r.Context(), p.Dir)
}

// A WorkspaceClient makes requests about workspaces.
type WorkspaceClient struct{ conn *connection }

// Commits lists the commits that a process and its descendants made.
func (c WorkspaceClient) Commits(ctx context.Context, pid abi.Pid) ([]abi.Commit, error) {
	return ask[[]abi.Commit](ctx, c.conn, "GET", procPath(pid, "commits"), nil)
}

// Diff returns the changes of a process: all, or the commit of record seq.
func (c WorkspaceClient) Diff(ctx context.Context, pid abi.Pid, seq uint64) ([]abi.FileDiff, error) {
	path := procPath(pid, "diff")
	if seq != 0 {
		path += "?seq=" + strconv.FormatUint(seq, 10)
	}
	return ask[[]abi.FileDiff](ctx, c.conn, "GET", path, nil)
}

// Undo restores the files that a process changed.
func (c WorkspaceClient) Undo(ctx context.Context, pid abi.Pid, o abi.UndoOptions) (abi.UndoResult, error) {
	return ask[abi.UndoResult](ctx, c.conn, "POST", procPath(pid, "undo"), o)
}

// Verify checks all files of a workspace and its whole history.
func (c WorkspaceClient) Verify(ctx context.Context, dir string) (abi.WorkspaceCheck, error) {
	return ask[abi.WorkspaceCheck](ctx, c.conn, "POST", "/v1/workspaces/verify", Place{dir})
}
