package sqlite

import (
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// A removal has two steps. The first is a part of the transaction that stores the
// record of the removal: it deletes records and runs, and takes the processes out of
// the commit order, where their positions stay. It leaves the row pendingRow. The
// second is [store.Sweep]. It deletes blobs that no other record names, writes the
// file again without what was deleted, empties the log, and deletes the row. After a
// crash the next open sweeps.

// Rows of the table feed that are no spans, beside epochBlock and inUse.
const (
	pendingRow = -2 // a pending
	highestRow = -3 // the highest pid that was removed, because no pid is given out twice
)

// A pending is what a removal left to be swept. Its row has the position of the record
// of the removal and the total of the last sums of the removed processes. Behind them
// are the names of the blobs that only these processes may have named.
type pending struct {
	at    uint64
	gone  total
	blobs []abi.Hash
}

func (p *pending) bytes() []byte {
	b := binary.BigEndian.AppendUint64(nil, p.at)
	for _, n := range p.gone {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for i := range p.blobs {
		b = append(b, p.blobs[i][:]...)
	}
	return b
}

// readPending reads the row; nil when nothing is to be swept.
func readPending(each func(string, func([]driver.Value) error) error) (p *pending, err error) {
	err = each(fmt.Sprintf("SELECT id, body FROM feed WHERE id = %d", pendingRow), func(v []driver.Value) error {
		b, _ := v[1].([]byte)
		if p = new(pending); len(b) < 40 || (len(b)-40)%len(abi.Hash{}) != 0 {
			return damagedOrder(0, "the row of an unfinished removal cannot be read")
		}
		p.at, b = binary.BigEndian.Uint64(b), b[8:]
		for i := range p.gone {
			p.gone[i], b = binary.BigEndian.Uint64(b), b[8:]
		}
		for ; len(b) > 0; b = b[len(abi.Hash{}):] {
			p.blobs = append(p.blobs, abi.Hash(b))
		}
		return nil
	})
	return p, err
}

// A removal is what one batch removes.
type removal struct {
	pids map[abi.Pid]bool
	pending
}

// removalOf finds the processes that a batch removes, and the blobs that they name. It
// returns nil for a batch that removes nothing.
func removalOf(batch []abi.Record, records func(abi.Pid, uint64) iter.Seq2[*abi.Record, error]) (*removal, error) {
	var rm *removal
	named := map[abi.Hash]bool{}
	for i := range batch {
		if batch[i].Kind != abi.KindRemoved || batch[i].Removed == nil {
			continue
		}
		if rm == nil {
			rm = &removal{pids: map[abi.Pid]bool{}}
		}
		for _, pid := range batch[i].Removed.Pids {
			if pid == 0 {
				return nil, &journal.BadRecord{N: batch[i].N, Why: "process 0 has the settings and cannot be removed"}
			}
			rm.pids[pid] = true
			for r, err := range records(pid, 0) {
				if err != nil {
					return nil, err
				}
				eachBlob(r, func(h abi.Hash) { named[h] = true })
			}
		}
	}
	for h := range named {
		rm.blobs = append(rm.blobs, h)
	}
	return rm, nil
}

// eachBlob calls fn with every blob that a record names.
func eachBlob(r *abi.Record, fn func(abi.Hash)) {
	for d := range r.Payloads() {
		if !d.Hash.IsZero() {
			fn(d.Hash)
		}
	}
	if r.Intent != nil {
		for _, h := range r.Intent.Parts {
			fn(h)
		}
	}
}

// remove deletes the records of a removal, in the transaction that stores its record
// at a position.
func (w *writer) remove(rm *removal, at uint64) error {
	highest, err := w.number(fmt.Sprintf("SELECT coalesce((SELECT body FROM feed WHERE id = %d), 0)", highestRow))
	if err != nil {
		return err
	}
	for pid := range rm.pids {
		highest = max(highest, int64(pid))
		for _, table := range []string{"records", "runs"} {
			if err := w.run(fmt.Sprintf("DELETE FROM %s WHERE id BETWEEN %d AND %d", table, rowID(pid, 0), rowID(pid+1, 0)-1)); err != nil {
				return err
			}
		}
	}
	if err := w.leaveOrder(rm.pids); err != nil {
		return err
	}
	left, err := readPending(w.each)
	if err != nil {
		return err
	}
	if left != nil { // an earlier removal is not swept yet
		rm.blobs = append(rm.blobs, left.blobs...)
	}
	rm.at = at
	if err := w.run(fmt.Sprintf("INSERT OR REPLACE INTO feed(id, body) VALUES(%d, %d)", highestRow, highest)); err != nil {
		return err
	}
	return w.setBlock.exec(int64(pendingRow), rm.bytes())
}

// leaveOrder takes processes out of the commit order. A span of them becomes one of
// process 0 from record 0 on, which no record has, so every position stays.
func (w *writer) leaveOrder(pids map[abi.Pid]bool) error {
	var changed []block
	err := w.each("SELECT id, body FROM feed WHERE id > 0 ORDER BY id", func(v []driver.Value) error {
		b, err := readBlock(v)
		if err != nil {
			return err
		}
		out, hit := block{first: b.first}, false
		var gap span
		err = b.spans(func(_ uint64, sp span) {
			hit = hit || pids[sp.pid] && sp.n > 0
			if sp.n == 0 || pids[sp.pid] {
				gap.count += sp.count
				return
			}
			if gap.count > 0 {
				out.body = gap.append(out.body)
				gap.count = 0
			}
			out.body = sp.append(out.body)
		})
		if gap.count > 0 {
			out.body = gap.append(out.body)
		}
		if hit {
			changed = append(changed, out)
		}
		return err
	})
	for _, b := range changed {
		if err == nil {
			err = w.setBlock.exec(int64(b.first), b.body)
		}
	}
	return err
}

// A keeper collects the blobs that other records still name while a sweep reads them.
type keeper struct {
	mu    sync.Mutex
	loose map[abi.Hash]struct{} // not named by any record read so far
}

// keep takes the blobs of a record out of the loose ones. The nil keeper keeps nothing.
func (k *keeper) keep(r *abi.Record) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	eachBlob(r, func(h abi.Hash) { delete(k.loose, h) })
}

// follow keeps what a kept blob names. A blob of a conversation begins with the name
// of the one before it, and may have another name behind a zero byte.
func (k *keeper) follow(r *reader, h abi.Hash, seen map[abi.Hash]bool) error {
	for todo := []abi.Hash{h}; len(todo) > 0; {
		h, todo = todo[0], todo[1:]
		if seen[h] {
			continue
		}
		seen[h] = true
		b, err := findBlob(r.named, h)
		if err != nil && !errors.Is(err, journal.ErrBlob) {
			return err
		}
		for _, at := range []int{0, len(h) + 1} {
			if len(b) < at+len(h) {
				continue
			}
			next := abi.Hash(b[at:])
			k.mu.Lock()
			if _, ok := k.loose[next]; ok {
				delete(k.loose, next)
				todo = append(todo, next)
			}
			k.mu.Unlock()
		}
	}
	return nil
}

// Sweep implements [journal.Sweeper]. Appends wait while it writes the file again.
func (s *store) Sweep() error {
	s.mu.Lock()
	if s.w == nil {
		s.mu.Unlock()
		return journal.ErrClosed
	}
	p, err := readPending(s.w.each)
	if p == nil || err != nil || s.keeper != nil {
		s.mu.Unlock()
		return err
	}
	// From here on a batch keeps what it names.
	k := &keeper{loose: map[abi.Hash]struct{}{}}
	for _, h := range p.blobs {
		k.loose[h] = struct{}{}
	}
	s.keeper = k
	err = s.settle()
	s.mu.Unlock()
	if err == nil && len(k.loose) > 0 {
		err = k.read(&s.readers)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper = nil
	if err == nil && s.w == nil {
		err = journal.ErrClosed
	}
	if err != nil {
		return orFull(err)
	}
	// The file is written again because SQLite leaves deleted bytes in pages and in the
	// log. The mark follows each step, because each may begin the log again.
	for _, step := range []func() error{
		func() error { return s.w.transaction(func(w *writer) error { return deleteBlobs(w, k.loose) }) },
		func() error { return s.w.run("VACUUM") },
		func() error { return clearLog(s.w) },
		func() error { return s.w.run(fmt.Sprintf("DELETE FROM feed WHERE id = %d", pendingRow)) },
	} {
		if err := step(); err != nil {
			return orFull(err)
		}
		s.mark.write(s.end.Load(), s.total)
	}
	for h := range k.loose {
		delete(s.known, h)
	}
	return nil
}

// read reads all settled records, and keeps the blobs that they name.
func (k *keeper) read(p *readers) error {
	return p.with(func(r *reader) error {
		seen := map[abi.Hash]bool{}
		return p.scanAll(func(rec *abi.Record) (err error) {
			k.keep(rec)
			if rec.Intent != nil {
				for _, h := range rec.Intent.Parts {
					if err == nil {
						err = k.follow(r, h, seen)
					}
				}
			}
			return err
		})
	})
}

// clearLog runs emptyLog. It fails while another program reads an older state of the
// file.
func clearLog(w *writer) error {
	var busy int64
	err := w.rows(emptyLog, 3, func(v []driver.Value) error { busy, _ = v[0].(int64); return nil })
	if err == nil && busy != 0 {
		err = errors.New("another program reads journal.db, so the log cannot be emptied")
	}
	return err
}

func deleteBlobs(w *writer, blobs map[abi.Hash]struct{}) error {
	for h := range blobs {
		var ids []int64
		err := w.each(fmt.Sprintf("SELECT blob, body FROM names JOIN blobs ON blobs.id = names.blob WHERE key = %d", blobKey(h)), func(v []driver.Value) error {
			id, _ := v[0].(int64)
			b, _ := v[1].([]byte)
			if _, bad := unpack(b, h); bad == nil { // else another blob has the same key
				ids = append(ids, id)
			}
			return nil
		})
		for _, id := range ids {
			if err == nil {
				err = w.run(fmt.Sprintf("DELETE FROM names WHERE key = %d AND blob = %d; DELETE FROM blobs WHERE id = %d", blobKey(h), id, id))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
