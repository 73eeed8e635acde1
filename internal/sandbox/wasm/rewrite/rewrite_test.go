package rewrite

// Mutants these tests were seen to kill: no countdown at loops, a countdown
// that only looks for exactly zero, copy always from the front, copy always
// from the back, a chunk too few, large copies that do not count.

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// module has a memory of 32 pages and the functions tick, spin(n), which loops
// n times, fill(to, byte, size) and copy(to, from, size).
func module() []byte {
	i32 := byte(typeI32)
	sig := func(n int) []byte { return append(append([]byte{0x60, byte(n)}, bytes.Repeat([]byte{i32}, n)...), 0) }
	name := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	body := func(code ...byte) []byte {
		b := append([]byte{0}, append(code, opEnd)...)
		return append(appendUint(nil, uint64(len(b))), b...)
	}
	export := func(s string, kind, index byte) []byte { return append(name(s), kind, index) }
	return join([]section{
		{types, concat([]byte{3}, sig(0), sig(1), sig(3))},
		{imports, concat([]byte{1}, name("host"), name("tick"), []byte{0, 0})},
		{functions, []byte{4, 0, 1, 2, 2}},
		{memories, []byte{1, 0, 32}},
		{globals, []byte{1, i32, 1, opI32Const, 0, opEnd}},
		{exports, concat([]byte{5}, export("tick", 0, 1), export("spin", 0, 2), export("fill", 0, 3), export("copy", 0, 4), export("memory", 2, 0))},
		{codes, concat([]byte{4},
			body(opCall, 0),
			body(opLoop, noResult, opLocalGet, 0, opI32Const, 1, opI32Sub, 0x22, 0, opBrIf, 0, opEnd),
			body(opLocalGet, 0, opLocalGet, 1, opLocalGet, 2, opMisc, miscFill, 0),
			body(opLocalGet, 0, opLocalGet, 1, opLocalGet, 2, opMisc, miscCopy, 0, 0))},
	})
}

// machine runs a module and counts its ticks.
type machine struct {
	m     api.Module
	ticks int
}

func start(t *testing.T, code []byte) *machine {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	t.Cleanup(func() { rt.Close(ctx) })
	ma := &machine{}
	if _, err := rt.NewHostModuleBuilder("host").NewFunctionBuilder().WithFunc(func() { ma.ticks++ }).Export("tick").Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	var err error
	if ma.m, err = rt.Instantiate(ctx, code); err != nil {
		t.Fatal(err)
	}
	return ma
}

func (ma *machine) call(t *testing.T, f string, args ...uint64) {
	t.Helper()
	if _, err := ma.m.ExportedFunction(f).Call(context.Background(), args...); err != nil {
		t.Fatal(err)
	}
}

func ticking(t *testing.T, period int32) *machine {
	t.Helper()
	code, loops, err := Ticks(module(), "tick", period)
	if err != nil || loops != 1 {
		t.Fatalf("%d loops, %v; want 1", loops, err)
	}
	return start(t, code)
}

func TestLoopsTick(t *testing.T) {
	ma := ticking(t, 100)
	ma.call(t, "spin", 10_000)
	if ma.ticks != 100 {
		t.Errorf("%d ticks in 10,000 turns, want 100", ma.ticks)
	}
}

func TestCopiesTickBySize(t *testing.T) {
	for _, f := range []string{"fill", "copy"} {
		ma := ticking(t, 1000)
		ma.call(t, f, 0, 0, 1<<20)
		if want := 1 << 20 >> weight / 1000; ma.ticks < 4 || ma.ticks > want+1 {
			t.Errorf("%s: %d ticks for a MiB, want at least one for each part and about %d", f, ma.ticks, want)
		}
		ma = ticking(t, 1000)
		for range 1000 {
			ma.call(t, f, 0, 64, 3200)
		}
		if ma.ticks < 90 || ma.ticks > 110 {
			t.Errorf("%s: %d ticks for 1,000 small ones, want about 101", f, ma.ticks)
		}
	}
}

// Rewritten copies and fills do what Go's do, overlapping or not.
func TestCopiesCopy(t *testing.T) {
	ma := ticking(t, 1000)
	rnd := rand.New(rand.NewPCG(1, 2))
	mem, _ := ma.m.Memory().Read(0, ma.m.Memory().Size())
	for i := range mem {
		mem[i] = byte(rnd.Uint32())
	}
	want := bytes.Clone(mem)
	for i := range 400 {
		size := []int{0, 1, 100, chunk - 1, chunk, chunk + 1, 2 * chunk, 3*chunk + 7, rnd.IntN(5 * chunk)}[i%9]
		to := rnd.IntN(len(mem) - size + 1)
		from := rnd.IntN(len(mem) - size + 1)
		if i%3 == 0 { // close together
			from = min(max(0, to+rnd.IntN(2*chunk)-chunk), len(mem)-size)
		}
		if i%5 == 0 {
			ma.call(t, "fill", uint64(to), uint64(i), uint64(size))
			for k := range size {
				want[to+k] = byte(i)
			}
		} else {
			ma.call(t, "copy", uint64(to), uint64(from), uint64(size))
			copy(want[to:to+size], want[from:from+size])
		}
		if !bytes.Equal(mem, want) {
			t.Fatalf("step %d: to %d from %d size %d: the memory differs", i, to, from, size)
		}
	}
}

func TestOutsideOfMemoryTraps(t *testing.T) {
	for _, f := range []string{"fill", "copy"} {
		ma := ticking(t, 1000)
		if _, err := ma.m.ExportedFunction(f).Call(context.Background(), 32*65536-10, 0, 11); err == nil {
			t.Errorf("%s past the end did not trap", f)
		}
	}
}

func TestFromImage(t *testing.T) {
	code, err := FromImage(module(), 7, 9)
	if err != nil {
		t.Fatal(err)
	}
	m := start(t, code).m.Memory()
	if m.Size() != 7*65536 {
		t.Errorf("%d bytes, want 7 pages", m.Size())
	}
	if _, grown := m.Grow(2); !grown {
		t.Error("it does not grow to its limit")
	}
	if _, grown := m.Grow(1); grown {
		t.Error("it grows past its limit")
	}
}

func TestBadModules(t *testing.T) {
	good := module()
	if _, _, err := Ticks(good, "none", 1); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no such export: %v", err)
	}
	if _, _, err := Ticks(good, "tick", 0); err == nil {
		t.Error("a period of zero was taken")
	}
	for n := range good { // whatever is missing, it is an error or a module, never a panic
		Ticks(good[:n], "tick", 9)
		FromImage(good[:n], 1, 1)
	}
	if _, _, err := Ticks(append([]byte("\x00asm\x01\x00\x00\x00"), codes, 6, 1, 4, 0, 0xfe, 0, opEnd), "tick", 1); err == nil {
		t.Error("an opcode that is not known was taken")
	}
}

func FuzzTicks(f *testing.F) {
	f.Add(module())
	f.Fuzz(func(t *testing.T, b []byte) {
		Ticks(b, "tick", 100)
		FromImage(b, 1, 2)
	})
}
