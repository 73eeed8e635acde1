package git

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// maxPacks is how many packs remain without a join. A join takes the smallest
// packs, as long as the next one is not larger than all of them together. So each
// object is copied about log(n) times.
const maxPacks = 32

// Gather joins small packs if there are many. It may run beside commits.
func (o *Objects) Gather() error {
	if !o.joining.TryLock() {
		return nil // another goroutine does it
	}
	defer o.joining.Unlock()
	o.mu.Lock()
	// A pack with a .keep file may belong to a commit in doubt, which a rollback forgets by the name of its pack.
	packs := slices.DeleteFunc(slices.Clone(o.packs), func(p *Pack) bool { return p.kept })
	o.mu.Unlock()
	if len(packs) <= maxPacks {
		return nil
	}
	slices.SortFunc(packs, func(a, b *Pack) int { return int(min(max(a.size-b.size, -1), 1)) })
	sum, n := packs[0].size, 1
	for n < len(packs) && (n < maxPacks/2 || packs[n].size < 2*sum) {
		sum += packs[n].size
		n++
	}
	return o.join(packs[:n], nil)
}

// join writes one pack with the objects of packs and removes packs. If want is not
// nil, it keeps only those objects. It copies objects without decoding them.
func (o *Objects) join(packs []*Pack, want map[fsys.Hash]bool) error {
	f, err := os.CreateTemp(o.PackDir(), "tmp_pack_")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	all := &Pack{f: f}
	if err := o.fillJoined(all, packs, want); err != nil {
		f.Close()
		return err
	}
	// The old packs go only after the new one is on disk. A crash before that leaves both.
	err = errors.Join(f.Chmod(0o444), f.Sync())
	if err == nil {
		err = o.add(all)
	}
	if err != nil {
		f.Close()
		return err
	}
	if err := fsys.Sync(o.PackDir()); err != nil {
		return err // the old packs stay
	}
	for _, name := range []string{"multi-pack-index", "../info/commit-graph"} {
		os.Remove(filepath.Join(o.PackDir(), name)) // made by Git, which can make them again
	}
	for _, p := range packs {
		if p.Name != all.Name {
			o.Forget(p.Name)
		}
	}
	return nil
}

// add gives a joined pack its name and adds it in the same step, because a Refresh
// in between would read the whole pack.
func (o *Objects) add(all *Pack) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := os.Rename(all.f.Name(), filepath.Join(o.PackDir(), all.Name+".pack")); err != nil {
		return err
	}
	if err := all.writeIndex(o.PackDir(), false); err != nil {
		return err
	}
	// The joined pack is the oldest, so searches from the newest reach it last.
	o.packs = append([]*Pack{all}, slices.DeleteFunc(o.packs, func(p *Pack) bool { return p.Name == all.Name })...)
	return nil
}

func (o *Objects) fillJoined(all *Pack, packs []*Pack, want map[fsys.Hash]bool) error {
	type piece struct {
		p *Pack
		i int
	}
	var pieces []piece
	var objs []object
	seen := map[fsys.Hash]bool{}
	for _, p := range packs {
		for i := range p.n {
			// Packs may share objects, and Git refuses a pack that has one twice.
			if id := p.id(i); !seen[id] && (want == nil || want[id]) {
				seen[id] = true
				pieces = append(pieces, piece{p, i})
				objs = append(objs, object{id: id})
			}
		}
	}
	c := &counter{w: bufio.NewWriterSize(all.f, 64<<10), sum: sha256.New(), crc: crc32.NewIEEE()}
	if _, err := c.Write(binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(pieces)))); err != nil {
		return err
	}
	at, crc := make([]int64, len(pieces)), make([]uint32, len(pieces))
	ends := map[*Pack][]int64{}
	buf := make([]byte, 32<<10)
	for k, x := range pieces {
		if ends[x.p] == nil {
			// A pack does not store where an object ends. It ends where the next one begins, or at the sum.
			s := append(slices.Clone(x.p.offs), x.p.size-32)
			slices.Sort(s)
			ends[x.p] = s
		}
		from := x.p.offs[x.i]
		j, _ := slices.BinarySearch(ends[x.p], from)
		size := ends[x.p][j+1] - from
		at[k] = c.n
		c.crc.Reset()
		if err := o.copyObject(c, x.p, x.i, from, size, buf); err != nil {
			return err
		}
		crc[k] = c.crc.Sum32()
	}
	sum := c.sum.Sum(nil)
	if _, err := c.w.Write(sum); err != nil {
		return err
	}
	all.size, all.Name = c.n+int64(len(sum)), "pack-"+hex.EncodeToString(sum)
	all.setIndex(objs, at, crc)
	return c.w.Flush()
}

