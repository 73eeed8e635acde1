package format

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/kern-run/kern/abi"
)

// A Sum stands for a record and for every record of its process before it. The
// zero Sum stands before the first record.
type Sum [sha256.Size]byte

// An Entry is a record as a store keeps it: what people look for in columns of
// its own, and the rest as a body.
type Entry struct {
	Pid  abi.Pid
	N    uint64
	Time int64
	Kind abi.Kind
	Call uint64
	Row  string
	Tool string
	Body []byte
}

// NewEntry writes r, its body at the end of buf.
func NewEntry(r *abi.Record, buf []byte) Entry {
	e := Entry{Pid: r.Pid, N: r.N, Time: r.Time, Kind: r.Kind, Call: r.Call}
	if r.Intent != nil {
		e.Row, e.Tool = r.Intent.Row, r.Intent.Tool
	}
	w := wire{b: buf}
	record(&w, r)
	e.Body = w.b[len(buf):]
	return e
}

// Record reads the record. Its payloads are parts of e.Body, which must not
// change any more.
func (e *Entry) Record() (*abi.Record, error) {
	r := &abi.Record{Pid: e.Pid, N: e.N, Time: e.Time, Kind: e.Kind, Call: e.Call}
	if len(e.Body) > 0 && e.Body[0] == 0 {
		return nil, fmt.Errorf("its body is of a later version")
	}
	w := wire{b: e.Body, in: true}
	w.next(0)
	record(&w, r)
	for w.field != 0 {
		w.skip()
	}
	if w.err != nil {
		return nil, fmt.Errorf("its body cannot be read: %w", w.err)
	}
	if r.Intent != nil {
		r.Intent.Row, r.Intent.Tool = e.Row, e.Tool
	} else if e.Row != "" || e.Tool != "" {
		return nil, fmt.Errorf("it has a row and no intent")
	}
	return r, nil
}

// Sum is the link of the chain at e, when prev is the link before it.
func (e *Entry) Sum(prev Sum) Sum {
	var buf [512]byte
	b := append(buf[:0], prev[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Pid))
	b = binary.BigEndian.AppendUint64(b, e.N)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time))
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, e.Call)
	b = append(binary.AppendUvarint(b, uint64(len(e.Row))), e.Row...)
	b = append(binary.AppendUvarint(b, uint64(len(e.Tool))), e.Tool...)
	b = append(b, e.Body...)
	return sha256.Sum256(b)
}

// Append writes a whole entry at the end of b, its columns too.
func (e *Entry) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(e.Pid))
	b = binary.AppendUvarint(b, e.N)
	b = binary.AppendVarint(b, e.Time)
	b = append(b, byte(e.Kind))
	b = binary.AppendUvarint(b, e.Call)
	b = append(binary.AppendUvarint(b, uint64(len(e.Row))), e.Row...)
	b = append(binary.AppendUvarint(b, uint64(len(e.Tool))), e.Tool...)
	return append(binary.AppendUvarint(b, uint64(len(e.Body))), e.Body...)
}

// ReadEntries reads entries that stand one after the other, up to the first
// that cannot be read.
func ReadEntries(b []byte) ([]Entry, error) {
	var list []Entry
	for w := (wire{b: b, in: true}); len(w.b) > 0; {
		e := Entry{Pid: abi.Pid(w.uvarint()), N: w.uvarint(), Time: w.varint()}
		if k := w.take(1); k != nil {
			e.Kind = abi.Kind(k[0])
		}
		e.Call = w.uvarint()
		e.Row, e.Tool, e.Body = string(w.bytes()), string(w.bytes()), w.bytes()
		if w.err != nil {
			return list, w.err
		}
		list = append(list, e)
	}
	return list, nil
}
