package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Packs gather as commits are made. Each join takes the smallest ones, as long
// as the next is not larger than all of them together, so an object is copied
// about log(n) times in all and a few dozen packs remain.
const packsMost = 32

// gather joins small packs when there are many.
func (h *objects) gather() error {
	h.mu.Lock()
	packs := slices.Clone(h.packs)
	h.mu.Unlock()
	if len(packs) <= packsMost {
		return nil
	}
	slices.SortFunc(packs, func(a, b *pack) int { return int(min(max(a.size-b.size, -1), 1)) })
	sum, n := packs[0].size, 1
	for n < len(packs) && (n < packsMost/2 || packs[n].size < 2*sum) {
		sum += packs[n].size
		n++
	}
	return h.join(packs[:n], nil)
}

// join writes one pack with the objects of packs (those in want, when it is
// not nil) and removes packs. The objects are copied as they are.
func (h *objects) join(packs []*pack, want map[Hash]bool) error {
	f, err := os.CreateTemp(h.packDir(), "tmp_pack_")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	all := &pack{f: f}
	if err := h.fillJoined(all, packs, want); err != nil {
		f.Close()
		return err
	}
	final := filepath.Join(h.packDir(), all.name+".pack")
	if err := errors.Join(f.Chmod(0o444), f.Sync(), os.Rename(f.Name(), final), all.writeIndex(h.packDir(), true)); err != nil {
		f.Close()
		return err
	}
	h.mu.Lock()
	h.packs = append([]*pack{all}, h.packs...)
	h.mu.Unlock()
	for _, p := range packs {
		if p.name != all.name {
			h.forget(p.name)
		}
	}
	return nil
}

func (h *objects) fillJoined(all *pack, packs []*pack, want map[Hash]bool) error {
	type piece struct {
		p *pack
		i int
	}
	var pieces []piece
	var objs []object
	seen := map[Hash]bool{}
	for _, p := range packs {
		for i := range p.n {
			if id := p.id(i); !seen[id] && (want == nil || want[id]) {
				seen[id] = true
				pieces = append(pieces, piece{p, i})
				objs = append(objs, object{id: id})
			}
		}
	}
	sum := sha256.New()
	out := io.MultiWriter(all.f, sum)
	head := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(pieces)))
	if _, err := out.Write(head); err != nil {
		return err
	}
	at, crc := make([]int64, len(pieces)), make([]uint32, len(pieces))
	off := int64(len(head))
	ends := map[*pack][]int64{}
	for k, x := range pieces {
		if ends[x.p] == nil {
			s := append(slices.Clone(x.p.offs), x.p.size-32)
			slices.Sort(s)
			ends[x.p] = s
		}
		from := x.p.offs[x.i]
		j, _ := slices.BinarySearch(ends[x.p], from)
		size := ends[x.p][j+1] - from
		raw := io.NewSectionReader(x.p.f, from, size)
		if err := h.notDelta(x.p, raw); err != nil {
			return err
		}
		c := crc32.NewIEEE()
		if _, err := io.Copy(io.MultiWriter(out, c), raw); err != nil {
			return err
		}
		if crc[k] = c.Sum32(); crc[k] != x.p.crcs[x.i] {
			return errorf(Damaged, x.p.f.Name(), "the object at byte %d does not have the sum its index says", from)
		}
		at[k] = off
		off += size
	}
	s := sum.Sum(nil)
	if _, err := all.f.Write(s); err != nil {
		return err
	}
	all.size, all.name = off+int64(len(s)), "pack-"+hex.EncodeToString(s)
	all.setIndex(objs, at, crc)
	return nil
}

// notDelta refuses to copy what only makes sense beside another object: what
// Git itself has repacked is Git's to repack.
func (h *objects) notDelta(p *pack, raw *io.SectionReader) error {
	var b [1]byte
	if _, err := raw.ReadAt(b[:], 0); err != nil {
		return err
	}
	if b[0]>>4&7 >= typOfs {
		return errorf(Unsupported, p.f.Name(), "the history was repacked by Git; repack it with git gc")
	}
	return nil
}

