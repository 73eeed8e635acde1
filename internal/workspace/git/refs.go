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

	// States from outside that are older than the history, by their number.
	refKept     = "refs/kern/kept/"
	refKeptMeta = "refs/kern/kept-meta/"
)

// SetRefs points both refs at head. Nothing has to be kept from Git then.
func (h *History) SetRefs(head Head) error {
	if head.Commit.IsZero() {
		return nil
	}
	if err := errors.Join(h.setRef(refMain, head.Commit), h.setRef(refMeta, head.Side)); err != nil {
		return err
	}
	h.release()
	return nil
}

// setRef points a ref at id. It is not synced: the log knows better.
func (h *History) setRef(ref string, id fsys.Hash) error {
	name := filepath.Join(h.Dir, filepath.FromSlash(ref))
	want := []byte(id.String() + "\n")
	if b, err := os.ReadFile(name); err == nil && bytes.Equal(b, want) {
		return nil
	}
	if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil {
		if fi, err := f.Stat(); err == nil && fi.Size() == int64(len(want)) { // one write, which readers see whole
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

// cut names the commits whose parents were dropped.
func (h *History) cut() (map[fsys.Hash]bool, error) {
	b, err := os.ReadFile(filepath.Join(h.Dir, "shallow"))
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

// refs gives the refs whose names begin with prefix, by what follows it. Git
// keeps a ref in a file of its own or, after it has tidied up, in one list;
// the file wins.
func (h *History) refs(prefix string) (map[string]fsys.Hash, error) {
	out := map[string]fsys.Hash{}
	b, err := os.ReadFile(filepath.Join(h.Dir, "packed-refs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		id, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name, below := strings.CutPrefix(name, prefix); ok && below && id != "#" {
			if out[name], err = fsys.ParseHash(id); err != nil {
				return nil, fsys.Errorf(fsys.Damaged, "packed-refs", "it does not read back: %v", err)
			}
		}
	}
	dir := filepath.Join(h.Dir, filepath.FromSlash(prefix))
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
