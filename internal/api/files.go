package api

import (
	"context"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/kern-run/kern/abi"
)

// Workspaces is what is asked of workspaces: what processes did to them, and how it
// is taken back.
type Workspaces interface {
	Commits(ctx context.Context, pid abi.Pid) (any, error)
	Diff(ctx context.Context, pid abi.Pid, seq uint64) (any, error) // 0: all that it changed
	Undo(ctx context.Context, pid abi.Pid, u Undo) (any, error)
	Verify(ctx context.Context, dir string) (any, error)
}

// Undo asks for the files of a process as they were after a record, or before
// its first commit.
type Undo struct {
	To      uint64 `json:"to,omitempty"`
	Partial bool   `json:"partial,omitempty"` // leave alone what somebody else changed since, in place of refusing
	By      string `json:"by,omitempty"`
}

// Place names a directory.
type Place struct {
	Dir string `json:"dir"`
}

func (srv *Server) commits(_ http.ResponseWriter, r *http.Request) (any, error) {
	pid, err := pidOf(r)
	if err != nil {
		return nil, err
	}
	if err := query(r); err != nil {
		return nil, err
	}
	return srv.Workspaces.Commits(r.Context(), pid)
}

func (srv *Server) diff(_ http.ResponseWriter, r *http.Request) (any, error) {
	pid, err := pidOf(r)
	if err != nil {
		return nil, err
	}
	if err := query(r, "seq"); err != nil {
		return nil, err
	}
	seq := uint64(0)
	if s := r.URL.Query().Get("seq"); s != "" {
		if seq, err = strconv.ParseUint(s, 10, 32); err != nil || seq == 0 {
			return nil, expected("/seq", s, "the number of a record")
		}
	}
	return srv.Workspaces.Diff(r.Context(), pid, seq)
}

func (srv *Server) undo(w http.ResponseWriter, r *http.Request) (any, error) {
	pid, err := pidOf(r)
	if err != nil {
		return nil, err
	}
	var u Undo
	if err := decode(w, r, maxRequest, &u); err != nil {
		return nil, err
	}
	return srv.Workspaces.Undo(r.Context(), pid, u)
}

func (srv *Server) verifyWorkspace(w http.ResponseWriter, r *http.Request) (any, error) {
	var p Place
	if err := decode(w, r, maxRequest, &p); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(p.Dir) {
		return nil, expected("/dir", p.Dir, "the absolute name of a directory")
	}
	return srv.Workspaces.Verify(r.Context(), p.Dir)
}

// A WorkspaceClient makes requests about workspaces.
type WorkspaceClient struct{ conn *connection }

// Commits reads into out what a process, and those below it, did to their
// workspace.
func (c WorkspaceClient) Commits(ctx context.Context, pid abi.Pid, out any) error {
	return c.conn.call(ctx, "GET", procPath(pid, "commits"), nil, out)
}

// Diff reads into out what a process changed, in all or in the commit of its
// record seq.
func (c WorkspaceClient) Diff(ctx context.Context, pid abi.Pid, seq uint64, out any) error {
	path := procPath(pid, "diff")
	if seq != 0 {
		path += "?seq=" + strconv.FormatUint(seq, 10)
	}
	return c.conn.call(ctx, "GET", path, nil, out)
}

// Undo takes back what a process changed, and reads into out what became of it.
func (c WorkspaceClient) Undo(ctx context.Context, pid abi.Pid, u Undo, out any) error {
	return c.conn.call(ctx, "POST", procPath(pid, "undo"), u, out)
}

// Verify reads all that is kept of a workspace.
func (c WorkspaceClient) Verify(ctx context.Context, dir string, out any) error {
	return c.conn.call(ctx, "POST", "/v1/workspaces/verify", Place{dir}, out)
}