// copyObject copies object i of p, which is size bytes at from. A delta needs
// another object, so it is written as a whole object.
func (o *Objects) copyObject(c *counter, p *Pack, i int, from, size int64, buf []byte) error {
	var b [1]byte
	if _, err := p.f.ReadAt(b[:], from); err != nil {
		return err
	}
	// The base of a delta may be missing from the new pack, or stand at another distance.
	if b[0]>>4&7 >= typOfs {
		typ, data, err := o.read(p.id(i))
		if err != nil {
			return err
		}
		return writeObject(c, &object{id: p.id(i), typ: typ, data: data})
	}
	if _, err := io.CopyBuffer(c, io.NewSectionReader(p.f, from, size), buf); err != nil {
		return err
	}
	// Copying without decoding would carry a damaged object on unnoticed.
	if c.crc.Sum32() != p.crcs[i] {
		return fsys.Errorf(fsys.Damaged, p.f.Name(), "the object at byte %d does not match the sum in its index", from)
	}
	return nil
}

// Prune drops old commits until the history is within its limits, or returns an
// error if that is impossible. It reports whether it dropped any; then objects
// without a commit are gone.
func (h *History) Prune(head Head) (dropped bool, err error) {
	if h.limit.MaxBytes <= 0 && h.limit.MaxCommits <= 0 || head.Commit.IsZero() {
		return false, nil
	}
	if h.oldest == 0 {
		if h.oldest, err = h.oldestSeq(head.Commit); err != nil {
			return false, err
		}
	}
	count := int(head.Seq - h.oldest + 1)
	keep := count
	// Dropping copies all that is kept, so it waits until a quarter is over.
	if m := h.limit.MaxCommits; m > 0 && count > m+m/4 {
		keep = m
	}
	over := func() bool { return h.limit.MaxBytes > 0 && h.Objects.bytes() > h.limit.MaxBytes }
	if keep == count && over() {
		keep = max(1, count/2)
	}
	for keep < count || over() {
		if err := h.keepNewest(head, keep); err != nil {
			return true, err
		}
		// The sizes of commits differ, so the history is halved until it fits.
		if h.oldest = head.Seq - uint64(keep) + 1; !over() {
			return true, nil
		}
		if keep == 1 {
			return true, fsys.Errorf(fsys.Full, h.Objects.Dir, "expected at most %d bytes of history; %d hold the last state and the states from outside", h.limit.MaxBytes, h.Objects.bytes())
		}
		keep = max(1, keep/2)
	}
	return false, nil
}

// oldestSeq returns the number of the oldest commit before id.
func (h *History) oldestSeq(id fsys.Hash) (seq uint64, err error) {
	for c, err := range h.Log(id) {
		if err != nil {
			return 0, err
		}
		seq = c.Seq
	}
	return seq, nil
}

