package format

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/kern-run/kern/abi"
)

// The functions of this file are the format. Each function is a part of a record,
// and each of its lines is a field with its number. A number never changes and is
// never used again; a new field takes the next number, at the end.

// record lists the parts of a record. The columns are not in the body.
func record(w *wire, r *abi.Record) {
	part(w, 1, &r.Spawn, spawn)
	part(w, 2, &r.Intent, intent)
	part(w, 3, &r.Answer, answer)
	part(w, 4, &r.Note, note)
	part(w, 5, &r.Change, change)
	part(w, 6, &r.Exit, exit)
	part(w, 7, &r.Removed, removed)
	part(w, 8, &r.Settle, settled)
}

var removed = func(w *wire, r *abi.Removed) {
	str(w, 1, &r.By)
	lines(2, &r.Pids, w)
	lines(3, &r.Sums, w)
	lines(4, &r.Spent, w)
}

// lines writes or reads a list as JSON, for lists that are long, rarely written and
// never searched. An empty list is left out.
func lines[T any](f uint64, list *[]T, w *wire) {
	var d abi.Data
	if !w.in && len(*list) > 0 {
		b, err := json.Marshal(*list)
		if err != nil {
			w.fail(err)
			return
		}
		d = abi.Data{Bytes: b, Size: int64(len(b))}
	}
	data(w, f, &d)
	if w.in && len(d.Bytes) > 0 {
		if err := json.Unmarshal(d.Bytes, list); err != nil {
			w.fail(err)
		}
	}
}

func spawn(w *wire, s *abi.Spawn) {
	str(w, 1, &s.Name)
	num(w, 2, &s.Parent)
	num(w, 3, &s.ParentCall)
	str(w, 4, &s.Account)
	num(w, 5, &s.Depth)
	num(w, 6, &s.Priority)
	limits(w, 7, &s.Limits)
	texts(w, 8, &s.Rows)
	data(w, 9, &s.Program)
	group(w, 10, &s.Watchdog, watchdog)
	data(w, 11, &s.Task)
	num(w, 12, &s.TaskTokens)
	part(w, 13, &s.Fork, fork)
	str(w, 14, &s.Title)
}

func fork(w *wire, f *abi.Fork) {
	num(w, 1, &f.Pid)
	num(w, 2, &f.At)
	data(w, 3, &f.State)
}

func watchdog(w *wire, d *abi.Watchdog) {
	str(w, 1, &d.Profile)
	num(w, 2, &d.Repeat)
}

// intent leaves out Row and Tool, because they have columns.
func intent(w *wire, i *abi.Intent) {
	data(w, 1, &i.Args)
	key(w, 2, &i.Key)
	str(w, 3, &i.Effect)
	num(w, 4, &i.Within)
	str(w, 5, &i.For)
	count(w, 6, &i.Attempt)
	table(w, 7, i.Reserve[:])
	num(w, 8, &i.Granted)
	price(w, 9, &i.Price)
	data(w, 10, &i.Say)
	num(w, 11, &i.SayTokens)
	hashes(w, 12, &i.Parts)
	part(w, 13, &i.Lowered, ceiling)
	str(w, 14, &i.Model)
}

var ceiling = func(w *wire, c *abi.Ceiling) {
	str(w, 1, &c.Limit)
	num(w, 2, &c.Granted)
	num(w, 3, &c.Asked)
}

func price(w *wire, f uint64, p *abi.Price) {
	row := [...]int64{p.Input, p.Output, p.CacheRead, p.CacheWrite}
	table(w, f, row[:])
	// Writing must not change the record, because others may read it.
	if !w.in {
		return
	}
	*p = abi.Price{Input: row[0], Output: row[1], CacheRead: row[2], CacheWrite: row[3]}
}

func answer(w *wire, a *abi.Answer) {
	strOr(w, 1, &a.Outcome, abi.OK)
	data(w, 2, &a.Value)
	part(w, 3, &a.Err, failure)
	flag(w, 4, &a.Again)
	count(w, 5, &a.Attempt)
	table(w, 6, a.Usage[:])
	key(w, 7, &a.Result)
	key(w, 8, &a.Digest)
	part(w, 9, &a.Page, page)
	part(w, 10, &a.Warning, failure)
	num(w, 11, &a.First)
	num(w, 12, &a.Took)
	hash(w, 13, &a.Commit)
	flag(w, 14, &a.Rolled)
	part(w, 15, &a.Cut, ceiling)
	part(w, 16, &a.Claim, func(w *wire, c *abi.Claim) {
		num(w, 1, &c.Input)
		num(w, 2, &c.Output)
	})
	data(w, 17, &a.Whole)
}

// hash writes or reads a hash as a field of 32 bytes.
func hash(w *wire, f uint64, h *abi.Hash) {
	if !w.in && h.IsZero() || w.in && !w.have(f) {
		return
	}
	b := h[:]
	raw(w, f, &b)
	if w.in && len(b) != len(h) {
		w.fail(fmt.Errorf("it has a hash of %d bytes", len(b)))
		return
	}
	copy(h[:], b)
}

func page(w *wire, p *abi.Page) {
	str(w, 1, &p.Role)
	num(w, 2, &p.Tokens)
	str(w, 3, &p.ID)
	flag(w, 4, &p.Only)
}

