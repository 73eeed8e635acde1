package image

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// The committed files are those that the recipe made.
func TestSums(t *testing.T) {
	want := ""
	for _, f := range []struct{ name, content string }{{"python.image", Python}, {"library.zip", Library}} {
		sum := sha256.Sum256([]byte(f.content))
		want += fmt.Sprintf("%s  %s\n", hex.EncodeToString(sum[:]), f.name)
	}
	if Sums != want {
		t.Errorf("SHA256SUMS holds\n%swant\n%s", Sums, want)
	}
}

// place is a directory of the build, wherever it was.
var place = regexp.MustCompile(`/[^\x00-\x20'":=,]*/(toolchain|build/native|build/wasi|build/zlib-root)\b`)

// Nothing in them tells where they were made.
func TestNoPathsOfTheBuild(t *testing.T) {
	p, err := Open(Python)
	if err != nil {
		t.Fatal(err)
	}
	module, memory := make([]byte, p.ModuleSize), make([]byte, p.MemorySize)
	if err := p.Module(module); err != nil {
		t.Fatal(err)
	}
	if err := p.Memory(memory); err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{module, memory} {
		for _, place := range place.FindAll(b, -1) {
			if !bytes.HasPrefix(place, []byte("/kern/")) {
				t.Errorf("it was made in %q", place)
			}
		}
		if n := len(place.FindAll(b, -1)); n == 0 && len(b) == p.MemorySize {
			t.Error("no place at all: this test sees nothing")
		}
	}
	if z, err := zip.NewReader(strings.NewReader(Library), int64(len(Library))); err != nil || len(z.File) < 500 {
		t.Errorf("library.zip: %v", err)
	}
}

func TestPackRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, sizes := range [][2]int{{0, 0}, {1, 1}, {part, 2 * part}, {part + 5, 3*part - 1}} {
		in := Image{make([]byte, sizes[0]), make([]byte, sizes[1])}
		for i := range in.Module {
			in.Module[i] = byte(rnd.Uint32())
		}
		for i := 0; i < len(in.Memory)/2; i++ {
			in.Memory[i] = byte(i >> 4)
		}
		b, err := Pack(in)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Open(string(b))
		if err != nil {
			t.Fatal(err)
		}
		out := Image{make([]byte, p.ModuleSize), make([]byte, p.MemorySize)}
		if err := p.Module(out.Module); err != nil {
			t.Fatal(err)
		}
		if err := p.Memory(out.Memory); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in.Module, out.Module) || !bytes.Equal(in.Memory, out.Memory) {
			t.Errorf("%v: what came out is not what went in", sizes)
		}
		if again, _ := Pack(in); !bytes.Equal(b, again) {
			t.Errorf("%v: packed twice, two results", sizes)
		}
	}
}

func TestDamagedIsAnError(t *testing.T) {
	for _, s := range []string{"", "KERN", strings.Repeat("x", 100), Python[:1000], Python[:len(Python)-1], Python + "x"} {
		if _, err := Open(s); err == nil {
			t.Errorf("%d bytes of no image were taken", len(s))
		}
	}
	p, err := Open(Python)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Memory(make([]byte, 5)); err == nil {
		t.Error("memory was unpacked into too small a place")
	}
}
