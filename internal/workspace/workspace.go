// Package workspace is a directory that is changed only by transactions.
//
// A transaction stages its changes on a private view, then publishes all of
// them or none, whatever dies in between; each one becomes a commit in a
// history that plain Git reads, and can be brought back. The package knows
// nothing of agents.
//
// # One staged form
//
// There are three views (a [Layer] in Go, an overlay, a copy) and one staged
// form behind them: a list of [view.Staged], each a path and what it becomes, with
// the file that holds its content. Everything after freezing is the same for
// all views.
//
// # The commit
//
// Contents lie in *slots*: files in the transaction's own directory, on the
// workspace's file system, complete with mode and time. A commit is a list of
// operations, each a single rename by the kernel between a slot and the
// workspace, and each its own undo, because what was replaced lies in the slot
// afterwards, as it was, to the byte, mode, time and link:
//
//	make   slot -> path, where nothing may be          (a file, a link, or a whole new directory)
//	swap   slot <-> path, exchanged in one step        (where the file system cannot: link path aside, rename over it)
//	drop   path -> slot                                (a file, or a directory with all below it)
//	attr   mode and time in place                      (directories; files whose content stays)
//
// The steps, and what a crash after each leaves:
//
//	step          what it does                                        after a crash
//	------------  --------------------------------------------------  ------------------------------------------
//	freeze        the view is closed; contents move into slots        nothing happened; slots are swept
//	lock          gate, then a file lock that dies with its holder    nothing happened
//	check         every path still is what Begin saw, else Conflict   nothing happened
//	pack          history of the new state, written as one pack       an unused pack; its objects are valid
//	intent        operations and pack into the log, not synced        IN DOUBT from here; nothing is visible yet
//	sync          log, slots, their directory, the pack: on disk      in doubt; what never got to the disk is told by the paths
//	op 1..n       each operation; what came out is looked at again    in doubt: some are done, each is told by its slot
//	syncdirs      every directory touched: on disk                    in doubt: all are done
//	  (the caller writes its own journal here: Publish has returned)
//	seal          the log says so, synced                             COMMITTED; undo information is garbage
//	ref, sweep    refs follow the log; slots and undo are removed     committed; put right at the next Open
//
// Taking back (a conflict at an operation, Rollback, or recovery) undoes in
// reverse order, then puts modes and times back, syncs the directories, and
// only then logs "undone". Every step of it can be repeated, so a crash in it
// is followed by the same again. How an operation is found to be done:
//
//	make   its slot is gone
//	swap   its slot holds what the path held (exchange), or is gone while slot.old is there (link)
//	drop   its slot is there
//	attr   not asked: done or undone again
//
// The syncs of one step go to the disk in any order. An intent may be there
// without its slots: then no operation was begun, and each path holds what it
// held. [Tx.Commit] decides by itself, so it writes the seal before syncdirs and
// syncs both together: a seal may be there without an operation. Its slots are
// removed only after that sync, so the first Open on another boot of the machine
// does what is missing.
//
// What is in doubt is decided by [Workspace.Resolve]: the caller's journal
// says Finish or Undo. A commit by [Tx.Commit] needs no other journal: it is
// undone when it was not sealed. No other transaction publishes before.
//
// What recovery finds changed by somebody else is left as it is; the
// content that should have gone there is kept in "rescued" and reported.
//
// # Policy
//
//	files         content, permissions, time of last change; published by rename, never written in place
//	directories   with mode and time, also empty ones; a transaction's directory joins one made meanwhile
//	symlinks      as text; never followed by this package; may name what lies outside, or nothing
//	hard links    names that shared a file in the view share it afterwards; a file whose further names lie
//	              outside the view is copied, so the outside never shares a file with what is published
//	              (an overlay breaks a pair when one name is written, as overlayfs does)
//	renames       are a removal and a creation to history; a rename in a Layer moves no bytes
//	times         kept to the nanosecond where the file system does; times of access are not
//	owner         a replaced file keeps its owner; a new one gets its directory's (when run as root)
//	xattrs, ACLs  stay on what is not replaced; what is replaced has those of the view's file
//	setuid/gid    refused on a file that did not have it
//	sparse        holes stay holes while staging; Git's format stores them as zeros, compressed
//	large files   streamed, never held in memory
//	odd names     any bytes the file system takes; no normalisation: look-alikes are different names
//	case          as the file system: two names that it holds apart are two names
//	long paths    a name up to what the file system takes; a path as long as the kernel resolves (4,095 bytes)
//	FIFOs, devices, sockets   refused from a view; a person's are left alone, and not in digest or history
//	other mounts  never entered, changed or removed; a path that leads into one is an error
//	.git          a person's repository: not in digest or history, and a change to it is refused unless WriteGit
//	ignored       published and rolled back like the rest; not in digest or history, so not restored
package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
	"github.com/kern-run/kern/internal/workspace/publish"
)

// Config says where a workspace keeps its own things and what it holds on to.
type Config struct {
	Store    string        // directory for history, log and staging; outside the workspace, one for each
	Scratch  string        // where transactions are staged; on the workspace's file system. Empty: in Store
	Ignore   []string      // kept out of digest and history, as in a .gitignore file
	WriteGit bool          // let transactions change .git
	History  Retention     // how much history is kept
	LockWait time.Duration // how long Publish waits for another; 0: DefaultLockWait
	Verify   int           // read every file at each so many digests; 0: DefaultVerify; negative: never by itself
}

// Defaults of a Config.
const (
	DefaultLockWait = 10 * time.Second
	DefaultVerify   = 1000
)

// A Workspace is a directory and its history. It is safe for concurrent use.
type Workspace struct {
	past
	conf   Config
	gate   gate
	room   room
	hand   publish.Hand
	scans  int
	upkeep error // of the last commit, for Close to tell
	closed atomic.Bool
}

