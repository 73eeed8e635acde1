package kern

import (
	"context"
	"io/fs"

	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/workspace"
)

// Workspace is the stage of one call of a Go tool on the workspace of its process. The
// changes of the tool become visible together when it returns without an error.
// Otherwise Kern drops all of them. Names are relative, with slashes.
type Workspace struct{ layer *workspace.Layer }

// Files is the workspace of the call whose context a tool was given; nil if its
// process has none.
func Files(ctx context.Context) *Workspace {
	if l := staging.Layer(ctx); l != nil {
		return &Workspace{l}
	}
	return nil
}

// ReadFile reads a file.
func (w *Workspace) ReadFile(name string) ([]byte, error) { return w.layer.ReadFile(name) }

// WriteFile writes a file, and makes it with mode if it does not exist.
func (w *Workspace) WriteFile(name string, b []byte, mode fs.FileMode) error {
	return w.layer.WriteFile(name, b, mode)
}

// ReadDir lists the names in a directory, sorted.
func (w *Workspace) ReadDir(name string) ([]string, error) { return w.layer.ReadDir(name) }

// MkdirAll makes a directory and its parents.
func (w *Workspace) MkdirAll(name string, mode fs.FileMode) error {
	return w.layer.MkdirAll(name, mode)
}

// Remove removes a file or an empty directory.
func (w *Workspace) Remove(name string) error { return w.layer.Remove(name) }

// RemoveAll removes a file, or a directory with all it holds.
func (w *Workspace) RemoveAll(name string) error { return w.layer.RemoveAll(name) }

// Rename moves a file or directory.
func (w *Workspace) Rename(old, name string) error { return w.layer.Rename(old, name) }

// Chmod changes the permission bits of a file or directory.
func (w *Workspace) Chmod(name string, mode fs.FileMode) error { return w.layer.Chmod(name, mode) }

// Stat reports the permission bits and the size of a file or directory; err is
// [fs.ErrNotExist] if there is none.
func (w *Workspace) Stat(name string) (mode fs.FileMode, size int64, err error) {
	e, err := w.layer.Stat(name)
	if err == nil && e.Kind == workspace.Dir {
		e.Mode |= fs.ModeDir
	}
	return e.Mode, e.Size, err
}
