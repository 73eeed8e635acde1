package format

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/kern-run/kern/abi"
)

// A Sum identifies a record and every record of its process before it. The sum
// before the first record is zero.
type Sum [sha256.Size]byte

// An Entry is a record as a store keeps it. The values that people search for have
// columns of their own; the body has the rest.
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

// NewEntry returns the entry of r. It appends the body to buf.
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

// Record returns the record of the entry. The caller must not change e.Body later,
// because the payloads of the record are parts of it.
func (e *Entry) Record() (*abi.Record, error) {
	r := &abi.Record{Pid: e.Pid, N: e.N, Time: e.Time, Kind: e.Kind, Call: e.Call}
	// Such a body means something that this version would misread.
	if len(e.Body) > 0 && e.Body[0] == 0 {
		return nil, fmt.Errorf("its body is of a later version")
	}
	w := wire{b: e.Body, in: true}
	w.next(0)
	record(&w, r)
	// Fields of a later version are skipped, but must be whole.
	for w.field != 0 {
		w.skip()
	}
	if w.err != nil {
		return nil, fmt.Errorf("its body cannot be read: %w", w.err)
	}
	if r.Intent != nil {
		r.Intent.Row, r.Intent.Tool = e.Row, e.Tool
	} else if e.Row != "" || e.Tool != "" {
		// Row and tool belong to the intent. Without one, a column was changed outside of Kern.
		return nil, fmt.Errorf("it has a row and no intent")
	}
	return r, nil
}

// Sum returns the sum of the record, given the sum of the record before it.
func (e *Entry) Sum(prev Sum) Sum {
	var buf [512]byte
	b := append(buf[:0], prev[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Pid))
	b = binary.BigEndian.AppendUint64(b, e.N)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time))
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, e.Call)
	// The lengths keep row and tool apart: "a"+"bc" must not sum like "ab"+"c".
	b = append(binary.AppendUvarint(b, uint64(len(e.Row))), e.Row...)
	b = append(binary.AppendUvarint(b, uint64(len(e.Tool))), e.Tool...)
	b = append(b, e.Body...)
	return sha256.Sum256(b)
}

// Append appends the whole entry to b, its columns included.
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

// ReadEntries reads consecutive entries as [Entry.Append] wrote them. At an error it
// returns the entries before it too.
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
