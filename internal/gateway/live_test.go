package gateway_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
)

// TestLiveText checks that the text of a streamed answer reaches the live channel
// whole, in order, and under the process of the key. Mutant that dies here: text
// that is not published.
func TestLiveText(t *testing.T) {
	for _, f := range faces {
		if !strings.Contains(f.name, "streamed") {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, mockprovider.Config{Reply: longWords, Price: price}, "")
			live := r.kernel.Feed.Live.Subscribe(func(i *abi.LiveItem) bool { return i.Kind == abi.LiveText })
			defer live.Close()
			k := r.key("money=1")
			r.ok(k.Key, f.path, f.body)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			text := ""
			for item := range live.Items(ctx) {
				if item.Pid != k.Pid {
					t.Fatalf("text of process %d, want %d", item.Pid, k.Pid)
				}
				if text += item.Text; len(text) >= len(longWords) {
					break
				}
			}
			if text != longWords {
				t.Errorf("live text %q, want %q", text, longWords)
			}
		})
	}
}
