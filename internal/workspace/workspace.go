// Package workspace is a directory that changes only by transactions.
//
// A transaction stages its changes on a private view. Then it publishes all of
// them or none, even if the machine stops in between. Each one becomes a commit in
// a history that plain Git can read, and every commit can be restored. The package
// knows nothing about agents.
//
// # One staged form
//
// There are three views: a [Layer] in Go, an overlay and a copy. Behind them is
// one staged form, a list of [view.Staged]: a path, what it becomes, and the file
// with the content. After freezing, everything is the same for all views.
//
// # The commit
//
// Contents lie in *slots*: files in the directory of the transaction, on the file
// system of the workspace, complete with mode and time. A commit is a list of
// operations. Each operation is one rename between a slot and the workspace. The
// slot then holds what was replaced, with every byte, mode, time and link, so the
// same rename undoes the operation:
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
//	lock          a file lock that ends with its holder               nothing happened
//	check         every path still is what Begin saw, else Conflict   nothing happened
//	pack          history of the new state, written as one pack       an unused pack; its objects are valid
//	intent        operations and pack into the log, not synced        IN DOUBT from here; nothing is visible yet
//	sync          log, slots, their directory, the pack: on disk      in doubt; the paths show what did not reach the disk
//	op 1..n       each operation; its result is checked               in doubt: some are done, and each slot shows if its own is
//	syncdirs      every directory touched: on disk                    in doubt: all are done
//	  (the caller writes its own journal here: Publish has returned)
//	seal          the log says so, synced                             COMMITTED; undo information is garbage
//	ref, sweep    refs follow the log; slots and undo are removed     committed; the next Open finishes this
//
// A rollback follows a conflict at an operation, a call of Rollback, or recovery.
// It restores modes, undoes the operations in reverse order, restores modes and
// times, syncs the directories, and only then logs "undone". Every step can be repeated, so after a
// crash the rollback runs again. How to see that an operation was done:
//
//	make   its slot is gone
//	swap   its slot holds what the path held (exchange), or is gone while slot.old is there (link)
//	drop   its slot is there
//	attr   it does not matter: it is done or undone again
//
// The syncs of one step reach the disk in any order. An intent may be on disk
// without its slots. Then no operation began, and each path holds its old content.
// [Tx.Commit] decides by itself, so it writes the seal before syncdirs and syncs
// both together. A seal may therefore be on disk without an operation. The slots
// are removed only after that sync, so the first Open on another boot of the
// machine can do the missing operations.
//
// [Workspace.Resolve] decides a commit in doubt: the journal of the caller says
// Finish or Undo. A commit by [Tx.Commit] needs no other journal, because a commit
// without a seal is undone. No other transaction publishes before the decision.
//
// Recovery leaves alone what somebody else changed. The content that belongs there
// is kept in the directory "rescued" and reported.
//
// # Policy
//
//	files         content, permissions, time of last change; published by a rename, never written in place
//	directories   with mode and time, also empty ones; a directory of a transaction merges with one that was made meanwhile
//	symlinks      as text; this package never follows them; the target may lie outside or be missing
//	hard links    names that shared a file in the view share it afterwards; a file with names outside the
//	              view is copied, so no published file is shared with the outside
//	              (an overlay splits a pair when one name is written, as overlayfs does)
//	renames       history has a removal and a creation; a rename in a Layer moves no bytes
//	times         kept to the nanosecond if the file system has them; times of access are not kept
//	owner         a replaced file keeps its owner; a new one gets its directory's (when run as root)
//	xattrs, ACLs  stay on files that are not replaced; a replaced file has those of the file in the view
//	setuid/gid    refused on a path that did not have it; a new directory may have the setgid bit of its parent
//	unreadable    a mode that keeps its own owner from reading is refused, unless run as root
//	sparse        holes stay holes while staging; Git's format stores them as zeros, compressed
//	large files   streamed, never held in memory
//	odd names     any bytes that the file system allows; no normalisation: look-alikes are different names
//	case          as in the file system: two names that it tells apart are two names
//	long paths    a name as long as the file system allows; a path as long as the kernel resolves (4,095 bytes)
//	FIFOs, devices, sockets   refused from a view; those of a person are left alone, and are not in digest or history
//	other mounts  never entered, changed or removed; a path that leads into one is an error
//	.git          a person's repository: not in digest or history, and a change to it is refused unless WriteGit
//	ignored       published and rolled back like the rest; not in digest or history, so not restored
package workspace

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
	"github.com/kern-run/kern/internal/workspace/git"
)