// cut names the commits whose parents were dropped.
func (h *history) cut() (map[Hash]bool, error) {
	b, err := os.ReadFile(filepath.Join(h.dir, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out := map[Hash]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
		id, perr := ParseHash(line)
		if perr != nil {
			return nil, perr
		}
		out[id] = true
	}
	return out, err
}

// room drops old commits until the history is within its limits, or says that
// it cannot be.
func (h *history) room(head Hash) error {
	if h.limit.MaxBytes <= 0 && h.limit.MaxCommits <= 0 || head.IsZero() {
		return nil
	}
	count, err := h.count(head)
	if err != nil {
		return err
	}
	keep := count
	// Dropping costs by what is kept, so it waits until a quarter is over.
	if m := h.limit.MaxCommits; m > 0 && count > m+m/4 {
		keep = m
	}
	over := func() bool { return h.limit.MaxBytes > 0 && h.size() > h.limit.MaxBytes }
	if keep == count && over() {
		keep = max(1, count/2)
	}
	for keep < count || over() {
		if err := h.prune(head, keep); err != nil {
			return err
		}
		if !over() {
			return nil
		}
		if keep == 1 {
			return errorf(Full, h.dir, "expected at most %d bytes of history; %d hold the last state and what persons had before", h.limit.MaxBytes, h.size())
		}
		keep = max(1, keep/2)
	}
	return nil
}

func (h *history) count(id Hash) (n int, err error) {
	cut, err := h.cut()
	for err == nil && !id.IsZero() {
		var c *Commit
		if c, err = h.commit(id); err != nil {
			break
		}
		if n++; cut[id] {
			break
		}
		id = c.Parent
	}
	return n, err
}

// prune keeps the newest commits and, whatever their age, every state that came
// from outside; those get refs of their own. Order: refs and the list of cut
// commits first, then a pack with all that is kept, then the old packs go.
func (h *history) prune(head Hash, keep int) error {
	side, err := h.ref(refMeta)
	if err != nil {
		return err
	}
	cut, err := h.cut()
	if err != nil {
		return err
	}
	if cut == nil {
		cut = map[Hash]bool{}
	}
	want := map[Hash]bool{}
	for n, id := 1, head; !id.IsZero(); n++ {
		c, err := h.commit(id)
		if err != nil {
			return err
		}
		sc, err := h.commit(side)
		if err != nil {
			return err
		}
		end := cut[id]
		if n <= keep || c.Kind == Outside {
			want[id], want[side] = true, true
			for _, t := range []Hash{c.tree, c.meta} {
				if err := h.reach(t, want); err != nil {
					return err
				}
			}
		}
		if n >= keep && want[id] {
			cut[id], cut[side] = true, true
		}
		if n > keep && c.Kind == Outside {
			kept := strconv.FormatUint(c.Seq, 10)
			if err := errors.Join(h.setRef("refs/kern/kept/"+kept, id), h.setRef("refs/kern/kept-meta/"+kept, side)); err != nil {
				return err
			}
		}
		if end {
			break
		}
		id, side = c.Parent, sc.Parent
	}
	if err := h.keptBefore(cut, want); err != nil {
		return err
	}
	var lines bytes.Buffer
	for id := range cut {
		if want[id] {
			lines.WriteString(id.String() + "\n")
		}
	}
	if err := replaceFile(filepath.Join(h.dir, "shallow"), lines.Bytes(), 0o600, true); err != nil {
		return err
	}
	h.mu.Lock()
	packs := slices.Clone(h.packs)
	h.mu.Unlock()
	return h.join(packs, want)
}

// keptBefore adds what earlier prunings kept.
func (h *history) keptBefore(cut, want map[Hash]bool) error {
	for _, dir := range []string{"refs/kern/kept", "refs/kern/kept-meta"} {
		ents, err := os.ReadDir(filepath.Join(h.dir, filepath.FromSlash(dir)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range ents {
			id, err := h.ref(dir + "/" + e.Name())
			if err != nil {
				return err
			}
			c, err := h.commit(id)
			if err != nil {
				return err
			}
			cut[id], want[id] = true, true
			if err := errors.Join(h.reach(c.tree, want), h.reach(c.meta, want)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *history) ref(name string) (Hash, error) {
	b, err := os.ReadFile(filepath.Join(h.dir, filepath.FromSlash(name)))
	if err != nil {
		return Hash{}, err
	}
	return ParseHash(strings.TrimSpace(string(b)))
}

// reach adds a tree and all below it.
func (h *history) reach(id Hash, want map[Hash]bool) error {
	if want[id] {
		return nil
	}
	want[id] = true
	typ, b, err := h.read(id)
	if err != nil || typ != typTree {
		return err
	}
	for len(b) > 0 {
		sp, nul := bytes.IndexByte(b, ' '), bytes.IndexByte(b, 0)
		if sp < 0 || nul < sp || len(b) < nul+33 {
			return errorf(Damaged, id.String(), "the tree is cut")
		}
		sub := Hash(b[nul+1:])
		if string(b[:sp]) == "40000" {
			if err := h.reach(sub, want); err != nil {
				return err
			}
		} else {
			want[sub] = true
		}
		b = b[nul+33:]
	}
	return nil
}
