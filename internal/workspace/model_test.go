//go:build unix

package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// A model is a file tree in memory. Names that share a file share a node.
type model map[string]*mnode

type mnode struct {
	kind    Kind
	mode    fs.FileMode
	content string // or target
	origin  string // the name it had when the transaction began, until it is written
}

func (n *mnode) alike(o *mnode) bool {
	return n.kind == o.kind && n.mode == o.mode && n.content == o.content
}

func (m model) clone(share bool) model {
	out, seen := model{}, map[*mnode]*mnode{}
	for p, n := range m {
		if seen[n] == nil || !share {
			c := *n
			seen[n] = &c
		}
		out[p] = seen[n]
	}
	return out
}

// mark notes where each file is now.
func (m model) mark() {
	for _, p := range slices.Sorted(maps.Keys(m)) {
		if m[p].origin = ""; m[p].kind == File {
			m[p].origin = p
		}
	}
}

func (m model) isDir(p string) bool { return p == "." || m[p] != nil && m[p].kind == Dir }

// kids gives everything below p.
func (m model) kids(p string) (out []string) {
	for q := range m {
		if strings.HasPrefix(q, p+"/") {
			out = append(out, q)
		}
	}
	return out
}

func (m model) String() string {
	names := map[*mnode][]string{}
	for p, n := range m {
		names[n] = append(names[n], p)
	}
	var lines []string
	for p, n := range m {
		l := fmt.Sprintf("%s %c %o %q", p, n.kind, n.mode, n.content)
		if g := names[n]; len(g) > 1 {
			slices.Sort(g)
			l += fmt.Sprint(" = ", g)
		}
		lines = append(lines, l)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// read makes a model of a directory.
func read(t testing.TB, dir string) model {
	m, nodes := model{}, map[uint64]*mnode{}
	p, err := fsys.Open(dir)
	must(t, err)
	defer p.Close()
	must(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, name)
		if err != nil || rel == "." {
			return err
		}
		e, err := p.Lstat(rel)
		n := &mnode{kind: e.Kind, mode: e.Mode}
		switch e.Kind {
		case File:
			if o := nodes[e.Group]; e.Group != 0 && o != nil {
				n = o
			}
			nodes[e.Group] = n
			b, rerr := os.ReadFile(name)
			n.content, err = string(b), errors.Join(err, rerr)
		case Symlink:
			n.content, err = p.Readlink(rel)
		}
		m[rel] = n
		return err
	}))
	return m
}

// An act is one operation on a tree.
type act struct {
	op, a, b, text string
	mode           fs.FileMode
}

var parts = []string{"a", "b", "c", "d e", "ü"}

func (g *game) name() string {
	n := 1 + g.rnd.IntN(3)
	var out []string
	for range n {
		out = append(out, parts[g.rnd.IntN(len(parts))])
	}
	return path.Join(out...)
}

func (g *game) act(link bool) act {
	g.count++
	a := act{a: g.name(), b: g.name(), text: strconv.Itoa(g.count)}
	ops := []string{"write", "write", "write", "mkdir", "mkdir", "remove", "removeall", "rename", "rename", "symlink", "chmod"}
	if link {
		ops = append(ops, "link")
	}
	a.op = ops[g.rnd.IntN(len(ops))]
	a.mode = []fs.FileMode{0o600, 0o644, 0o755}[g.rnd.IntN(3)]
	if a.op == "mkdir" {
		a.mode = 0o755
	}
	return a
}

// apply does a in the model, or tells that it cannot be done. The rules are
// those of a file system.
func (m model) apply(a act) bool {
	n := m[a.a]
	free := n == nil && m.isDir(path.Dir(a.a))
	switch a.op {
	case "write":
		if n != nil && n.kind == File {
			n.content, n.origin = a.text, ""
			return true
		}
		if free {
			m[a.a] = &mnode{File, a.mode, a.text, ""}
		}
		return free
	case "mkdir":
		if free {
			m[a.a] = &mnode{kind: Dir, mode: a.mode}
		}
		return free
	case "symlink":
		if free {
			m[a.a] = &mnode{kind: Symlink, content: "no/" + a.text}
		}
		return free
	case "link":
		ok := n != nil && n.kind == File && m[a.b] == nil && m.isDir(path.Dir(a.b))
		if ok {
			m[a.b] = n
		}
		return ok
	case "remove":
		ok := n != nil && len(m.kids(a.a)) == 0
		if ok {
			delete(m, a.a)
		}
		return ok
	case "removeall":
		for _, k := range append(m.kids(a.a), a.a) {
			delete(m, k)
		}
		return true
	case "chmod":
		ok := n != nil && n.kind != Symlink
		if ok {
			n.mode = a.mode
			if n.kind == Dir {
				n.mode |= 0o700
			}
		}
		return ok
	}
	return m.rename(a, n)
}

