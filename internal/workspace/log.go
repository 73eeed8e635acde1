package workspace

import (
	"sync"

	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/publish"
	"github.com/kern-run/kern/internal/workspace/wal"
)

// A logRecord is one step of one commit in the log.
type logRecord struct {
	Kind string `json:"kind"` // one of the kinds below
	git.Head
	Intent *intent `json:"intent,omitempty"`
}

// The kinds of records.
const (
	kindHead   = "head"   // the state, when the log is rewritten or history changes
	kindIntent = "intent" // a commit begins: it is in doubt from here
	kindSeal   = "seal"   // the commit is done
	kindUndone = "undone" // the commit was rolled back
)

// An intent holds everything that recovery needs to finish a commit or to roll
// it back.
type intent struct {
	Note  git.Note     `json:"note"`
	Auto  bool         `json:"auto,omitempty"` // only this log decides: not sealed means undone
	Boot  string       `json:"boot,omitempty"` // boot of the machine during which it was published
	Slots string       `json:"slots"`          // directory of the transaction below scratch
	Pack  string       `json:"pack,omitempty"`
	Ops   []publish.Op `json:"ops"`
}

// logState is the fold of the log.
type logState struct {
	git.Head
	Doubt *logRecord // the intent that is neither sealed nor undone
	Last  *logRecord // the intent that was sealed last, if only the log decided it
}

// A commitLog is the log with its state. Readers of the state need not hold the
// lock of the workspace.
type commitLog struct {
	*wal.Log[logRecord]
	mu    sync.Mutex // guards state
	state logState
}

// openLog reads the log, or creates it. With repair, a torn tail is cut.
func openLog(name string, repair bool) (*commitLog, error) {
	l := new(commitLog)
	log, err := wal.Open(name, repair, l)
	if err != nil {
		return nil, err
	}
	l.Log = log
	return l, nil
}

// Now returns the state.
func (l *commitLog) Now() logState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Pending returns the intent in doubt, or nil.
func (l *commitLog) Pending() *logRecord { return l.Now().Doubt }

// Apply folds records into the state.
func (l *commitLog) Apply(records ...logRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.state
	for _, r := range records {
		switch r.Kind {
		case kindHead:
			s.Head, s.Doubt, s.Last = r.Head, nil, nil
		case kindIntent:
			s.Doubt, s.Last = &r, nil
		case kindSeal:
			s.Last = nil
			// The seal of such a commit may be on disk without its operations, so redoLast needs the intent.
			if s.Doubt != nil && s.Doubt.Intent.Auto {
				s.Last = s.Doubt
			}
			s.Head, s.Doubt = r.Head, nil
		case kindUndone:
			s.Doubt = nil
		}
	}
}

// Snapshot returns the records that a rewritten log begins with.
func (l *commitLog) Snapshot() []logRecord {
	s := l.Now()
	list := []logRecord{{Kind: kindHead, Head: s.Head}}
	if s.Doubt != nil {
		list = append(list, *s.Doubt)
	}
	return list
}
