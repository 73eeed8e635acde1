package workspace

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// history is a bare Git repository (object format SHA-256). Each commit is
// one pack; small packs are joined as they gather. Two refs name it:
//
//	refs/heads/main   the commits, for people: plain trees and blobs
//	refs/kern/meta    beside each commit one whose tree holds what Git's trees
//	                  cannot: exact modes, times, and which names share a file
//
// The log, not the refs, says which commit is the last; the refs are put right
// when the workspace is opened.
type history struct {
	objects
	limit Retention
}

// objects are what the repository holds, by name.
type objects struct {
	dir   string
	mu    sync.Mutex
	packs []*pack // newest last
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
	Hash   Hash // its name for Git
	Parent Hash // zero for the first
	Seq    uint64
	Kind   string
	Time   time.Time
	Digest Hash // as [Snapshot.Digest] gave it
	Note

	tree, meta Hash
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

func openHistory(dir string, limit Retention) (*history, error) {
	h := &history{objects: objects{dir: dir}, limit: limit}
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads", "refs/kern"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": gitConfig} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(b) > 0 {
			continue
		}
		if err := replaceFile(filepath.Join(dir, name), []byte(text), 0o600, true); err != nil {
			return nil, err
		}
	}
	return h, h.load()
}

func (h *objects) packDir() string { return filepath.Join(h.dir, "objects", "pack") }

// load opens the packs there are that are not open yet. h.mu is held or h is new.
func (h *objects) load() error {
	ents, err := os.ReadDir(h.packDir())
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, p := range h.packs {
		have[p.name] = true
	}
	for _, e := range ents {
		name, ok := strings.CutSuffix(e.Name(), ".pack")
		if !ok || have[name] {
			continue
		}
		p, err := openPack(h.packDir(), name)
		if isCodeOf(err, Damaged) || errors.Is(err, fs.ErrNotExist) {
			continue // torn by a crash before anything needed it; what is needed and missing is told when it is read
		}
		if err != nil {
			return err
		}
		h.packs = append(h.packs, p)
	}
	return nil
}

func (h *objects) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.packs {
		p.f.Close()
	}
	h.packs = nil
}

func (h *objects) has(id Hash) bool {
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

func (h *objects) loose(id Hash) string {
	s := id.String()
	return filepath.Join(h.dir, "objects", s[:2], s[2:])
}

// open gives an object's type, size and bytes.
func (h *objects) open(id Hash) (typ byte, size int64, r io.Reader, close func(), err error) {
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
		return 0, 0, nil, nil, errorf(Missing, id.String(), "the history has no such object")
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
	return 0, 0, nil, nil, errorf(Damaged, id.String(), "the object does not read back")
}

// read gives all of a small object.
func (h *objects) read(id Hash) (byte, []byte, error) {
	typ, size, r, done, err := h.open(id)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	b, err := io.ReadAll(r)
	if err == nil && int64(len(b)) != size || err == nil && objectID(typ, b) != id {
		err = errorf(Damaged, id.String(), "the object is not what its name says")
	}
	return typ, b, err
}

// adopt makes a written and synced pack known.
func (h *objects) adopt(p *pack) error {
	if err := p.writeIndex(h.packDir(), false); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.packs, func(q *pack) bool { return q.name == p.name }); i >= 0 {
		h.packs[i].f.Close()
		h.packs = slices.Delete(h.packs, i, i+1)
	}
	h.packs = append(h.packs, p)
	return nil
}

// forget removes a pack of a commit that was not to be.
func (h *objects) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.packs = slices.DeleteFunc(h.packs, func(p *pack) bool {
		if p.name == name {
			p.f.Close()
		}
		return p.name == name
	})
	os.Remove(filepath.Join(h.packDir(), name+".idx"))
	os.Remove(filepath.Join(h.packDir(), name+".pack"))
}

func (h *objects) size() (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.packs {
		n += p.size
	}
	return n
}

// setRef points a ref at id. It is not synced: the log knows better.
func (h *history) setRef(ref string, id Hash) error {
	name := filepath.Join(h.dir, filepath.FromSlash(ref))
	want := []byte(id.String() + "\n")
	if b, err := os.ReadFile(name); err == nil && bytes.Equal(b, want) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return replaceFile(name, want, 0o600, false)
}

const (
	refMain = "refs/heads/main"
	refMeta = "refs/kern/meta"
)

// A Head names the last commit: how many there are, and its two names.
type Head struct {
	Seq    uint64 `json:"seq"`
	Commit Hash   `json:"commit,omitzero"`
	Side   Hash   `json:"side,omitzero"` // in the second line of history
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
	b.WriteString(c.subject() + "\n\n")
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

func (c *Commit) subject() string {
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

func (h *history) commit(id Hash) (*Commit, error) {
	typ, b, err := h.read(id)
	if err != nil {
		return nil, err
	}
	if typ != typCommit {
		return nil, errorf(Missing, id.String(), "expected a commit, found a %s", typNames[typ])
	}
	c := &Commit{Hash: id}
	head, body, _ := strings.Cut(string(b), "\n\n")
	for line := range strings.SplitSeq(head, "\n") {
		switch k, v, _ := strings.Cut(line, " "); k {
		case "tree":
			c.tree, err = ParseHash(v)
		case "parent":
			c.Parent, err = ParseHash(v)
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
			c.Digest, err = ParseHash(v)
		case "Kern-Meta":
			c.meta, err = ParseHash(v)
		}
		if err != nil {
			return nil, errorf(Damaged, id.String(), "the commit does not read back: %v", err)
		}
	}
	return c, nil
}