func (m model) rename(a act, n *mnode) bool {
	to := m[a.b]
	switch {
	case n == nil, !m.isDir(path.Dir(a.b)), strings.HasPrefix(a.b, a.a+"/"), strings.HasPrefix(a.a, a.b+"/"):
		return false
	case a.a == a.b || to == n:
		return true
	case to != nil && (to.kind == Dir) != (n.kind == Dir), to != nil && len(m.kids(a.b)) > 0:
		return false
	}
	kids := m.kids(a.a)
	delete(m, a.a)
	m[a.b] = n
	for _, k := range kids {
		m[a.b+strings.TrimPrefix(k, a.a)] = m[k]
		delete(m, k)
	}
	return true
}

func (a act) do(f files, m model) error {
	switch a.op {
	case "write":
		return f.WriteFile(a.a, []byte(a.text), a.mode)
	case "mkdir":
		return f.Mkdir(a.a, a.mode)
	case "symlink":
		return f.Symlink("no/"+a.text, a.a)
	case "link":
		return f.Link(a.a, a.b)
	case "remove":
		return f.Remove(a.a)
	case "removeall":
		return f.RemoveAll(a.a)
	case "chmod":
		if n := m[a.a]; n != nil && n.kind == Dir {
			return f.Chmod(a.a, a.mode|0o700)
		}
		return f.Chmod(a.a, a.mode)
	}
	return f.Rename(a.a, a.b)
}

// A game is a workspace, its model, and the transactions that are open.
type game struct {
	t          *testing.T
	rnd        *rand.Rand
	dir, store string
	w          *Workspace
	now        model
	open       []*player
	count      int
	states     map[Hash]model
	log        []string
	stats      map[string]int
}

type player struct {
	tx         *Tx
	view       View
	base, mine model
}

func (g *game) say(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf(format, args...))
	if len(g.log) > 60 {
		g.log = g.log[1:]
	}
}

func (g *game) fail(format string, args ...any) {
	g.t.Helper()
	g.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(g.log, "\n"))
}

func (g *game) start() {
	w, err := open(g.dir, Config{Store: g.store, Verify: 50})
	must(g.t, err)
	w.committer.publisher.Link = g.rnd.IntN(2) == 0
	must(g.t, w.start(context.Background()))
	g.w = w
}

func (g *game) begin() {
	v := []View{Layered, Layered, Layered, Copied}[g.rnd.IntN(4)]
	get(g.w.Snapshot(context.Background()))(g.t) // what changed before is no conflict; see TestChangedBeforeBegin
	tx, err := g.w.Begin(context.Background(), Options{View: v})
	must(g.t, err)
	p := &player{tx: tx, view: v, base: g.now.clone(true), mine: g.now.clone(true)}
	if l := tx.Layer(); l != nil { // what it is compared with is what it first saw
		lookAll(g.t, l, ".")
	}
	p.mine.mark()
	g.open = append(g.open, p)
	g.say("begin %s %s", tx.name[len(tx.name)-4:], v)
}

// lookAll makes a Layer read every directory.
func lookAll(t testing.TB, l *Layer, dir string) {
	for _, name := range get(l.ReadDir(dir))(t) {
		if at := path.Join(dir, name); get(l.Lstat(at))(t).Kind == Dir {
			lookAll(t, l, at)
		}
	}
}

// step makes one random move and checks that directory and model agree.
func (g *game) step() {
	switch k := g.rnd.IntN(100); {
	case len(g.open) == 0 || k < 4 && len(g.open) < 4:
		g.begin()
	case k < 70:
		g.move(g.open[g.rnd.IntN(len(g.open))])
	case k < 80:
		a := g.act(true)
		g.say("outside %+v", a)
		if ok, err := g.now.apply(a), a.do(native(g.dir), g.now); ok != (err == nil) {
			g.fail("outside: model says %t, system says %v", ok, err)
		}
	case k < 90:
		g.commit(g.take(), -1)
	case k < 93:
		p := g.take()
		g.say("rollback %s", p.tx.name[len(p.tx.name)-4:])
		must(g.t, p.tx.Rollback())
	case k < 95:
		g.commit(g.take(), g.rnd.IntN(20))
	case k < 97:
		g.overlay()
	case k < 98:
		g.restore()
	default:
		g.reopen()
	}
	if got, want := read(g.t, g.dir).String(), g.now.String(); got != want {
		g.fail("directory and model differ:\n%s", unlike(want, got))
	}
}

func (g *game) take() *player {
	i := g.rnd.IntN(len(g.open))
	p := g.open[i]
	g.open = slices.Delete(g.open, i, i+1)
	return p
}

