// Package git is the history of a workspace, in Git's own object format, so
// that plain Git reads it. It writes packs and commits, reads also what Git
// itself has repacked, joins packs as they gather, and drops old commits but
// never what a person had.
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

// History is a bare Git repository (object format SHA-256). Each commit is
// one pack; small packs are joined as they gather. Two refs name it:
//
//	refs/heads/main   the commits, for people: plain trees and blobs
//	refs/kern/meta    beside each commit one whose tree holds what Git's trees
//	                  cannot: exact modes, times, and which names share a file
//
// The log, not the refs, says which commit is the last; the refs are put right
// when the workspace is opened. A person may let Git repack it at any time: a
// pack that no ref reaches yet has a .keep file beside it, and what is known of
// packs is compared with the disk before each commit.
type History struct {
	objects
	limit  Retention
	oldest uint64 // number of the first commit that is kept; 0 until it is asked for
}

// objects are what the repository holds, by name.
type objects struct {
	Dir   string
	mu    sync.Mutex
	packs []*Pack // newest last

	joining sync.Mutex // held while packs are joined
}

// Retention bounds the history. Zero means no bound. What a person had in the
// directory is never dropped, so MaxBytes may be impossible to keep: a commit
// is then refused with the code Full before it publishes anything.
type Retention struct {
	MaxCommits int   // keep this many commits
	MaxBytes   int64 // of packs
}

// How a commit came to be.
const (
	Transaction = "transaction" // published by a Tx
	Outside     = "outside"     // what somebody else did to the directory
	Restored    = "restore"     // an earlier state brought back
)

// A Note says what a commit is for. ID is the caller's own name for it, by
// which it can ask after a crash; it must not be used twice.
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

func Open(dir string, limit Retention) (*History, error) {
	h := &History{objects: objects{Dir: dir}, limit: limit}
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads", "refs/kern"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": gitConfig} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(b) > 0 {
			continue
		}
		if err := fsys.Replace(filepath.Join(dir, name), []byte(text), 0o600, true); err != nil {
			return nil, err
		}
	}
	return h, h.load()
}

func (h *objects) PackDir() string { return filepath.Join(h.Dir, "objects", "pack") }

// load opens the packs there are that are not open yet. h.mu is held or h is new.
func (h *objects) load() error {
	ents, err := os.ReadDir(h.PackDir())
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, p := range h.packs {
		have[p.Name] = true
	}
	for _, e := range ents {
		name, ok := strings.CutSuffix(e.Name(), ".pack")
		if !ok || have[name] {
			continue
		}
		p, err := openPack(h.PackDir(), name)
		if fsys.Is(err, fsys.Damaged) || errors.Is(err, fs.ErrNotExist) {
			continue // torn by a crash before anything needed it; what is needed and missing is told when it is read
		}
		if err != nil {
			return err
		}
		h.packs = append(h.packs, p)
	}
	return nil
}

func (h *objects) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.packs {
		p.f.Close()
	}
	h.packs = nil
}

func (h *objects) has(id fsys.Hash) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range slices.Backward(h.packs) {
		if _, ok := p.find(id); ok {
			return true
		}
	}
	_, err := os.Stat(h.loose(id))
	return err == nil
}

func (h *objects) loose(id fsys.Hash) string {
	s := id.String()
	return filepath.Join(h.Dir, "objects", s[:2], s[2:])
}

// open gives an object's type, size and bytes.
func (h *objects) open(id fsys.Hash) (typ byte, size int64, r io.Reader, close func(), err error) {
	for again := range 2 {
		h.mu.Lock()
		if again == 1 { // packs may have been joined by another process
			if err := h.load(); err != nil {
				h.mu.Unlock()
				return 0, 0, nil, nil, err
			}
		}
		packs := slices.Clone(h.packs)
		h.mu.Unlock()
		for _, p := range slices.Backward(packs) {
			if i, ok := p.find(id); ok {
				typ, size, r, err := p.object(h, p.offs[i])
				if err != nil && errors.Is(err, os.ErrClosed) {
					continue
				}
				return typ, size, r, func() {}, err
			}
		}
	}
	f, err := os.Open(h.loose(id))
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

// read gives all of a small object.
func (h *objects) read(id fsys.Hash) (byte, []byte, error) {
	typ, size, r, done, err := h.open(id)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	b, err := io.ReadAll(r)
	if err == nil && int64(len(b)) != size || err == nil && objectID(typ, b) != id {
		err = fsys.Errorf(fsys.Damaged, id.String(), "the object is not what its name says")
	}
	return typ, b, err
}

// Adopt makes a written and synced pack known.
func (h *objects) Adopt(p *Pack) error {
	if err := p.writeIndex(h.PackDir(), false); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.packs, func(q *Pack) bool { return q.Name == p.Name }); i >= 0 {
		h.packs = slices.Delete(h.packs, i, i+1)
	}
	h.packs = append(h.packs, p)
	return nil
}

