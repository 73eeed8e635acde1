package git

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

const (
	refMain = "refs/heads/main"
	refMeta = "refs/kern/meta"

	// States from outside that are older than the history, by number.
	refKept     = "refs/kern/kept/"
	refKeptMeta = "refs/kern/kept-meta/"
)

// SetRefs points both refs at head. From then on Git may repack its objects.
func (h *History) SetRefs(head Head) error {
	if head.Commit.IsZero() {
		return nil
	}
	if err := errors.Join(h.setRef(refMain, head.Commit), h.setRef(refMeta, head.Side)); err != nil {
		return err
	}
	// A ref now reaches the objects, so Git keeps them when it repacks.
	h.Objects.release()
	return nil
}

// setRef points a ref at id, without a sync, because the log decides.
func (h *History) setRef(ref string, id fsys.Hash) error {
	name := filepath.Join(h.Objects.Dir, filepath.FromSlash(ref))
	want := []byte(id.String() + "\n")
	if b, err := os.ReadFile(name); err == nil && bytes.Equal(b, want) {
		return nil
	}
	if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil {
		if fi, err := f.Stat(); err == nil && fi.Size() == int64(len(want)) { // readers see one small write whole
			_, err = f.WriteAt(want, 0)
			return errors.Join(err, f.Close())
		}
		f.Close()
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return fsys.Replace(name, want, 0o600, false)
}

// cutCommits returns the commits with dropped parents.
func (h *History) cutCommits() (map[fsys.Hash]bool, error) {
	b, err := os.ReadFile(filepath.Join(h.Objects.Dir, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out := map[fsys.Hash]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
		id, perr := fsys.ParseHash(line)
		if perr != nil {
			return nil, perr
		}
		out[id] = true
	}
	return out, err
}

// readRefs returns the refs below prefix. Git keeps a ref in a file of its own, or
// after a cleanup in one list. The file wins.
func (h *History) readRefs(prefix string) (map[string]fsys.Hash, error) {
	out := map[string]fsys.Hash{}
	b, err := os.ReadFile(filepath.Join(h.Objects.Dir, "packed-refs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The list is read first, so that a file of its own overwrites it.
	for line := range strings.Lines(string(b)) {
		id, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name, below := strings.CutPrefix(name, prefix); ok && below && id != "#" {
			if out[name], err = fsys.ParseHash(id); err != nil {
				return nil, fsys.Errorf(fsys.Damaged, "packed-refs", "it does not read back: %v", err)
			}
		}
	}
	dir := filepath.Join(h.Objects.Dir, filepath.FromSlash(prefix))
	ents, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range ents {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if out[e.Name()], err = fsys.ParseHash(strings.TrimSpace(string(b))); err != nil {
			return nil, fsys.Errorf(fsys.Damaged, prefix+e.Name(), "it does not read back: %v", err)
		}
	}
	return out, nil
}