func (g *game) move(p *player) {
	a := g.act(p.view != Overlay)
	g.say("in %s %+v", p.tx.name[len(p.tx.name)-4:], a)
	was := p.mine.clone(true)
	ok, err := p.mine.apply(a), a.do(filesOf(p.tx), was)
	if isCode(err, Conflict) && p.view == Layered && p.base.String() != g.now.String() {
		g.open = slices.DeleteFunc(g.open, func(q *player) bool { return p == q })
		must(g.t, p.tx.Rollback())
		g.stats["unreadable"]++
		return
	}
	if ok != (err == nil) {
		g.fail("model says %t, view says %v", ok, err)
	}
}

// outcome says what committing p must lead to: the tree, or the conflict.
func (g *game) outcome(p *player) (model, bool) {
	next := g.now.clone(true)
	same := func(a, b *mnode) bool { return a == nil && b == nil || a != nil && b != nil && a.alike(b) }
	var changed []string
	paths := slices.Collect(maps.Keys(p.base))
	for q := range p.mine {
		if p.base[q] == nil {
			paths = append(paths, q)
		}
	}
	for _, q := range paths {
		if !same(p.base[q], p.mine[q]) || g.regrouped(p, q) {
			changed = append(changed, q)
		}
	}
	slices.SortFunc(changed, fsys.Compare)
	for _, q := range changed {
		was, mine, now := p.base[q], p.mine[q], g.now[q]
		if mine != nil && mine.origin != "" && mine.origin != q {
			o := mine.origin
			if (p.view == Layered || p.view == Copied && p.mine[o] == mine) && !same(p.base[o], g.now[o]) {
				return nil, true // what it is to share is not there any more
			}
		}
		switch {
		case mine == nil && now == nil:
		case mine != nil && mine.kind == Dir && now != nil && now.kind == Dir:
		case !same(was, now):
			return nil, true
		}
		if was != nil && was.kind == Dir && (mine == nil || mine.kind != Dir) { // the whole tree goes
			for _, k := range g.now.kids(q) {
				if !same(p.base[k], g.now[k]) {
					return nil, true
				}
			}
		}
		if d := path.Dir(q); d != "." && mine != nil && !slices.Contains(changed, d) && (g.now[d] == nil || g.now[d].kind != Dir) {
			return nil, true // the directory it is to go into is gone
		}
	}
	g.share(p, changed, next)
	return next, false
}

// regrouped tells that q shares its file with other names than before.
func (g *game) regrouped(p *player, q string) bool {
	if p.mine[q] == nil || p.mine[q].kind != File || p.base[q] == nil {
		return false
	}
	for r, n := range p.mine {
		if n == p.mine[q] && r != q && p.base[r] != nil && p.base[r] != p.base[q] {
			return true
		}
	}
	return false
}

// share puts the changed paths into next. Which names share a file follows
// from the transaction for the changed, and from the directory for the rest.
func (g *game) share(p *player, changed []string, next model) {
	for _, q := range changed {
		if p.mine[q] == nil || next[q] != nil && (next[q].kind == Dir) != (p.mine[q].kind == Dir) {
			for _, k := range append(next.kids(q), q) {
				delete(next, k)
			}
		}
	}
	made := map[*mnode]*mnode{}
	for q, n := range p.mine {
		if n.kind == File && !slices.Contains(changed, q) && next[q] != nil {
			made[n] = next[q]
		}
	}
	for _, q := range changed {
		n := p.mine[q]
		if n == nil {
			continue
		}
		if n.kind == Dir && next[q] != nil {
			if p.base[q] == nil || p.base[q].mode != n.mode {
				next[q].mode = n.mode
			}
			continue
		}
		if made[n] == nil || p.view == Overlay {
			c := *n
			made[n] = &c
		}
		next[q] = made[n]
	}
}

// commit commits p, or dies at a step of it.
func (g *game) commit(p *player, die int) {
	want, clash := g.outcome(p)
	g.say("commit %s dying at %d: conflict %t", p.tx.name[len(p.tx.name)-4:], die, clash)
	looked := g.rnd.IntN(2) == 0
	if looked { // so the commit records all of the directory
		get(g.w.Snapshot(context.Background()))(g.t)
	}
	journal := false
	c, died, err := g.try(p, die, &journal)
	if died {
		g.open = append(g.open, p) // its process dies with it
		g.stats["crash"]++
		if g.recover(journal) {
			g.now = want
		}
		return
	}
	if clash != isCode(err, Conflict) {
		g.fail("model says conflict %t, workspace says %v\nbase:\n%s\nmine:\n%s\nnow:\n%s", clash, err, p.base, p.mine, g.now)
	}
	if clash {
		g.stats["conflict"]++
		must(g.t, p.tx.Rollback())
		return
	}
	must(g.t, err)
	g.stats["commit "+string(p.view)]++
	g.now = want
	if looked {
		g.states[c.Hash] = want.clone(true)
	}
}

var errDied = errors.New("died")