// Forget removes a pack of a commit that was not to be.
func (h *objects) Forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.packs = slices.DeleteFunc(h.packs, func(p *Pack) bool { return p.Name == name })
	for _, ext := range []string{".idx", ".rev", ".bitmap", ".mtimes", ".pack", ".keep"} {
		os.Remove(filepath.Join(h.PackDir(), name+ext))
	}
}

// Refresh compares the packs that are known with those there are, and tells
// whether some are gone: then what was in them may be gone too. Their files
// are closed when nobody reads them any more.
func (h *objects) Refresh() (gone bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, err := os.Open(h.PackDir())
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
	before := len(h.packs)
	h.packs = slices.DeleteFunc(h.packs, func(p *Pack) bool { return !there[p.Name] })
	gone = len(h.packs) < before
	if len(there) == len(h.packs) {
		return gone, nil
	}
	return gone, h.load()
}

// release lets Git have the packs that were kept from it.
func (h *objects) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.packs {
		if p.kept {
			os.Remove(filepath.Join(h.PackDir(), p.Name+".keep"))
			p.kept = false
		}
	}
}

func (h *objects) bytes() (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.packs {
		n += p.size
	}
	return n
}

// A Head names the last commit: how many there are, and its two names.
type Head struct {
	Seq    uint64    `json:"seq"`
	Commit fsys.Hash `json:"commit,omitzero"`
	Side   fsys.Hash `json:"side,omitzero"` // in the second line of history
}

// encode writes c as a Git commit. A second line of the same history holds
// the metadata: side is the commit before it there.
func (c *Commit) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", c.tree)
	if !c.Parent.IsZero() {
		fmt.Fprintf(&b, "parent %s\n", c.Parent)
	}
	who := "kern <>"
	if c.Kind == Outside {
		who = "outside <>"
	}
	fmt.Fprintf(&b, "author %s %d +0000\ncommitter kern <> %d +0000\n\n", who, c.Time.Unix(), c.Time.Unix())
	b.WriteString(c.Subject() + "\n\n")
	trailer := func(k string, v any) { fmt.Fprintf(&b, "Kern-%s: %v\n", k, v) }
	trailer("Kind", c.Kind)
	trailer("Seq", c.Seq)
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

func (h *History) Commit(id fsys.Hash) (*Commit, error) {
	typ, b, err := h.read(id)
	if err != nil {
		return nil, err
	}
	if typ != typCommit {
		return nil, fsys.Errorf(fsys.Missing, id.String(), "expected a commit, found a %s", typNames[typ])
	}
	c := &Commit{Hash: id}
	head, body, _ := strings.Cut(string(b), "\n\n")
	for line := range strings.SplitSeq(head, "\n") {
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
	text, trail := body, ""
	if i := strings.LastIndex(body, "\n\nKern-Kind: "); i >= 0 {
		text, trail = body[:i], body[i+2:]
	}
	c.Message = text
	for line := range strings.SplitSeq(strings.TrimSpace(trail), "\n") {
		k, v, _ := strings.Cut(line, ": ")
		switch k {
		case "Kern-Kind":
			c.Kind = v
		case "Kern-Seq":
			c.Seq, err = strconv.ParseUint(v, 10, 64)
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

// Log gives the commits there are from id on, newest first.
func (h *History) Log(id fsys.Hash) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		cut, err := h.cut()
		for err == nil && !id.IsZero() {
			var c *Commit
			if c, err = h.Commit(id); err != nil {
				break
			}
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
func (h *objects) Blob(id fsys.Hash) (io.ReadCloser, error) {
	typ, _, r, done, err := h.open(id)
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