// Config says where a workspace keeps its own files and how much history it keeps.
type Config struct {
	Store    string        // directory for history, log and stages; outside the workspace, one for each workspace
	Scratch  string        // directory for stages; on the file system of the workspace. Empty: in Store
	Ignore   []string      // names kept out of digest and history, as in a .gitignore file
	WriteGit bool          // let transactions change .git
	History  Retention     // how much history is kept
	LockWait time.Duration // how long Publish waits for another; 0: DefaultLockWait
	Verify   int           // every so many snapshots all files are read; 0: DefaultVerify; negative: never
}

// Defaults of a Config.
const (
	DefaultLockWait = 10 * time.Second
	DefaultVerify   = 1000
)

// A Workspace is a directory and its history. It is safe for concurrent use.
type Workspace struct {
	conf      Config
	index     index
	repo      repo
	scratch   scratch
	committer committer
	lock      publishLock
	scans     int
	upkeep    error // of the upkeep after the last commit, for Close to return
	closed    atomic.Bool
	users     users
}

// users counts the transactions that are open.
type users struct {
	mu   sync.Mutex
	n    int
	last func() // of a retired workspace: called when the last one ends
}

// enter counts a new transaction. It reports false if the workspace is retired.
func (u *users) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last != nil {
		return false
	}
	u.n++
	return true
}

// leave counts a transaction that ended.
func (u *users) leave() {
	u.mu.Lock()
	u.n--
	last := u.last
	if u.n > 0 {
		last = nil
	}
	u.mu.Unlock()
	if last != nil {
		last()
	}
}

// retire lets no transaction enter, and has last called when the last one ends.
func (u *users) retire(last func()) {
	u.mu.Lock()
	idle := u.last == nil && u.n == 0
	u.last = last
	u.mu.Unlock()
	if idle {
		last()
	}
}

// Open opens the workspace in dir, which must exist. It cleans up after an earlier
// holder. A commit in doubt (see [Workspace.Pending]) waits for
// [Workspace.Resolve].
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
		// A store inside the workspace would record itself, and sweep could remove a workspace inside of scratch.
		if fsys.Inside(*d, dir) || fsys.Inside(dir, *d) {
			return nil, fsys.Errorf(Refused, *d, "expected a directory that neither lies in the workspace %s nor holds it", dir)
		}
	}
	w = &Workspace{conf: conf}
	w.repo.index, w.committer.repo, w.committer.scratch = &w.index, &w.repo, &w.scratch
	w.repo.ids.hashes = map[string]Hash{}
	w.scratch.removals = make(chan struct{}, 4)
	w.index.rules, w.index.file = rules, filepath.Join(conf.Store, "index")
	// Tests replace Step to crash at a point.
	w.committer.publisher.Step = func(string) {}
	if err = w.openDirs(dir); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// openDirs opens the directories that a workspace keeps open.
func (w *Workspace) openDirs(dir string) (err error) {
	if w.index.place, err = fsys.Open(dir); err != nil {
		return err
	}
	w.committer.publisher.Place = w.index.place
	if w.scratch.place, err = fsys.Open(w.conf.Scratch); err != nil {
		return err
	}
	if err := w.lock.open(filepath.Join(w.conf.Store, "lock"), w.conf.LockWait); err != nil {
		return err
	}
	// Publishing is one rename for each path, and a rename cannot cross file systems.
	if !fsys.SameFS(w.index.place, w.scratch.place) {
		return fsys.Errorf(Unsupported, w.conf.Scratch, "it is on another file system than the workspace %s; set Config.Scratch to a directory on the same one", dir)
	}
	w.index.fine = fsys.FineStamps(w.conf.Scratch)
	return nil
}

