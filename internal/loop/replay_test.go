package loop

import (
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

// TestTape: a call is answered from the recording if it is the one that was
// recorded, to the byte; else the replay ends where it is another.
//
// Mutants that die here: another row, another call of the reply or other arguments
// that are answered all the same.
func TestTape(t *testing.T) {
	w := &syscalls.World{Journal: syscalls.Journal{Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil }}}
	was := abi.Call{Pid: 1, N: 3, Row: "tool", For: "a", Args: []byte(`{"n":1}`)}
	records := []*abi.Record{
		{Pid: 1, N: 7, Kind: abi.KindBegan, Call: 3, Intent: &abi.Intent{Row: was.Row, For: was.For, Args: abi.Data{Bytes: was.Args}}},
		{Pid: 1, N: 8, Kind: abi.KindEnded, Call: 3, Answer: &abi.Answer{Outcome: abi.OK, Value: abi.Data{Bytes: []byte(`"told"`)}}},
	}
	for name, c := range map[string]struct {
		call func(*abi.Call)
		why  string // empty: it is the same
	}{
		"the same":          {func(*abi.Call) {}, ""},
		"another row":       {func(c *abi.Call) { c.Row = "spawn" }, "call 3 is spawn a, and was tool a"},
		"another of these":  {func(c *abi.Call) { c.For = "b" }, "call 3 is tool b, and was tool a"},
		"other arguments":   {func(c *abi.Call) { c.Args = []byte(`{"n":2}`) }, `call 3 is tool {"n":2}, and was {"n":1}`},
		"spelled otherwise": {func(c *abi.Call) { c.Args = []byte(`{"n": 1}`) }, `call 3 is tool {"n": 1}, and was {"n":1}`},
	} {
		p, err := newTape(&kernel.Recording{Records: records}, w)
		if err != nil {
			t.Fatal(err)
		}
		call := was
		c.call(&call)
		res := p.Do(t.Context(), call)
		switch {
		case c.why == "":
			if res.Outcome != abi.OK || string(res.Value) != `"told"` || p.diverged != nil || p.asked != 1 {
				t.Errorf("%s: %+v, %v", name, res, p.diverged)
			}
			if _, more := p.next(); more {
				t.Errorf("%s: it was not asked for", name)
			}
		case res.Outcome != abi.Refused || p.diverged == nil || p.diverged.Record != 7 || !strings.Contains(p.diverged.Why, c.why):
			t.Errorf("%s: %+v, %v", name, res, p.diverged)
		}
	}
}
