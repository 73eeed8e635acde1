// Package rewrite changes a WebAssembly module so that it can be interrupted,
// and so that it starts from a memory image.
//
// Compiled WebAssembly runs outside of Go's scheduler: nothing can stop it, and a
// garbage collection waits for it. [Ticks] puts a countdown at the head of every
// loop. When the countdown reaches zero, it calls a function of the host. Copying
// and filling memory is one instruction for any size. Each becomes a call of a
// function that works in parts and counts down by size. The remaining code has no
// loops and ends soon, so the host always gets control.
package rewrite

import (
	"errors"
	"fmt"
	"slices"
)

// Section numbers of the binary format.
const (
	custom    = 0
	types     = 1
	imports   = 2
	functions = 3
	memories  = 5
	globals   = 6
	exports   = 7
	codes     = 10
	data      = 11
	dataCount = 12
)

const header = "\x00asm\x01\x00\x00\x00"

type section struct {
	id   byte
	body []byte
}

// split cuts a module into its sections.
func split(module []byte) ([]section, error) {
	if len(module) < len(header) || string(module[:len(header)]) != header {
		return nil, errors.New("rewrite: want a WebAssembly module of version 1")
	}
	r := reader{b: module, i: len(header)}
	var out []section
	for r.more() {
		id := r.byte()
		out = append(out, section{id, r.bytes(r.uint())})
	}
	return out, r.err
}

func join(secs []section) []byte {
	out := []byte(header)
	for _, s := range secs {
		out = append(out, s.id)
		out = appendUint(out, uint64(len(s.body)))
		out = append(out, s.body...)
	}
	return out
}

func find(secs []section, id byte) *section {
	for i := range secs {
		if secs[i].id == id {
			return &secs[i]
		}
	}
	return &section{id: id, body: []byte{0}}
}

// FromImage returns module for an instance that gets its memory from an image. It
// removes the data and the custom sections. The memory starts with exactly pages and
// may grow to limit.
func FromImage(module []byte, pages, limit uint32) ([]byte, error) {
	secs, err := split(module)
	if err != nil {
		return nil, err
	}
	mem := find(secs, memories)
	if r := (reader{b: mem.body}); r.uint() != 1 || r.err != nil {
		return nil, errors.New("rewrite: want a module with one memory of its own")
	}
	mem.body = appendUint(appendUint([]byte{1, 1}, uint64(pages)), uint64(limit))
	// The memory image already holds the data. Copying it again would undo what the interpreter did since.
	find(secs, data).body = []byte{0}
	find(secs, dataCount).body = []byte{0}
	return join(slices.DeleteFunc(secs, func(s section) bool { return s.id == custom })), nil
}

// Ticks returns module with a countdown in every loop, and the number of loops. The
// countdown calls the exported function named tick after every period loop heads.
func Ticks(module []byte, tick string, period int32) (out []byte, loops int, err error) {
	if period < 1 {
		return nil, 0, fmt.Errorf("rewrite: want a period above zero, got %d", period)
	}
	secs, err := split(module)
	if err != nil {
		return nil, 0, err
	}
	target, err := exported(find(secs, exports).body, tick)
	if err != nil {
		return nil, 0, err
	}
	counter, err := addGlobal(find(secs, globals), period)
	if err != nil {
		return nil, 0, err
	}
	// An imported global would shift the index of the counter.
	if importsGlobal(find(secs, imports).body) {
		return nil, 0, errors.New("rewrite: want a module that imports no global")
	}
	in := &inserter{tick: target, counter: counter, period: period}
	if err := in.addHelpers(secs); err != nil {
		return nil, 0, err
	}
	// The helpers' bodies come last, because addHelpers declared them last.
	code := find(secs, codes)
	r := reader{b: code.body}
	n := r.count()
	body := appendUint(nil, n+2)
	for i := range n {
		f, err := in.function(r.bytes(r.uint()))
		if err = errors.Join(err, r.err); err != nil {
			return nil, 0, fmt.Errorf("rewrite: function %d: %w", i, err)
		}
		body = append(appendUint(body, uint64(len(f))), f...)
	}
	for _, f := range [][]byte{in.fill(), in.copy()} {
		body = append(appendUint(body, uint64(len(f))), f...)
	}
	code.body = body
	return join(secs), in.loops, nil
}

// exported returns the index of an exported function.
func exported(body []byte, name string) (uint64, error) {
	r := reader{b: body}
	for range r.count() {
		n, kind, index := r.bytes(r.uint()), r.byte(), r.uint()
		if r.err == nil && kind == 0 && string(n) == name {
			return index, nil
		}
	}
	return 0, fmt.Errorf("rewrite: want an exported function %q", name)
}

// importsGlobal reports whether the module imports a global. If it does, the index of
// the module's own first global is not zero.
func importsGlobal(body []byte) bool {
	r := reader{b: body}
	for range r.count() {
		r.bytes(r.uint())
		r.bytes(r.uint())
		switch r.byte() {
		case 0: // function
			r.uint()
		case 1: // table
			r.byte()
			r.limits()
		case 2: // memory
			r.limits()
		default:
			return true
		}
	}
	return r.err != nil
}

// addGlobal appends a mutable i32 to the globals and returns its index.
func addGlobal(s *section, value int32) (uint64, error) {
	r := reader{b: s.body}
	n := r.uint()
	if r.err != nil {
		return 0, r.err
	}
	body := append(appendUint(nil, n+1), s.body[r.i:]...)
	body = append(body, 0x7f, 1, opI32Const)
	body = append(appendInt(body, int64(value)), opEnd)
	s.body = body
	return n, nil
}

// importedFunctions returns the number of imported functions, which is the index of
// the module's own first function.
func importedFunctions(body []byte) (n uint64) {
	r := reader{b: body}
	for range r.count() {
		r.bytes(r.uint())
		r.bytes(r.uint())
		switch r.byte() {
		case 0:
			r.uint()
			n++
		case 1:
			r.byte()
			r.limits()
		case 2:
			r.limits()
		}
	}
	return n
}
