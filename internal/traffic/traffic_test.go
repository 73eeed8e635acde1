package traffic

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCap takes turns from many goroutines and counts how many hold one.
func TestCap(t *testing.T) {
	turns := Turns{Caps: map[string]int{"p": 4}}
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			release, err := turns.Acquire(t.Context(), "p", i%20)
			if err != nil {
				t.Error(err)
				return
			}
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			now.Add(-1)
			release()
		})
	}
	wg.Wait()
	if most.Load() > 4 {
		t.Errorf("%d at once, cap 4", most.Load())
	}
	if free := turns.line("p").free; free != 4 {
		t.Errorf("%d turns free at the end, want 4", free)
	}
}

// TestOrder lets callers of several priorities arrive while the only turn is
// taken, and looks at the order in which they get it.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Caps: map[string]int{"p": 1}}
		hold, err := turns.Acquire(t.Context(), "p", 0)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		arrive := func(name string, priority int) {
			go func() {
				release, err := turns.Acquire(t.Context(), "p", priority)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				release()
			}()
			synctest.Wait()
		}
		arrive("old bulk", 12)
		time.Sleep(40 * time.Second) // virtual: it ages by eight levels
		arrive("bulk", 10)
		arrive("bulk 2", 10)
		arrive("urgent", 0)
		hold()
		synctest.Wait()
		if want := []string{"urgent", "old bulk", "bulk", "bulk 2"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

// TestGone ends the wait of a caller, and sees that its turn is not lost.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{Caps: map[string]int{"p": 1}}
		hold, _ := turns.Acquire(t.Context(), "p", 0)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := turns.Acquire(ctx, "p", 0)
			left <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-left; err != context.Canceled {
			t.Errorf("got %v", err)
		}
		hold()
		release, err := turns.Acquire(t.Context(), "p", 0)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if n := turns.Waiting("p"); n != 0 {
			t.Errorf("%d waiting", n)
		}
	})
}

// TestCapOfKind holds a provider at another address to the cap of its kind,
// unless it has one of its own.
func TestCapOfKind(t *testing.T) {
	turns := Turns{Caps: map[string]int{"openai": 3, "openai@own.example": 2}}
	for resource, want := range map[string]int{"openai": 3, "openai@other.example": 3, "openai@own.example": 2, "anthropic@other.example": DefaultCap} {
		if got := turns.line(resource).free; got != want {
			t.Errorf("%s: %d turns, want %d", resource, got, want)
		}
	}
}
