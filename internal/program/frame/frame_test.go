//go:build linux

package frame

import (
	"slices"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestWire: what is sent is what is received, and half of it is not.
func TestWire(t *testing.T) {
	values := []struct{ in, out Packed }{
		{&Order{Argv: []string{"a", ""}, Env: []string{"b=c"}, Shown: []string{}, Filter: "\x00\xff", Landlock: 6, Root: true, Lent: true, Dir: "/d", Links: 2, Warm: true, Doors: 3, Gate: true, Group: "g", Groups: 3, Probe: true, Bounds: Bounds{1, 2, 3, 4, 5, 6}}, &Order{}},
		{&Note{"k", "e", true, -1, "s", true, "o", 7, 8}, &Note{}},
		{&Claim{true, true, "/d", Bounds{1 << 40, 2, 3, 4, 5, 6}}, &Claim{}},
	}
	for _, v := range values {
		p := Packer{}
		v.in.Pack(&p)
		whole := slices.Clone(p.b)
		in := Packer{b: whole, reading: true}
		v.out.Pack(&in)
		again := Packer{}
		v.out.Pack(&again)
		if in.short || len(in.b) > 0 || !slices.Equal(again.b, whole) {
			t.Errorf("want %+v, got %+v", v.in, v.out)
		}
		for cut := range whole {
			in := Packer{b: slices.Clone(whole[:cut]), reading: true}
			if v.out.Pack(&in); !in.short {
				t.Fatalf("%T cut at %d of %d reads as whole", v.in, cut, len(whole))
			}
		}
	}
}
