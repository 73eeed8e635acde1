package recent_test

import (
	"sync"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/recent"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestKeepsWhatIsUsed: an entry that is read between two generations stays, and
// what nobody reads is forgotten.
func TestKeepsWhatIsUsed(t *testing.T) {
	c := recent.Cache[int, int]{Max: 10}
	for i := range 100 {
		c.Put(i, -i)
		if v, ok := c.Get(0); !ok || v != 0 {
			t.Fatalf("after %d entries the one in use is gone", i)
		}
	}
	kept := 0
	for i := range 100 {
		if v, ok := c.Get(i); ok {
			if kept++; v != -i {
				t.Errorf("%d is %d", i, v)
			}
		}
	}
	if kept > 20 {
		t.Errorf("%d entries are kept, expected at most two generations of 10", kept)
	}
	if _, ok := c.Get(1); ok {
		t.Error("nothing was forgotten")
	}
}

// TestWeight: a generation holds values of its weight, and one value that
// weighs more.
func TestWeight(t *testing.T) {
	c := recent.Cache[string, string]{Max: 6, Weight: func(s string) int { return len(s) }}
	for _, s := range []string{"abc", "def", "a longer one", "xyz"} {
		c.Put(s, s)
	}
	for s, want := range map[string]bool{"abc": false, "def": false, "a longer one": true, "xyz": true} {
		if _, ok := c.Get(s); ok != want {
			t.Errorf("%q is kept: %v, want %v", s, ok, want)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	c := recent.Cache[int, int]{Max: 8}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				c.Put(i%20, i%20)
				if v, ok := c.Get(i % 7); ok && v != i%7 {
					t.Errorf("%d is %d", i%7, v)
				}
			}
		})
	}
	wg.Wait()
}
