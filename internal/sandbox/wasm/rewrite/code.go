package rewrite

import (
	"errors"
	"fmt"
)

// The opcodes that this package writes or must recognize.
const (
	opBlock      = 0x02
	opLoop       = 0x03
	opIf         = 0x04
	opElse       = 0x05
	opEnd        = 0x0b
	opBr         = 0x0c
	opBrIf       = 0x0d
	opBrTable    = 0x0e
	opCall       = 0x10
	opCallInd    = 0x11
	opSelectT    = 0x1c
	opLocalGet   = 0x20
	opLocalSet   = 0x21
	opGlobalGet  = 0x23
	opGlobalSet  = 0x24
	opMemorySize = 0x3f
	opMemoryGrow = 0x40
	opI32Const   = 0x41
	opI64Const   = 0x42
	opF32Const   = 0x43
	opF64Const   = 0x44
	opI32Eqz     = 0x45
	opI32LtS     = 0x48
	opI32GtU     = 0x4b
	opI32LeU     = 0x4d
	opI32Add     = 0x6a
	opI32Sub     = 0x6b
	opI32ShrU    = 0x76
	opMisc       = 0xfc
	miscCopy     = 10
	miscFill     = 11

	typeI32  = 0x7f
	noResult = 0x40
)

// Large copies run in chunks. Copying 1<<weight bytes counts as much as one loop head.
const (
	chunk  = 256 << 10
	weight = 5 // 1<<5 bytes
)

// An inserter rewrites the functions of one module.
type inserter struct {
	tick    uint64 // index of the host function that the countdown calls
	counter uint64 // index of the global that counts down
	period  int32  // start value of the counter
	helper  uint64 // index of the function fill; copy is the next index
	loops   int    // loop opcodes found so far
}

// addHelpers declares the two functions that fill and copy memory: their type, and
// their entries in the function section. Ticks adds the bodies.
func (in *inserter) addHelpers(secs []section) error {
	t := find(secs, types)
	r := reader{b: t.body}
	n := r.uint()
	t.body = append(appendUint(nil, n+1), t.body[r.i:]...)
	t.body = append(t.body, 0x60, 3, typeI32, typeI32, typeI32, 0)
	f := find(secs, functions)
	r2 := reader{b: f.body}
	own := r2.uint()
	f.body = append(appendUint(nil, own+2), f.body[r2.i:]...)
	f.body = appendUint(appendUint(f.body, n), n)
	in.helper = importedFunctions(find(secs, imports).body) + own
	return errors.Join(r.err, r2.err)
}

// function adds a countdown after every loop opcode of a function body. It replaces
// every memory.copy and memory.fill by a call of the helper.
func (in *inserter) function(body []byte) ([]byte, error) {
	r := reader{b: body}
	for range r.count() { // locals
		r.uint()
		r.byte()
	}
	var out []byte
	done := 0
	for r.more() {
		at := r.i
		op := r.byte()
		sub, err := immediates(&r, op)
		if err != nil {
			return nil, err
		}
		switch {
		// Every way through unbounded code passes the head of a loop, so the countdown belongs there.
		case op == opLoop:
			out = append(out, body[done:r.i]...)
			out = in.countdown(out, []byte{opI32Const, 1})
			in.loops++
		// One such instruction can take seconds, and nothing can interrupt it.
		case op == opMisc && (sub == miscCopy || sub == miscFill):
			out = append(out, body[done:at]...)
			helper := in.helper
			if sub == miscCopy {
				helper++
			}
			out = appendUint(append(out, opCall), helper)
		default:
			continue
		}
		done = r.i
	}
	return append(out, body[done:]...), r.err
}

// countdown appends code that subtracts units from the counter. When the counter falls
// below one, the code resets it to the period and calls the host. The operand stack
// stays the same.
func (in *inserter) countdown(b, units []byte) []byte {
	global := func(op byte) { b = appendUint(append(b, op), in.counter) }
	global(opGlobalGet)
	b = append(append(b, units...), opI32Sub)
	global(opGlobalSet)
	global(opGlobalGet)
	b = append(b, opI32Const, 1, opI32LtS, opIf, noResult, opI32Const)
	b = appendInt(b, int64(in.period))
	global(opGlobalSet)
	b = appendUint(append(b, opCall), in.tick)
	return append(b, opEnd)
}