// try publishes and seals, or panics out of a step, as a crash would.
func (g *game) try(p *player, die int, journal *bool) (c *Commit, died bool, err error) {
	n := 0
	g.w.committer.publisher.Step = func(point string) {
		if point == "log first" {
			return // in a goroutine of its own
		}
		if n == die {
			panic(errDied)
		}
		n++
	}
	defer func() {
		g.w.committer.publisher.Step = func(string) {}
		if r := recover(); r == errDied {
			died = true
		} else if r != nil {
			panic(r)
		}
	}()
	g.count++
	if c, err = p.tx.Publish(context.Background(), Note{ID: strconv.Itoa(g.count)}); err == nil {
		*journal = true
		err = p.tx.Seal()
	}
	return c, false, err
}

// recover takes the machine down as kill -9 would, and brings it up again. It
// tells whether the commit that died stands.
func (g *game) recover(journal bool) bool {
	w := g.w
	w.scratch.background.Wait()
	for _, p := range g.open {
		abandon(p.tx)
	}
	g.open = nil
	w.lock.close()
	w.repo.log.Close()
	w.repo.hist.Objects.Close()
	w.index.place.Close()
	w.scratch.place.Close()
	ents, err := os.ReadDir(filepath.Join(g.store, "scratch"))
	must(g.t, err)
	for _, e := range ents { // the dying transaction's lock goes with its process
		os.Remove(filepath.Join(g.store, "scratch", e.Name(), "lock"))
		must(g.t, os.WriteFile(filepath.Join(g.store, "scratch", e.Name(), "lock"), nil, 0o600))
	}
	g.start()
	if note, ok := g.w.Pending(); ok {
		v := Undo
		if journal {
			v = Finish
		}
		rescued, err := g.w.Resolve(context.Background(), note.ID, v)
		if err != nil || len(rescued) > 0 {
			g.fail("resolve: %v %v", rescued, err)
		}
	}
	return journal
}

func abandon(tx *Tx) {
	tx.lock.Close()
	tx.stage.slots.Close()
}

// overlay runs a whole transaction on an overlay, under which nothing may
// change meanwhile.
func (g *game) overlay() {
	if !slices.Contains(views(), Overlay) {
		return
	}
	get(g.w.Snapshot(context.Background()))(g.t)
	tx, err := g.w.Begin(context.Background(), Options{View: Overlay})
	must(g.t, err)
	g.say("begin %s overlay", tx.name[len(tx.name)-4:])
	p := &player{tx: tx, view: Overlay, base: g.now.clone(false), mine: g.now.clone(false)}
	p.mine.mark()
	for range 1 + g.rnd.IntN(8) {
		g.move(p)
	}
	g.commit(p, -1)
}

func (g *game) restore() {
	if len(g.states) == 0 {
		return
	}
	hashes := slices.SortedFunc(maps.Keys(g.states), func(a, b Hash) int { return strings.Compare(a.String(), b.String()) })
	h := hashes[g.rnd.IntN(len(hashes))]
	g.say("restore %s", h)
	_, err := g.w.Restore(context.Background(), h, Note{})
	must(g.t, err)
	g.stats["restore"]++
	got := read(g.t, g.dir)
	if unshared(got) != unshared(g.states[h]) {
		g.fail("not restored:\n%s", unlike(g.states[h].String(), got.String()))
	}
	g.now = got
}

func unshared(m model) string { return m.clone(false).String() }

func (g *game) reopen() {
	for _, p := range g.open {
		must(g.t, p.tx.Rollback())
	}
	g.open = nil
	g.say("reopen")
	must(g.t, g.w.Close())
	g.start()
}

// TestModel plays random operations, concurrent transactions, changes from
// outside, crashes and restores against the model.
func TestModel(t *testing.T) {
	steps, games := 1500, 2
	if soak {
		steps, games = 10_000, 12
	} else if racing {
		steps = 500
	}
	first := uint64(1)
	if s := os.Getenv("KERN_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		first = n
	}
	for seed := first; seed < first+uint64(games); seed++ {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			top := memory(t)
			g := &game{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), dir: filepath.Join(top, "work"), store: filepath.Join(top, "store"),
				now: model{}, states: map[Hash]model{}, stats: map[string]int{}}
			must(t, os.Mkdir(g.dir, 0o755))
			g.start()
			for range steps {
				g.step()
			}
			g.reopen()
			asGit(t, g.w, "fsck", "--strict")
			s := get(g.w.Verify(context.Background()))(t)
			n := 0
			for p := range s.All() {
				if n++; g.now[p] == nil {
					t.Errorf("the snapshot has %s", p)
				}
			}
			if n != len(g.now) {
				t.Errorf("the snapshot has %d names, the directory %d", n, len(g.now))
			}
			must(t, g.w.Close())
			t.Logf("%d steps: %v", steps, g.stats)
		})
	}
}
