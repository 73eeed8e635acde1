package rewrite

import (
	"errors"
	"fmt"
)

// The opcodes that this package writes or must tell apart.
const (
	opBlock      = 0x02
	opLoop       = 0x03
	opIf         = 0x04
	opEnd        = 0x0b
	opBr         = 0x0c
	opBrIf       = 0x0d
	opBrTable    = 0x0e
	opCall       = 0x10
	opCallInd    = 0x11
	opSelectT    = 0x1c
	opGlobalGet  = 0x23
	opGlobalSet  = 0x24
	opMemorySize = 0x3f
	opMemoryGrow = 0x40
	opI32Const   = 0x41
	opI64Const   = 0x42
	opF32Const   = 0x43
	opF64Const   = 0x44
	opI32Eqz     = 0x45
	opI32Sub     = 0x6b
	opMisc       = 0xfc
)

// insert puts sequence behind every loop opcode of one function body.
func insert(body, sequence []byte) (out []byte, loops int, err error) {
	r := reader{b: body}
	for range r.uint() { // locals
		r.uint()
		r.byte()
	}
	done := 0
	for r.more() {
		op := r.byte()
		if err := immediates(&r, op); err != nil {
			return nil, 0, err
		}
		if op == opLoop {
			out = append(out, body[done:r.i]...)
			out = append(out, sequence...)
			done = r.i
			loops++
		}
	}
	return append(out, body[done:]...), loops, r.err
}

// immediates skips what follows an opcode. An opcode it does not know is an
// error: to guess its length would be to put code into the middle of another.
func immediates(r *reader, op byte) error {
	switch {
	case op <= 0x01, op == 0x05, op == opEnd, op == 0x0f, op == 0x1a, op == 0x1b, op >= opI32Eqz && op <= 0xc4, op == 0xd1:
	case op == opBlock, op == opLoop, op == opIf:
		r.int()
	case op == opBr, op == opBrIf, op == opCall, op == 0x12:
		r.uint()
	case op == opBrTable:
		for n := r.uint() + 1; n > 0 && r.more(); n-- { // the labels and the default
			r.uint()
		}
	case op == opCallInd, op == 0x13:
		r.uint()
		r.uint()
	case op == opSelectT:
		r.bytes(r.uint())
	case op >= 0x20 && op <= 0x26: // locals, globals, tables
		r.uint()
	case op >= 0x28 && op <= 0x3e: // loads and stores
		r.uint()
		r.uint()
	case op == opMemorySize, op == opMemoryGrow, op == 0xd0, op == 0xd2:
		r.uint()
	case op == opI32Const, op == opI64Const:
		r.int()
	case op == opF32Const:
		r.bytes(4)
	case op == opF64Const:
		r.bytes(8)
	case op == opMisc:
		return misc(r)
	default:
		return fmt.Errorf("opcode %#x at %d is not known here", op, r.i-1)
	}
	return r.err
}

func misc(r *reader) error {
	switch sub := r.uint(); {
	case sub <= 7: // saturating truncations
	case sub == 8, sub == 10, sub == 12, sub == 14:
		r.uint()
		r.uint()
	case sub <= 17:
		r.uint()
	default:
		return fmt.Errorf("opcode 0xfc %d at %d is not known here", sub, r.i)
	}
	return r.err
}

// A reader reads the binary format; its first error stays.
type reader struct {
	b   []byte
	i   int
	err error
}

var errShort = errors.New("rewrite: the module is cut short")

func (r *reader) more() bool { return r.err == nil && r.i < len(r.b) }

func (r *reader) byte() byte {
	if !r.more() {
		r.err = errors.Join(r.err, errShort)
		return 0
	}
	r.i++
	return r.b[r.i-1]
}

func (r *reader) uint() (v uint64) {
	for shift := 0; shift < 64; shift += 7 {
		x := r.byte()
		v |= uint64(x&0x7f) << shift
		if x&0x80 == 0 {
			break
		}
	}
	if r.err != nil {
		return 0
	}
	return v
}

// int skips a signed number: nobody here needs its value.
func (r *reader) int() {
	for r.byte()&0x80 != 0 {
	}
}

func (r *reader) bytes(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.b)-r.i) {
		r.err = errShort
		return nil
	}
	r.i += int(n)
	return r.b[r.i-int(n) : r.i]
}

func (r *reader) limits() {
	if r.uint()&1 != 0 {
		r.uint()
	}
	r.uint()
}

func appendUint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendInt(b []byte, v int64) []byte {
	for {
		x := byte(v & 0x7f)
		v >>= 7
		if v == 0 && x&0x40 == 0 || v == -1 && x&0x40 != 0 {
			return append(b, x)
		}
		b = append(b, x|0x80)
	}
}
