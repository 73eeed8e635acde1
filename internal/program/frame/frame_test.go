//go:build linux

package frame

import (
	"reflect"
	"slices"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// sample has a field of every kind.
type sample struct {
	text string
	list []string
	set  bool
	n    int64
	json map[string]int
}

func (s *sample) Pack(p *Packer) {
	p.String(&s.text)
	p.Strings(&s.list)
	p.Bool(&s.set)
	Number(p, &s.n)
	p.JSON(&s.json)
}

// TestPacker packs a value and reads it back. Half of it is refused.
func TestPacker(t *testing.T) {
	in := sample{"\x00\xff", []string{"a", ""}, true, -1, map[string]int{"b": 2}}
	var p Packer
	in.Pack(&p)
	whole := slices.Clone(p.b)
	var out sample
	r := Packer{b: slices.Clone(whole), reading: true}
	if out.Pack(&r); r.short || r.err != nil || len(r.b) > 0 || !reflect.DeepEqual(in, out) {
		t.Errorf("want %+v, got %+v, %v", in, out, r.err)
	}
	for cut := range whole {
		r := Packer{b: slices.Clone(whole[:cut]), reading: true}
		if new(sample).Pack(&r); !r.short {
			t.Fatalf("cut at %d of %d it reads as whole", cut, len(whole))
		}
	}
}
