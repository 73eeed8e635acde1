package gateway

import (
	"slices"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
)

// TestKeyTime takes as long for a key that is nearly good as for one that is
// nothing like it.
func TestKeyTime(t *testing.T) {
	var r Ring
	good, sum := newKey()
	r.add(sum, 1)
	for range 1000 {
		_, other := newKey()
		r.add(other, 2)
	}
	near := []byte(good)
	near[len(near)-1] ^= 1
	far, _ := newKey()
	if pid, ok := r.find(good); !ok || pid != 1 {
		t.Fatal("a good key is not found")
	}
	for _, key := range []string{string(near), far, ""} {
		if _, ok := r.find(key); ok {
			t.Fatalf("%q is found", key)
		}
	}
	// The middle of many short measurements, made in turn, on a machine that
	// does other things too.
	median := func(key string, other string) (a, b time.Duration) {
		var as, bs []time.Duration
		for range 300 {
			for _, m := range []struct {
				key  string
				list *[]time.Duration
			}{{key, &as}, {other, &bs}} {
				start := time.Now()
				for range 20 {
					r.find(m.key)
				}
				*m.list = append(*m.list, time.Since(start))
			}
		}
		slices.Sort(as)
		slices.Sort(bs)
		return as[150], bs[150]
	}
	var a, b time.Duration
	for range 10 {
		if a, b = median(string(near), far); a < b*5/4 && b < a*5/4 {
			return
		}
	}
	t.Errorf("%v for a key that is nearly good, %v for another", a, b)
}

func FuzzLimitsHeader(f *testing.F) {
	for _, s := range []string{"", "money=1,steps=2", "money=-1", "wall=1h, tokens=5", "gold=1", "money=1,money=2", "=,=", "money"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := readLimits(s)
		again, err2 := readLimits(s)
		if (err == nil) != (err2 == nil) || l != again {
			t.Fatalf("%v %v, and again %v %v", l, err, again, err2)
		}
		l.Each(func(u abi.Unit, n int64) {
			if err == nil && n < 0 {
				t.Fatalf("%v is %d", u, n)
			}
		})
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"", "/", "/k/", "/k/KEY", "/k/KEY/v1/models", "/v1/v1/models", "/k//v1/models", "/kern/v1/keys", "/k/KEY/kern/v1/keys"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		key, rest := splitPath(path)
		if len(key)+len(rest) > len(path)+1 {
			t.Fatalf("%q became %q and %q", path, key, rest)
		}
	})
}
