// Package git is the history of a workspace, in the object format of Git, so that
// plain Git can read it. The package writes packs and commits, and reads packs
// that Git itself made. It joins small packs and drops old commits, but it never
// drops a state that came from outside of transactions.
package git

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// History is a bare Git repository (object format SHA-256). Each commit is one
// pack; small packs are joined later. Two refs name the last commit:
//
//	refs/heads/main   the commits, for people: plain trees and blobs
//	refs/kern/meta    for each commit another one; its tree holds what a tree of
//	                  Git cannot: exact modes, times, and which names share a file
//
// The log decides which commit is the last. The refs follow it when the workspace
// is opened. A person may let Git repack the repository at any time: a pack that
// no ref reaches yet has a .keep file, and Refresh compares the known packs with
// the disk before each commit.
type History struct {
	Objects *Objects
	limit   Retention
	oldest  uint64 // number of the oldest commit; 0: not read yet
}

// Objects are the objects of the repository, by name.
type Objects struct {
	Dir   string
	mu    sync.Mutex
	packs []*Pack // newest last

	joining sync.Mutex // held while packs are joined
}

// Retention bounds the history. Zero means no bound. States from outside of
// transactions are never dropped, so MaxBytes may be impossible to meet. Then a
// commit is refused with the code Full before it publishes anything.
type Retention struct {
	MaxCommits int   // keep this many commits
	MaxBytes   int64 // of packs
}

// The origins of a commit.
const (
	Transaction = "transaction" // published by a Tx
	Outside     = "outside"     // somebody else changed the directory
	Restored    = "restore"     // an earlier state was restored
)

// A Note describes a commit. ID is the caller's name for the commit, by which the
// caller finds it after a crash. An ID must not be used twice.
type Note struct {
	ID      string
	PID     int64
	Call    uint64
	Tool    string
	Message string
}

// A Commit is one state of the workspace in its history.
type Commit struct {
	Hash   fsys.Hash // its name for Git
	Parent fsys.Hash // zero for the first
	Seq    uint64
	Kind   string
	Time   time.Time
	Digest fsys.Hash // as [Snapshot.Digest] gave it
	Note

	tree, meta fsys.Hash
}

const gitConfig = `[core]
	repositoryformatversion = 1
	filemode = true
	bare = true
[extensions]
	objectformat = sha256
[gc]
	auto = 0
`

// Open opens the repository in dir, or creates it.
func Open(dir string, limit Retention) (*History, error) {
	h := &History{Objects: &Objects{Dir: dir}, limit: limit}
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads", "refs/kern"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	// The files may hold settings of a person, so only a missing or empty one is written.
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": gitConfig} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(b) > 0 {
			continue
		}
		if err := fsys.Replace(filepath.Join(dir, name), []byte(text), 0o600, true); err != nil {
			return nil, err
		}
	}
	return h, h.Objects.load()
}

// PackDir is the directory of the packs.
func (o *Objects) PackDir() string { return filepath.Join(o.Dir, "objects", "pack") }

// load opens packs that are not open yet. o.mu is held, or o is new.
func (o *Objects) load() error {
	ents, err := os.ReadDir(o.PackDir())
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, p := range o.packs {
		have[p.Name] = true
	}
	for _, e := range ents {
		name, ok := strings.CutSuffix(e.Name(), ".pack")
		if !ok || have[name] {
			continue
		}
		p, err := openPack(o.PackDir(), name)
		if fsys.Is(err, fsys.Damaged) || errors.Is(err, fs.ErrNotExist) {
			continue // a crash tore it before a commit needed it; a missing object is an error when it is read
		}
		if err != nil {
			return err
		}
		o.packs = append(o.packs, p)
	}
	return nil
}

func (o *Objects) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.packs {
		p.f.Close()
	}
	o.packs = nil
}

func (o *Objects) has(id fsys.Hash) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range slices.Backward(o.packs) {
		if _, ok := p.find(id); ok {
			return true
		}
	}
	_, err := os.Stat(o.loose(id))
	return err == nil
}

func (o *Objects) loose(id fsys.Hash) string {
	s := id.String()
	return filepath.Join(o.Dir, "objects", s[:2], s[2:])
}

