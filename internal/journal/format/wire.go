package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/kern-run/kern/abi"
)

// The types of a field on the wire. The type alone says where the field ends, so
// that a reader can skip a field it does not know.
const (
	typeUint  = 0 // a uvarint
	typeInt   = 1 // a uvarint in zigzag, for numbers below zero
	typeBytes = 2 // a length and that many bytes
	typeGroup = 3 // fields, up to a zero byte
	typeBlob  = 4 // the 32 bytes of a hash and the size of the blob
	typeKey   = 5 // 16 bytes
	typeMask  = 6 // a uvarint, and for each bit that is set in it, from the lowest, a uvarint in zigzag
)

const typeBits = 3

// maxDepth bounds the depth of groups in groups. Records have three levels.
const maxDepth = 8

// maxFields bounds the fields of one group.
const maxFields = 1 << 20

var (
	errShort = errors.New("it ends too early")
	errOrder = errors.New("its fields are out of order")
)

// A wire writes or reads a body. Each part of a record has one function that names
// its fields in ascending order. The same function writes and reads, so that the two
// cannot disagree.
//
// While reading, [wire.field] is the next field. A field that the function names and
// that is not next is unset. A next field that the function does not name comes from
// a later version, and is skipped.
type wire struct {
	b     []byte // written so far, or not read yet
	in    bool   // reading
	field uint64 // reading: the field ahead; 0 at the end of the group
	typ   uint8  // reading: the type of that field
	depth int
	err   error
}

func (w *wire) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	// Reading goes on without effect, so that no caller must check each field.
	w.b, w.field = nil, 0
}

// head writes the head of a field: its number and type.
func (w *wire) head(f uint64, typ uint8) {
	w.b = binary.AppendUvarint(w.b, f<<typeBits|uint64(typ))
}

// next reads the head of the next field of this group.
func (w *wire) next(last uint64) {
	if len(w.b) == 0 {
		w.field = 0
		if w.depth > 0 {
			w.fail(errShort)
		}
		return
	}
	h := w.uvarint()
	w.field, w.typ = h>>typeBits, uint8(h&(1<<typeBits-1))
	switch {
	case h == 0 && w.depth > 0, w.err != nil:
	case w.field == 0 || w.field > maxFields:
		w.fail(fmt.Errorf("it has a field number %d", w.field))
	// Ascending order makes a record have one body, and its sum one value.
	case w.field <= last:
		w.fail(errOrder)
	}
}

// have skips to field f, and reports whether the field exists. A caller that reads
// the value of the field calls next afterwards.
func (w *wire) have(f uint64) bool {
	for w.field != 0 && w.field < f {
		w.skip()
	}
	return w.field == f
}

// skip skips the field ahead.
func (w *wire) skip() {
	f := w.field
	switch w.typ {
	case typeUint, typeInt:
		w.uvarint()
	case typeBytes:
		w.bytes()
	case typeGroup:
		// Entering and leaving checks the fields inside, so damage is found there too.
		w.enter()
		w.leave(f)
		return
	case typeBlob:
		w.take(len(abi.Hash{}))
		w.uvarint()
	case typeKey:
		w.take(len(abi.Key{}))
	case typeMask:
		for m := w.uvarint(); m != 0; m &= m - 1 {
			w.uvarint()
		}
	default:
		w.fail(fmt.Errorf("field %d has the unknown type %d", f, w.typ))
	}
	w.next(f)
}

// enter begins to read a group.
func (w *wire) enter() {
	if w.depth++; w.depth > maxDepth {
		w.fail(errors.New("its groups stand too deep"))
		return
	}
	w.next(0)
}

// leave skips the rest of a group. The group was field f of the group around it.
func (w *wire) leave(f uint64) {
	for w.field != 0 {
		w.skip()
	}
	if w.err != nil {
		return
	}
	w.depth--
	w.next(f)
}

func (w *wire) uvarint() uint64 {
	// Nearly every number and every head fits into one byte.
	if len(w.b) > 0 && w.b[0] < 0x80 {
		x := uint64(w.b[0])
		w.b = w.b[1:]
		return x
	}
	x, n := binary.Uvarint(w.b)
	if n <= 0 {
		w.fail(errShort)
		return 0
	}
	w.b = w.b[n:]
	return x
}

// take returns the next n bytes. The caller must not change them, because they are
// part of the body.
func (w *wire) take(n int) []byte {
	if n > len(w.b) {
		w.fail(errShort)
		return nil
	}
	// The cap keeps an append by the caller from writing into the next field.
	b := w.b[:n:n]
	w.b = w.b[n:]
	return b
}

func (w *wire) bytes() []byte {
	n := w.uvarint()
	// Compared before the conversion, because a huge length would become negative.
	if n > uint64(len(w.b)) {
		w.fail(errShort)
		return nil
	}
	return w.take(int(n))
}

// want fails unless the field ahead has type typ.
func (w *wire) want(typ uint8) bool {
	if w.typ != typ {
		w.fail(fmt.Errorf("field %d has type %d, expected %d", w.field, w.typ, typ))
	}
	return w.err == nil
}

// num writes or reads a number. Zero is left out.
func num[T ~int | ~int64 | ~uint64](w *wire, f uint64, p *T) {
	switch {
	case w.in:
		if w.have(f) {
			*p = T(w.number())
			w.next(f)
		}
	case *p != 0:
		w.putNumber(f, int64(*p), *p > 0)
	}
}