// start recovers, then scans the directory.
func (w *Workspace) start(ctx context.Context) (err error) {
	if w.repo.hist, err = git.Open(filepath.Join(w.conf.Store, "history.git"), w.conf.History); err != nil {
		return err
	}
	release, err := w.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	// A torn tail may be cut only under the lock, because another process may be in the middle of a write.
	if w.repo.log == nil {
		if w.repo.log, err = openLog(filepath.Join(w.conf.Store, "log"), true); err != nil {
			return err
		}
	}
	pending := ""
	if p := w.repo.log.Pending(); p != nil {
		pending = p.Intent.Slots
	}
	// The order matters: sweep removes the slots that redoLast needs. The slots of the commit in doubt stay.
	if err := w.committer.redoLast(); err != nil {
		return err
	}
	w.scratch.sweep(pending)
	if err := w.committer.undoUnsealed(); err != nil {
		return err
	}
	if err := w.repo.putRefs(); err != nil {
		return err
	}
	w.index.load()
	// A scan now would record half of a commit as a change from outside. Resolve scans after the decision.
	if w.repo.log.Pending() != nil {
		return nil
	}
	if err := w.index.scan(ctx, false); err != nil {
		return err
	}
	return w.repo.recordOutside(ctx)
}

// Close closes the workspace. All transactions must have ended. Close returns the
// error of upkeep that failed after the last commit; no data is lost by that.
func (w *Workspace) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	w.scratch.background.Wait()
	var errs []error
	if w.repo.log != nil {
		w.index.save()
		errs = append(errs, w.repo.log.Close())
	}
	if w.repo.hist != nil {
		w.repo.hist.Objects.Close()
	}
	for _, p := range []*fsys.Handle{w.index.place, w.scratch.place} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(append(errs, w.lock.close(), w.upkeep)...)
}

// Replaced reports whether the name of the workspace is another directory now, because
// somebody removed or moved the old one. Open the workspace again then.
func (w *Workspace) Replaced() bool { return !w.index.place.Current() }

// Retire refuses new transactions, and closes the workspace when the last one ends.
func (w *Workspace) Retire() {
	w.users.retire(func() {
		if leave, err := w.lock.lockLocal(context.Background()); err == nil { // a scan ends first
			defer leave()
		}
		w.noteUpkeep(w.Close())
	})
}

// Dir is the directory of the workspace.
func (w *Workspace) Dir() string { return w.index.place.Name }

// GitDir is the repository with the history, for git --git-dir.
func (w *Workspace) GitDir() string { return w.repo.hist.Objects.Dir }

// acquire takes the lock and reads what other processes committed.
func (w *Workspace) acquire(ctx context.Context) (release func(), err error) {
	if release, err = w.lock.lockAll(ctx); err != nil || w.repo.log == nil {
		return release, err
	}
	moved, err := w.repo.log.Follow()
	if err != nil {
		release()
		return nil, err
	}
	// Another process committed, so the known tree is stale.
	if moved {
		w.index.invalidate()
	}
	return release, nil
}

// Snapshot scans the directory and returns its state. It does not read files
// with unchanged metadata, except at every Config.Verify-th time.
func (w *Workspace) Snapshot(ctx context.Context) (*Snapshot, error) { return w.snapshot(ctx, false) }

// Verify is a Snapshot that reads every file.
func (w *Workspace) Verify(ctx context.Context) (*Snapshot, error) { return w.snapshot(ctx, true) }

// History yields the commits, newest first.
func (w *Workspace) History() iter.Seq2[*Commit, error] { return w.repo.commits() }

// Kept returns the states from outside that are older than the history.
func (w *Workspace) Kept() ([]*Commit, error) { return w.repo.hist.Kept() }

// Content opens the content of a file that the history holds, by Entry.Hash.
func (w *Workspace) Content(id Hash) (io.ReadCloser, error) { return w.repo.hist.Objects.Blob(id) }

// Commit reads one commit.
func (w *Workspace) Commit(id Hash) (*Commit, error) { return w.repo.hist.Commit(id) }

// At reads the state that a commit recorded.
func (w *Workspace) At(id Hash) (*Snapshot, error) { return w.repo.snapshot(id, nil) }

// AtFrom reads the state that a commit recorded, like At. It reads only what
// differs from near, and shares the rest with it.
func (w *Workspace) AtFrom(id Hash, near *Snapshot) (*Snapshot, error) {
	return w.repo.snapshot(id, near)
}

func (w *Workspace) snapshot(ctx context.Context, full bool) (*Snapshot, error) {
	if w.closed.Load() {
		return nil, fsys.Errorf(Ended, "", "the workspace is closed")
	}
	leave, err := w.lock.lockLocal(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	w.scans++
	if err := w.index.scan(ctx, full || w.conf.Verify > 0 && w.scans%w.conf.Verify == 0); err != nil {
		return nil, err
	}
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	return fsys.SnapshotOf(w.index.root), nil
}