func failure(w *wire, e *abi.Error) {
	str(w, 1, &e.Code)
	str(w, 2, &e.Message)
	str(w, 3, &e.Where)
	raw(w, 4, &e.Expected)
	str(w, 5, &e.Got)
	str(w, 6, &e.Hint)
}

func note(w *wire, n *abi.Note) {
	str(w, 1, &n.Signal)
	str(w, 2, &n.From)
	data(w, 3, &n.Body)
	flag(w, 4, &n.Yes)
	num(w, 5, &n.Ahead)
}

func change(w *wire, c *abi.Change) {
	str(w, 1, &c.Account)
	part(w, 2, &c.Limits, func(w *wire, l *abi.Limits) { limits(w, 1, l) })
	part(w, 3, &c.Priority, func(w *wire, p *int) { num(w, 1, p) })
	str(w, 4, &c.By)
	part(w, 5, &c.Period, func(w *wire, p *abi.Period) {
		str(w, 1, &p.Per)
		num(w, 2, &p.Since)
		num(w, 3, &p.Until)
		table(w, 4, p.Base[:])
	})
}

var settled = func(w *wire, s *abi.Settled) {
	table(w, 1, s.Released[:])
	table(w, 2, s.Spent[:])
	str(w, 3, &s.By)
	str(w, 4, &s.Model)
}

func exit(w *wire, e *abi.ExitInfo) {
	str(w, 1, &e.Exit)
	str(w, 2, &e.Reason)
	str(w, 3, &e.Code)
	data(w, 4, &e.Output)
	part(w, 5, &e.Err, failure)
}

// data writes or reads a payload. It is bytes if they have the whole size, a blob if
// it has only a hash and a size, and otherwise a group of all three.
func data(w *wire, f uint64, d *abi.Data) {
	if !w.in {
		putData(w, f, d)
		return
	}
	if !w.have(f) {
		return
	}
	switch w.typ {
	case typeBytes:
		d.Bytes = w.bytes()
		d.Size = int64(len(d.Bytes))
	case typeBlob:
		copy(d.Hash[:], w.take(len(d.Hash)))
		d.Size = int64(w.uvarint())
	default:
		group(w, f, d, wholeData)
		return
	}
	w.next(f)
}

func putData(w *wire, f uint64, d *abi.Data) {
	named := !d.Hash.IsZero()
	switch {
	case d.Bytes == nil && d.Size == 0 && !named:
	// The short forms hold only payloads that they give back exactly; all others take the long one.
	case d.Bytes != nil && d.Size == int64(len(d.Bytes)) && !named:
		raw(w, f, &d.Bytes)
	case d.Bytes == nil && named:
		w.head(f, typeBlob)
		w.b = append(w.b, d.Hash[:]...)
		w.b = binary.AppendUvarint(w.b, uint64(d.Size))
	default:
		group(w, f, d, wholeData)
	}
}

func wholeData(w *wire, d *abi.Data) {
	raw(w, 1, &d.Bytes)
	num(w, 2, &d.Size)
	h := d.Hash[:]
	if w.in || !d.Hash.IsZero() {
		raw(w, 3, &h)
	}
	if w.in && len(h) != len(d.Hash) {
		w.fail(fmt.Errorf("it has a hash of %d bytes", len(h)))
		return
	}
	copy(d.Hash[:], h)
}

// hashes writes or reads a list of hashes as one field, 32 bytes for each.
func hashes(w *wire, f uint64, list *[]abi.Hash) {
	var all []byte
	for i := range *list {
		all = append(all, (*list)[i][:]...)
	}
	raw(w, f, &all)
	if !w.in || all == nil {
		return
	}
	if len(all)%len(abi.Hash{}) != 0 {
		w.fail(fmt.Errorf("it has %d bytes of hashes", len(all)))
		return
	}
	for ; len(all) > 0; all = all[len(abi.Hash{}):] {
		*list = append(*list, abi.Hash(all[:len(abi.Hash{})]))
	}
}

// limits writes or reads limits as a mask. Unlike table it writes a zero, because a
// zero limit allows nothing and an unset limit allows everything.
func limits(w *wire, f uint64, l *abi.Limits) {
	if w.in {
		if w.have(f) && w.want(typeMask) {
			w.mask(int(abi.AllUnits), func(u int, n int64) { l.Set(abi.Unit(u), n) })
			w.next(f)
		}
		return
	}
	if l.IsZero() {
		return
	}
	var m uint64
	l.Each(func(u abi.Unit, _ int64) { m |= 1 << u })
	w.head(f, typeMask)
	w.b = binary.AppendUvarint(w.b, m)
	l.Each(func(_ abi.Unit, n int64) { w.b = binary.AppendVarint(w.b, n) })
}

// texts writes or reads a list of texts, numbered from 1. An empty list is not the
// same as nil.
func texts(w *wire, f uint64, list *[]string) {
	if !w.in {
		if *list == nil {
			return
		}
		w.head(f, typeGroup)
		for i, s := range *list {
			w.putText(uint64(i)+1, s)
		}
		w.b = append(w.b, 0)
		return
	}
	if !w.have(f) || !w.want(typeGroup) {
		return
	}
	w.enter()
	*list = []string{}
	for w.field == uint64(len(*list))+1 {
		n := w.field
		*list = append(*list, w.text())
		w.next(n)
	}
	// A gap in the numbers would shorten the list silently.
	if w.field != 0 {
		w.fail(fmt.Errorf("text %d of a list of %d is there", w.field, len(*list)))
	}
	w.leave(f)
}
