package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/staging"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/internal/workspace"
)

// workspaces holds the workspaces of a data directory, one for each directory that
// processes work in. Each opens when a process first needs it. Its history, its log
// and its stages are in DATA/workspaces/NAME, beside two files. The file dir has the
// name of the directory. The file busy exists while the workspace is open, so after
// a crash it marks the workspaces whose last commit may be in doubt.
type workspaces struct {
	store   string // DATA/workspaces
	journal journal.Store
	log     *journal.Log

	rules  config.WorkspaceRules
	forget func(*workspace.Workspace) // drops what others remember of a replaced one

	mu   sync.Mutex
	open map[string]*opening // by canonical directory
}

// opening is a workspace that one caller opens while the others wait.
type opening struct {
	once sync.Once
	w    *workspace.Workspace
	err  error
}

// get returns the workspace of a directory, and opens it if necessary. The
// directory may have any of its names.
func (s *workspaces) get(dir string) (*workspace.Workspace, error) {
	real, err := canonical(dir)
	if err != nil {
		return nil, err
	}
	for {
		s.mu.Lock()
		if s.open == nil {
			s.open = make(map[string]*opening)
		}
		p := s.open[real]
		if p == nil {
			p = new(opening)
			s.open[real] = p
		}
		s.mu.Unlock()
		p.once.Do(func() { p.w, p.err = s.begin(real) })
		// The next caller opens it again after a mistake, which a person may correct, and
		// after somebody replaced the directory, as a fresh clone does.
		replaced := p.err == nil && p.w.Replaced()
		if p.err == nil && !replaced {
			return p.w, nil
		}
		s.mu.Lock()
		mine := s.open[real] == p
		if mine {
			delete(s.open, real)
		}
		s.mu.Unlock()
		if !replaced {
			return p.w, p.err
		}
		if mine {
			p.w.Retire()
			s.forget(p.w)
		}
		if real, err = canonical(dir); err != nil {
			return nil, err
		}
	}
}

// check opens the workspace of an agent, and refuses a request that this host
// cannot satisfy.
func (s *workspaces) check(p *abi.Agent) error {
	if err := syscalls.CheckWorkspace(p); err != nil || p.Workspace == "" {
		return err
	}
	w, err := s.get(p.Workspace)
	if err != nil {
		return err
	}
	p.Workspace = w.Dir()
	if p.View != "overlay" {
		return nil
	}
	tx, err := w.Begin(context.Background(), workspace.Options{View: workspace.Overlay})
	if err != nil {
		return staging.Error(err)
	}
	return tx.Rollback()
}

// canonical returns the absolute name of a directory without symbolic links.
func canonical(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", &abi.Error{Code: abi.WorkspaceRefused, Message: fmt.Sprintf("workspace %q: expected an absolute directory", dir)}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		var fi fs.FileInfo
		if fi, err = os.Stat(real); err == nil && !fi.IsDir() {
			err = fmt.Errorf("%s is no directory", real)
		}
	}
	if err != nil {
		return "", &abi.Error{Code: abi.WorkspaceRefused, Message: "workspace: " + err.Error(), Where: "/workspace", Hint: "make the directory first"}
	}
	return real, nil
}

// begin opens a workspace, and settles a commit that a crash left in doubt.
func (s *workspaces) begin(dir string) (*workspace.Workspace, error) {
	home := filepath.Join(s.store, nameOf(dir))
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"dir": dir, "busy": ""} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	conf := workspace.Config{Store: filepath.Join(home, "store"), Ignore: s.rules.Ignore,
		History: workspace.Retention{MaxCommits: s.rules.Commits, MaxBytes: s.rules.Bytes}}
	w, err := workspace.Open(context.Background(), dir, conf)
	if errors.Is(err, &workspace.Error{Code: workspace.Unsupported}) {
		// The workspace and the data directory are on different file systems. Stages
		// lie beside the workspace then, because they must share its file system.
		conf.Scratch = filepath.Join(filepath.Dir(dir), ".kern-"+nameOf(dir))
		w, err = workspace.Open(context.Background(), dir, conf)
	}
	if err != nil {
		return nil, staging.Error(err)
	}
	opened(w)
	if err := s.settle(w); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// opened sees every workspace that begin opens, so that tests can set fail-points.
var opened = func(*workspace.Workspace) {}

// nameOf returns the NAME of a directory in DATA/workspaces: readable, and different
// for each directory.
func nameOf(dir string) string {
	base := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, filepath.Base(dir))
	return base[:min(len(base), 40)] + "-" + abi.HashOf([]byte(dir)).String()[:16]
}

// settle decides a commit that is in doubt. It publishes the commit if the journal
// has an ok answer with that commit, and undoes it otherwise.
func (s *workspaces) settle(w *workspace.Workspace) error {
	note, doubt := w.Pending()
	if !doubt {
		return nil
	}
	_, hash, err := w.Outcome(note.ID)
	if err != nil {
		return staging.Error(err)
	}
	stands, err := s.stood(note, hash)
	if err != nil {
		return err
	}
	verdict := workspace.Undo
	if stands {
		verdict = workspace.Finish
	}
	if _, err = w.Resolve(context.Background(), note.ID, verdict); err != nil {
		return staging.Error(err)
	}
	return nil
}

// recover opens the workspaces that were open at a crash, so that no commit stays
// half published. A workspace that cannot be opened keeps its doubt until a process
// needs it.
func (s *workspaces) recover() {
	homes, _ := filepath.Glob(filepath.Join(s.store, "*", "busy"))
	for _, busy := range homes {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(busy), "dir"))
		if err != nil {
			continue
		}
		_, _ = s.get(string(b)) // the process that needs it gets the error
	}
}

func (s *workspaces) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir, p := range s.open {
		if p.w == nil {
			continue
		}
		_, doubt := p.w.Pending()
		err = errors.Join(err, p.w.Close())
		if !doubt {
			err = errors.Join(err, os.Remove(filepath.Join(s.store, nameOf(dir), "busy")))
		}
	}
	s.open = nil
	return err
}

// stood reports whether the journal confirms a commit: the answer of its call is ok
// and names that commit.
func (s *workspaces) stood(n workspace.Note, h workspace.Hash) (bool, error) {
	if err := s.log.Flush(context.Background()); err != nil {
		return false, err
	}
	r, err := s.journal.Answer(abi.Pid(n.PID), n.Call)
	if err != nil || r == nil {
		return false, err
	}
	return r.Answer.Outcome == abi.OK && r.Answer.Commit == abi.Hash(h), nil
}