// open returns type, size and content of an object.
func (o *Objects) open(id fsys.Hash) (typ byte, size int64, r io.Reader, close func(), err error) {
	// A pack may vanish while it is read, because another process joined it. Its objects are then in a new pack.
	for again := range 2 {
		o.mu.Lock()
		if again == 1 { // another process may have joined packs
			if err := o.load(); err != nil {
				o.mu.Unlock()
				return 0, 0, nil, nil, err
			}
		}
		packs := slices.Clone(o.packs)
		o.mu.Unlock()
		for _, p := range slices.Backward(packs) {
			if i, ok := p.find(id); ok {
				typ, size, r, err := p.object(o, p.offs[i])
				if err != nil && errors.Is(err, os.ErrClosed) {
					continue
				}
				return typ, size, r, func() {}, err
			}
		}
	}
	// Kern writes only packs, but a person's Git may have unpacked objects.
	f, err := os.Open(o.loose(id))
	if err != nil {
		return 0, 0, nil, nil, fsys.Errorf(fsys.Missing, id.String(), "the history has no such object")
	}
	z, err := zlib.NewReader(f)
	if err != nil {
		f.Close()
		return 0, 0, nil, nil, err
	}
	br := bufio.NewReader(z)
	head, err := br.ReadString(0)
	name, num, _ := strings.Cut(strings.TrimSuffix(head, "\x00"), " ")
	size, err2 := strconv.ParseInt(num, 10, 64)
	if t := slices.Index(typNames[:], name); t > 0 && err == nil && err2 == nil {
		return byte(t), size, br, func() { f.Close() }, nil
	}
	f.Close()
	return 0, 0, nil, nil, fsys.Errorf(fsys.Damaged, id.String(), "the object does not read back")
}

// read returns a small object whole.
func (o *Objects) read(id fsys.Hash) (byte, []byte, error) {
	typ, size, r, done, err := o.open(id)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	b, err := io.ReadAll(r)
	// Trees and commits decide what is restored, so damage is found here and not later.
	if err == nil && int64(len(b)) != size || err == nil && objectID(typ, b) != id {
		err = fsys.Errorf(fsys.Damaged, id.String(), "the content of the object does not match its name")
	}
	return typ, b, err
}

// Adopt adds a pack that was written and synced.
func (o *Objects) Adopt(p *Pack) error {
	if err := p.writeIndex(o.PackDir(), false); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// Equal content gives an equal name, so the pack may be known already.
	if i := slices.IndexFunc(o.packs, func(q *Pack) bool { return q.Name == p.Name }); i >= 0 {
		o.packs = slices.Delete(o.packs, i, i+1)
	}
	o.packs = append(o.packs, p)
	return nil
}

// Forget removes a pack, such as that of a commit that was rolled back.
func (o *Objects) Forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.packs = slices.DeleteFunc(o.packs, func(p *Pack) bool { return p.Name == name })
	// The index goes first: an index without its pack would look like damage to Git.
	for _, ext := range []string{".idx", ".rev", ".bitmap", ".mtimes", ".pack", ".keep"} {
		os.Remove(filepath.Join(o.PackDir(), name+ext))
	}
}

// Refresh compares the known packs with the disk, and reports whether some are
// gone. Then objects may be gone, too. The runtime closes the files of such packs
// once no reader uses them.
func (o *Objects) Refresh() (gone bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d, err := os.Open(o.PackDir())
	if err != nil {
		return false, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return false, err
	}
	there := map[string]bool{}
	for _, n := range names {
		if name, ok := strings.CutSuffix(n, ".pack"); ok {
			there[name] = true
		}
	}
	before := len(o.packs)
	o.packs = slices.DeleteFunc(o.packs, func(p *Pack) bool { return !there[p.Name] })
	gone = len(o.packs) < before
	// No pack is new. This is the usual case, and it opens no file.
	if len(there) == len(o.packs) {
		return gone, nil
	}
	return gone, o.load()
}

// release removes our .keep files, so that Git may repack.
func (o *Objects) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.packs {
		if p.kept {
			os.Remove(filepath.Join(o.PackDir(), p.Name+".keep"))
			p.kept = false
		}
	}
}

func (o *Objects) bytes() (n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.packs {
		n += p.size
	}
	return n
}

// A Head names the last commit.
type Head struct {
	Seq    uint64    `json:"seq"` // number of commits
	Commit fsys.Hash `json:"commit,omitzero"`
	Side   fsys.Hash `json:"side,omitzero"` // its companion with modes and times
}