// putNumber writes n as a uint if plain is set, else in zigzag. The caller computes
// plain before it converts to int64, because a large uint64 becomes negative.
func (w *wire) putNumber(f uint64, n int64, plain bool) {
	// Most numbers are positive, and zigzag would need a bit more for each.
	if plain || n == 0 {
		w.head(f, typeUint)
		w.b = binary.AppendUvarint(w.b, uint64(n))
		return
	}
	w.head(f, typeInt)
	w.b = binary.AppendVarint(w.b, n)
}

func (w *wire) number() int64 {
	switch w.typ {
	case typeUint:
		return int64(w.uvarint())
	case typeInt:
		return w.varint()
	}
	w.want(typeUint)
	return 0
}

func (w *wire) varint() int64 {
	u := w.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// count writes or reads a number whose default is one. One is left out.
func count(w *wire, f uint64, p *int) {
	if !w.in {
		n := *p - 1
		num(w, f, &n)
		return
	}
	n := 0
	num(w, f, &n)
	*p = n + 1
}

// table writes or reads a row of numbers as a mask, which leaves out zeros. A number
// that this version does not know is an error, because no account would count it.
func table(w *wire, f uint64, row []int64) {
	if !w.in {
		var m uint64
		for i, n := range row {
			if n != 0 {
				m |= 1 << i
			}
		}
		if m == 0 {
			return
		}
		// Most amounts are zero, and a mask spends one bit on each of them.
		w.head(f, typeMask)
		w.b = binary.AppendUvarint(w.b, m)
		for _, n := range row {
			if n != 0 {
				w.b = binary.AppendVarint(w.b, n)
			}
		}
		return
	}
	if w.have(f) && w.want(typeMask) {
		w.mask(len(row), func(i int, n int64) { row[i] = n })
		w.next(f)
	}
}

// mask reads a mask of at most width numbers, and calls set with each.
func (w *wire) mask(width int, set func(i int, n int64)) {
	m := w.uvarint()
	// An amount that this version cannot book would be lost from the accounts.
	if m>>width != 0 {
		w.fail(fmt.Errorf("field %d has more than the %d numbers that this version knows", w.field, width))
		return
	}
	for ; m != 0; m &= m - 1 {
		set(bits.TrailingZeros64(m), w.varint())
	}
}

// flag writes or reads a boolean. Writing never changes the record, because other
// goroutines may read it at the same time.
func flag(w *wire, f uint64, p *bool) {
	n := 0
	if *p {
		n = 1
	}
	num(w, f, &n)
	if w.in {
		*p = n != 0
	}
}

// strOr writes or reads a text whose default is def. The default is left out.
func strOr[T ~string](w *wire, f uint64, p *T, def T) {
	switch {
	case !w.in:
		if *p != def {
			w.putText(f, string(*p))
		}
	case w.have(f):
		str(w, f, p)
	default:
		*p = def
	}
}

// str writes or reads a text. A frozen word is written as its number.
func str[T ~string](w *wire, f uint64, p *T) {
	switch {
	case w.in:
		if w.have(f) {
			*p = T(w.text())
			w.next(f)
		}
	case *p != "":
		w.putText(f, string(*p))
	}
}

func (w *wire) putText(f uint64, s string) {
	if i, ok := wordNumber[s]; ok {
		w.head(f, typeUint)
		w.b = binary.AppendUvarint(w.b, i)
		return
	}
	w.head(f, typeBytes)
	w.b = binary.AppendUvarint(w.b, uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *wire) text() string {
	if w.typ != typeUint {
		if w.want(typeBytes) {
			return string(w.bytes())
		}
		return ""
	}
	i := w.uvarint()
	if i >= uint64(len(words)) {
		w.fail(fmt.Errorf("field %d is word %d, and there are %d", w.field, i, len(words)))
		return ""
	}
	return words[i]
}

// raw writes or reads bytes. Empty bytes are not the same as nil.
func raw[T ~[]byte](w *wire, f uint64, p *T) {
	switch {
	case w.in:
		if w.have(f) && w.want(typeBytes) {
			*p = w.bytes()
			w.next(f)
		}
	case *p != nil:
		w.head(f, typeBytes)
		w.b = binary.AppendUvarint(w.b, uint64(len(*p)))
		w.b = append(w.b, *p...)
	}
}

func key(w *wire, f uint64, p *abi.Key) {
	switch {
	case w.in:
		if w.have(f) && w.want(typeKey) {
			copy(p[:], w.take(len(p)))
			w.next(f)
		}
	case !p.IsZero():
		w.head(f, typeKey)
		w.b = append(w.b, p[:]...)
	}
}

// part writes or reads a group that is absent if *p is nil.
func part[T any](w *wire, f uint64, p **T, fields func(*wire, *T)) {
	if w.in {
		if w.have(f) && w.want(typeGroup) {
			*p = new(T)
			w.enter()
			fields(w, *p)
			w.leave(f)
		}
		return
	}
	if *p != nil {
		w.head(f, typeGroup)
		fields(w, *p)
		w.b = append(w.b, 0)
	}
}

// group writes or reads a group. An empty group is left out.
func group[T any](w *wire, f uint64, p *T, fields func(*wire, *T)) {
	if w.in {
		if w.have(f) && w.want(typeGroup) {
			w.enter()
			fields(w, p)
			w.leave(f)
		}
		return
	}
	start := len(w.b)
	w.head(f, typeGroup)
	body := len(w.b)
	// Whether a group is empty is known only after its fields.
	if fields(w, p); len(w.b) == body {
		w.b = w.b[:start]
		return
	}
	w.b = append(w.b, 0)
}