// keepNewest keeps the newest commits and every state from outside, which gets a
// ref of its own. The order is safe in a crash: first the refs and the list of cut
// commits, then a pack with everything that is kept, then the old packs go.
func (h *History) keepNewest(head Head, keep int) error {
	cut, err := h.cutCommits()
	if err != nil {
		return err
	}
	if cut == nil {
		cut = map[fsys.Hash]bool{}
	}
	want := map[fsys.Hash]bool{}
	for n, id, side := 1, head.Commit, head.Side; !id.IsZero(); n++ {
		c, err := h.Commit(id)
		if err != nil {
			return err
		}
		sc, err := h.Commit(side)
		if err != nil {
			return err
		}
		end := cut[id]
		// A state from outside may hold the only copy of a person's work, so it is never dropped.
		if n <= keep || c.Kind == Outside {
			want[id], want[side] = true, true
			for _, t := range []fsys.Hash{c.tree, c.meta} {
				if err := h.addReachable(t, want); err != nil {
					return err
				}
			}
		}
		// Its parent is dropped, so Git must be told that the history ends here.
		if n >= keep && want[id] {
			cut[id], cut[side] = true, true
		}
		// No kept commit leads to it any more. Without a ref of its own, Git would remove it.
		if n > keep && c.Kind == Outside {
			kept := strconv.FormatUint(c.Seq, 10)
			if err := errors.Join(h.setRef(refKept+kept, id), h.setRef(refKeptMeta+kept, side)); err != nil {
				return err
			}
		}
		if end {
			break
		}
		id, side = c.Parent, sc.Parent
	}
	if err := h.addKept(cut, want); err != nil {
		return err
	}
	var lines bytes.Buffer
	for id := range cut {
		if want[id] {
			lines.WriteString(id.String() + "\n")
		}
	}
	// The list is on disk before objects go, because a commit without its parent would look damaged.
	if err := fsys.Replace(filepath.Join(h.Objects.Dir, "shallow"), lines.Bytes(), 0o600, true); err != nil {
		return err
	}
	// Gather would join packs that are about to go.
	h.Objects.joining.Lock()
	defer h.Objects.joining.Unlock()
	h.Objects.mu.Lock()
	packs := slices.Clone(h.Objects.packs)
	h.Objects.mu.Unlock()
	return h.Objects.join(packs, want)
}

// addKept adds the states that an earlier call kept.
func (h *History) addKept(cut, want map[fsys.Hash]bool) error {
	for _, prefix := range []string{refKept, refKeptMeta} {
		ids, err := h.readRefs(prefix)
		if err != nil {
			return err
		}
		for _, id := range ids {
			c, err := h.Commit(id)
			if err != nil {
				return err
			}
			cut[id], want[id] = true, true
			if err := errors.Join(h.addReachable(c.tree, want), h.addReachable(c.meta, want)); err != nil {
				return err
			}
		}
	}
	return nil
}

// addReachable adds a tree and everything below it to want.
func (h *History) addReachable(id fsys.Hash, want map[fsys.Hash]bool) error {
	if want[id] {
		return nil
	}
	want[id] = true
	typ, b, err := h.Objects.read(id)
	if err != nil || typ != typTree {
		return err
	}
	for len(b) > 0 {
		sp, nul := bytes.IndexByte(b, ' '), bytes.IndexByte(b, 0)
		if sp < 0 || nul < sp || len(b) < nul+33 {
			return fsys.Errorf(fsys.Damaged, id.String(), "the tree is cut")
		}
		sub := fsys.Hash(b[nul+1:])
		// Only a tree leads on. A blob may be large and need not be read.
		if string(b[:sp]) == "40000" {
			if err := h.addReachable(sub, want); err != nil {
				return err
			}
		} else {
			want[sub] = true
		}
		b = b[nul+33:]
	}
	return nil
}

// Kept returns the states from outside that are older than the history.
func (h *History) Kept() ([]*Commit, error) {
	ids, err := h.readRefs(refKept)
	if err != nil {
		return nil, err
	}
	var out []*Commit
	for _, id := range ids {
		c, err := h.Commit(id)
		if err != nil {
			return nil, err
		}
		c.Parent = fsys.Hash{}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Commit) int { return int(b.Seq) - int(a.Seq) })
	return out, nil
}