// Indexes of the helpers' locals, which are their parameters.
const (
	to   = 0
	from = 1 // in fill: the byte to write
	size = 2
)

var (
	getChunk = appendInt([]byte{opI32Const}, chunk)
	more     = concat([]byte{opLocalGet, size}, getChunk, []byte{opI32GtU})
	perChunk = appendInt([]byte{opI32Const}, chunk>>weight)
	perRest  = []byte{opLocalGet, size, opI32Const, weight, opI32ShrU, opI32Const, 1, opI32Add}
	all      = []byte{opLocalGet, to, opLocalGet, from, opLocalGet, size}
)

// step returns code for: local = local op chunk.
func step(local, op byte) []byte {
	return concat([]byte{opLocalGet, local}, getChunk, []byte{op, opLocalSet, local})
}

func concat(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// while returns a loop that runs body and a countdown while size is larger than a
// chunk.
func (in *inserter) while(body ...[]byte) []byte {
	b := concat([]byte{opLoop, noResult}, more, []byte{opIf, noResult}, concat(body...))
	return append(in.countdown(b, perChunk), opBr, 1, opEnd, opEnd)
}

// fill returns the body of the helper that does memory.fill in chunks.
func (in *inserter) fill() []byte {
	b := concat([]byte{0}, in.while(
		[]byte{opLocalGet, to, opLocalGet, from}, getChunk, []byte{opMisc, miscFill, 0},
		step(to, opI32Add), step(size, opI32Sub),
	))
	b = in.countdown(b, perRest)
	return concat(b, all, []byte{opMisc, miscFill, 0, opEnd})
}

// copy returns the body of the helper that does memory.copy in chunks. It starts at the
// front if the target is below the source, else at the back. So an overlapping copy
// never reads bytes that it has overwritten.
func (in *inserter) copy() []byte {
	forward := in.while(
		[]byte{opLocalGet, to, opLocalGet, from}, getChunk, []byte{opMisc, miscCopy, 0, 0},
		step(to, opI32Add), step(from, opI32Add), step(size, opI32Sub),
	)
	backward := in.while(
		step(size, opI32Sub),
		[]byte{opLocalGet, to, opLocalGet, size, opI32Add, opLocalGet, from, opLocalGet, size, opI32Add},
		getChunk, []byte{opMisc, miscCopy, 0, 0},
	)
	b := concat([]byte{0, opLocalGet, to, opLocalGet, from, opI32LeU, opIf, noResult}, forward, []byte{opElse}, backward, []byte{opEnd})
	b = in.countdown(b, perRest)
	return concat(b, all, []byte{opMisc, miscCopy, 0, 0, opEnd})
}

// immediates skips the operands of an opcode. An unknown opcode is an error: with a
// guessed length, countdown code could end up inside another instruction.
func immediates(r *reader, op byte) (sub uint64, err error) {
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
		return 0, fmt.Errorf("opcode %#x at %d is not known here", op, r.i-1)
	}
	return 0, r.err
}

// misc reads an opcode after the prefix 0xfc, skips its operands and returns it.
func misc(r *reader) (sub uint64, err error) {
	switch sub = r.uint(); {
	case sub <= 7: // saturating truncations
	case sub == 8, sub == 10, sub == 12, sub == 14:
		r.uint()
		r.uint()
	case sub <= 17:
		r.uint()
	default:
		return 0, fmt.Errorf("opcode 0xfc %d at %d is not known here", sub, r.i)
	}
	return sub, r.err
}

// A reader reads the binary format. After an error it returns zeros and keeps the
// error.
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

// count reads the number of items that follow. Each item takes at least a byte. A
// number larger than the rest is therefore an error, and costs no long loop.
func (r *reader) count() uint64 {
	n := r.uint()
	if n > uint64(len(r.b)-r.i) {
		r.err = errors.Join(r.err, errShort)
		return 0
	}
	return n
}

// int skips a signed number, because this package needs no such value.
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
