package host_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
)

// TestRoomForLastWords lets the results of a tool fill the context. The model is warned
// once, from 80 % on. The run ends with its last words, also if one result is longer
// than the context. If the reply of the model itself is too long, the output says what
// happened. The replay says the same.
func TestRoomForLastWords(t *testing.T) {
	for _, c := range []struct {
		name           string
		context        int64
		result, answer int // words of a result of the tool, and of a reply with a call
		warned         int
		last           string // in the request for last words; empty: there is none
		output         string
	}{
		{"it fills slowly", 6000, 60, 1, 1, "are kept for last words", "in short"},
		{"one result is too long", 2000, 3000, 1, 0, "is left out, because it does not fit", "in short"},
		{"the first request with its tools is too long", 150, 1, 1, 0, "user: Stop now", "in short"},
		{"the reply is too long", 2000, 1, 3000, 0, "", "stopped at its context limit of 2000 tokens; the last text before that: word word"},
		{"the first request is too long", 5, 1, 1, 0, "", "stopped at its context limit of 5 tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, k := hearing(t, strings.Repeat("word ", c.answer))
			look := host.Tool("look", "Look.", func(_ context.Context, in number) (string, error) {
				return fmt.Sprint(in.N, strings.Repeat(" seen", c.result)), nil
			})
			a := host.Agent{Model: "openai:gpt-4o", Tools: []host.Callable{look}, Limits: host.Limits{abi.Context: c.context, abi.ModelCalls: 100}}
			a.Watchdog.Profile = "off"
			r, err := k.Run(t.Context(), a, "go")
			if err != nil || r.Code != abi.LimitContext || !strings.HasPrefix(r.Output, c.output) {
				t.Errorf("%s %s %.200s %v", r.Exit, r.Code, r.Output, err)
			}
			if again, err := k.Replay(t.Context(), r.Pid, nil); err != nil || !again.Same {
				t.Errorf("the replay says %+v %v", again.Divergence, err)
			}
			warned, last := 0, ""
			for i := range p.requests {
				all := strings.Join(p.requests[i].lines(), "\n")
				n := strings.Count(all, "user: Your context is nearly full")
				if n < warned || n > 1 {
					t.Errorf("request %d warns %d times", i, n)
				}
				if warned = n; len(p.requests[i].Tools) == 0 {
					last = all
				}
			}
			if warned != c.warned || !strings.Contains(last, c.last) || (last == "") != (c.last == "") {
				t.Errorf("warned %d times, the last words are asked for after %.1000s", warned, last)
			}
		})
	}
}
