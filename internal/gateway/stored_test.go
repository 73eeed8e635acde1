package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
)

// A crew is a hundred clients that ask for a stream at the same time.
func (r *rig) crew(key string) (first, second, cut int, other []string) {
	r.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			g := r.post(key, "/v1/chat/completions", chat("x", `,"stream":true`))
			mu.Lock()
			defer mu.Unlock()
			switch whole := g.status == http.StatusOK && strings.Contains(g.body, "[DONE]"); {
			case whole && strings.Contains(g.body, "first"):
				first++
			case whole && strings.Contains(g.body, "second"):
				second++
			case g.code() == abi.ModelNetwork && strings.Contains(g.body, "the answer broke off"):
				cut++
			default:
				other = append(other, fmt.Sprint(g.status, g.body))
			}
		})
	}
	wg.Wait()
	return first, second, cut, other
}

// TestChain: the first of two providers goes through what providers go through,
// under a hundred streams. Nobody hears of it but those whose answer it had begun,
// and it is used again when it is well.
func TestChain(t *testing.T) {
	t.Parallel()
	var how atomic.Value
	how.Store("well")
	well := mockprovider.New(mockprovider.Config{Reply: "from the first"})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch how := how.Load(); how {
		case "well":
			well.ServeHTTP(w, q)
			return
		case "dies":
			_, _ = io.Copy(io.Discard, q.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"half a "}}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "hangs up":
			_, _ = io.Copy(io.Discard, q.Body)
			panic(http.ErrAbortHandler)
		case "503":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(up.Close)
	r := newRig(t, mockprovider.Config{Reply: "from the second"}, fmt.Sprintf("providers:\n  openai: {base_url: \"%s/v1\", key_env: UP_KEY, concurrency: 100, fallback: [second]}\n  second: {format: openai, base_url: \"$UP/v1\", concurrency: 100}\n", up.URL))
	k := r.key("")
	for _, phase := range []string{"502", "503", "hangs up", "dies"} {
		how.Store(phase)
		first, second, cut, other := r.crew(k.Key)
		if len(other) > 0 || first > 0 || cut > 0 && phase != "dies" {
			t.Errorf("it %s: %d answers are from it, %d from the second, %d cut, and %q", phase, first, second, cut, other)
		}
		how.Store("well")
		eventually(t, "it is used again", func() bool {
			return strings.Contains(r.ok(k.Key, "/v1/chat/completions", chat("x")).body, "from the first")
		})
	}
	if first, second, cut, other := r.crew(k.Key); first+second != 100 {
		t.Errorf("it is well: %d, %d, %d cut, %q", first, second, cut, other)
	}
	if i := r.info(k.Pid); i.Reserved != (abi.Usage{}) || i.Doubt != (abi.Usage{}) {
		t.Errorf("%v is reserved, %v in doubt", i.Reserved, i.Doubt)
	}
}