// Open opens the workspace in dir, which must exist. What an earlier holder
// left behind is cleaned up. When a commit is in doubt (see [Workspace.Pending])
// it is left for [Workspace.Resolve].
func Open(ctx context.Context, dir string, conf Config) (*Workspace, error) {
	w, err := open(dir, conf)
	if err != nil {
		return nil, err
	}
	if err := w.start(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func open(dir string, conf Config) (w *Workspace, err error) {
	if conf.Store == "" {
		return nil, fsys.Errorf(Refused, "", "expected Config.Store, a directory outside the workspace")
	}
	if conf.Scratch == "" {
		conf.Scratch = filepath.Join(conf.Store, "scratch")
	}
	if conf.LockWait == 0 {
		conf.LockWait = DefaultLockWait
	}
	if conf.Verify == 0 {
		conf.Verify = DefaultVerify
	}
	rules, err := fsys.ParseRules(conf.Ignore)
	if err != nil {
		return nil, err
	}
	if dir, err = fsys.RealDir(dir); err != nil {
		return nil, err
	}
	for _, d := range []*string{&conf.Store, &conf.Scratch} {
		if err := os.MkdirAll(*d, 0o700); err != nil {
			return nil, err
		}
		if *d, err = fsys.RealDir(*d); err != nil {
			return nil, err
		}
		if fsys.Inside(*d, dir) || fsys.Inside(dir, *d) {
			return nil, fsys.Errorf(Refused, *d, "expected a directory that neither lies in the workspace %s nor holds it", dir)
		}
	}
	w = &Workspace{conf: conf}
	w.room.busy = make(chan struct{}, 4)
	w.rules, w.index = rules, filepath.Join(conf.Store, "index")
	w.hand.Step = func(string) {}
	if err = w.enter(dir); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// enter opens the directories that a workspace holds on to.
func (w *Workspace) enter(dir string) (err error) {
	if w.place, err = fsys.Open(dir); err != nil {
		return err
	}
	w.hand.Place = w.place
	if w.room.place, err = fsys.Open(w.conf.Scratch); err != nil {
		return err
	}
	if err := w.gate.open(filepath.Join(w.conf.Store, "lock"), w.conf.LockWait); err != nil {
		return err
	}
	if !fsys.SameFS(w.place, w.room.place) {
		return fsys.Errorf(Unsupported, w.conf.Scratch, "it is on another file system than the workspace %s; set Config.Scratch to a directory on the same one", dir)
	}
	w.fine = fsys.FineStamps(w.conf.Scratch)
	return nil
}

// start recovers, then learns what is there.
func (w *Workspace) start(ctx context.Context) (err error) {
	if w.hist, err = git.Open(filepath.Join(w.conf.Store, "history.git"), w.conf.History); err != nil {
		return err
	}
	release, err := w.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if w.log == nil {
		if w.log, err = openLog(filepath.Join(w.conf.Store, "log"), true); err != nil {
			return err
		}
	}
	pending := ""
	if p := w.log.Pending(); p != nil {
		pending = p.Intent.Slots
	}
	if err := w.redoLast(); err != nil {
		return err
	}
	w.room.sweep(pending)
	if err := w.recover(); err != nil {
		return err
	}
	if err := w.putRefs(); err != nil {
		return err
	}
	w.remember()
	if w.log.Pending() != nil {
		return nil
	}
	if err := w.scan(ctx, false); err != nil {
		return err
	}
	return w.recordOutside(ctx)
}

// Close lets go of the workspace. Open transactions must have ended. It tells
// of upkeep that failed after the last commit: nothing is lost by it.
func (w *Workspace) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	w.room.trash.Wait()
	var errs []error
	if w.log != nil {
		w.save()
		errs = append(errs, w.log.Close())
	}
	if w.hist != nil {
		w.hist.Close()
	}
	for _, p := range []*fsys.Place{w.place, w.room.place} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(append(errs, w.gate.close(), w.upkeep)...)
}

// Dir is the workspace's directory.
func (w *Workspace) Dir() string { return w.place.Name }

// GitDir is the history's repository, for git --git-dir.
func (w *Workspace) GitDir() string { return w.hist.Dir }

// hold takes the lock and reads what other processes did.
func (w *Workspace) hold(ctx context.Context) (release func(), err error) {
	if release, err = w.gate.lock(ctx); err != nil || w.log == nil {
		return release, err
	}
	moved, err := w.log.Follow()
	if err != nil {
		release()
		return nil, err
	}
	if moved {
		w.forget()
	}
	return release, nil
}

func (w *Workspace) step(point string) { w.hand.Step(point) }

// Snapshot looks at the directory and says what it holds now. Files whose
// metadata has not changed are not read; every Config.Verify-th time all are.
func (w *Workspace) Snapshot(ctx context.Context) (*Snapshot, error) { return w.look(ctx, false) }

// Verify is Snapshot, but reads every file whatever its metadata says.
func (w *Workspace) Verify(ctx context.Context) (*Snapshot, error) { return w.look(ctx, true) }

// Digest is the digest of [Workspace.Snapshot].
func (w *Workspace) Digest(ctx context.Context) (Hash, error) {
	s, err := w.Snapshot(ctx)
	if err != nil {
		return Hash{}, err
	}
	return s.Digest(), nil
}

func (w *Workspace) look(ctx context.Context, full bool) (*Snapshot, error) {
	if w.closed.Load() {
		return nil, fsys.Errorf(Ended, "", "the workspace is closed")
	}
	leave, err := w.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	w.scans++
	if err := w.scan(ctx, full || w.conf.Verify > 0 && w.scans%w.conf.Verify == 0); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return fsys.Of(w.root), nil
}