// encode writes c as a Git commit.
func (c *Commit) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", c.tree)
	if !c.Parent.IsZero() {
		fmt.Fprintf(&b, "parent %s\n", c.Parent)
	}
	author := "kern <>"
	if c.Kind == Outside {
		author = "outside <>"
	}
	fmt.Fprintf(&b, "author %s %d +0000\ncommitter kern <> %d +0000\n\n", author, c.Time.Unix(), c.Time.Unix())
	b.WriteString(c.Subject() + "\n\n")
	trailer := func(k string, v any) { fmt.Fprintf(&b, "Kern-%s: %v\n", k, v) }
	trailer("Kind", c.Kind)
	trailer("Seq", c.Seq)
	// IDs and tools come from callers. Quoted, they cannot end their line and forge another trailer.
	if c.ID != "" {
		trailer("Id", strconv.QuoteToASCII(c.ID))
	}
	if c.PID != 0 || c.Call != 0 {
		trailer("Pid", c.PID)
		trailer("Call", c.Call)
	}
	if c.Tool != "" {
		trailer("Tool", strconv.QuoteToASCII(c.Tool))
	}
	trailer("Time", c.Time.UnixNano())
	trailer("Digest", c.Digest)
	trailer("Meta", c.meta)
	return b.Bytes()
}

// Subject is the message of the commit, or a line that describes it.
func (c *Commit) Subject() string {
	if s := strings.TrimSpace(c.Message); s != "" {
		return strings.ReplaceAll(s, "\x00", " ")
	}
	switch {
	case c.Kind == Outside && c.Parent.IsZero():
		return "What was there"
	case c.Kind == Outside:
		return "Changed outside"
	case c.Tool != "":
		return fmt.Sprintf("%s: call %d of process %d", strings.Map(func(r rune) rune {
			if r < ' ' {
				return ' '
			}
			return r
		}, c.Tool), c.Call, c.PID)
	}
	return "Commit " + strconv.QuoteToASCII(c.ID)
}

// Commit reads one commit.
func (h *History) Commit(id fsys.Hash) (*Commit, error) {
	typ, b, err := h.Objects.read(id)
	if err != nil {
		return nil, err
	}
	if typ != typCommit {
		return nil, fsys.Errorf(fsys.Missing, id.String(), "expected a commit, found a %s", typNames[typ])
	}
	c := &Commit{Hash: id}
	head, body, _ := strings.Cut(string(b), "\n\n")
	for line := range strings.SplitSeq(head, "\n") {
		// Other header lines are skipped, because Git may add some, such as a signature.
		switch k, v, _ := strings.Cut(line, " "); k {
		case "tree":
			c.tree, err = fsys.ParseHash(v)
		case "parent":
			c.Parent, err = fsys.ParseHash(v)
		}
		if err != nil {
			return nil, err
		}
	}
	text, trailers := body, ""
	// The last match counts, because a message may contain the same text.
	if i := strings.LastIndex(body, "\n\nKern-Kind: "); i >= 0 {
		text, trailers = body[:i], body[i+2:]
	}
	c.Message = text
	for line := range strings.SplitSeq(strings.TrimSpace(trailers), "\n") {
		k, v, _ := strings.Cut(line, ": ")
		switch k {
		case "Kern-Kind":
			c.Kind = v
		case "Kern-Seq":
			c.Seq, err = strconv.ParseUint(v, 10, 64)
		// Quoted when written, so that no text of a caller could end its line.
		case "Kern-Id":
			c.ID, err = strconv.Unquote(v)
		case "Kern-Pid":
			c.PID, err = strconv.ParseInt(v, 10, 64)
		case "Kern-Call":
			c.Call, err = strconv.ParseUint(v, 10, 64)
		case "Kern-Tool":
			c.Tool, err = strconv.Unquote(v)
		case "Kern-Time":
			var n int64
			n, err = strconv.ParseInt(v, 10, 64)
			c.Time = time.Unix(0, n)
		case "Kern-Digest":
			c.Digest, err = fsys.ParseHash(v)
		case "Kern-Meta":
			c.meta, err = fsys.ParseHash(v)
		}
		if err != nil {
			return nil, fsys.Errorf(fsys.Damaged, id.String(), "the commit does not read back: %v", err)
		}
	}
	return c, nil
}

// Log yields id and the commits before it, newest first.
func (h *History) Log(id fsys.Hash) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		cut, err := h.cutCommits()
		for err == nil && !id.IsZero() {
			var c *Commit
			if c, err = h.Commit(id); err != nil {
				break
			}
			// The parent was dropped by the retention, so the history ends here.
			if cut[id] {
				c.Parent = fsys.Hash{}
			}
			if !yield(c, nil) {
				return
			}
			id = c.Parent
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// Blob opens the content of a file.
func (o *Objects) Blob(id fsys.Hash) (io.ReadCloser, error) {
	typ, _, r, done, err := o.open(id)
	if err != nil {
		return nil, err
	}
	if typ != typBlob {
		done()
		return nil, fsys.Errorf(fsys.Missing, id.String(), "expected the content of a file, found a %s", typNames[typ])
	}
	return blob{r, done}, nil
}

type blob struct {
	io.Reader
	done func()
}

func (b blob) Close() error { b.done(); return nil }
