package syscalls

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
)

// TestDeeds: what is taken back of a group is what went well in it and can be
// taken back, with what was made within its calls, and what no other undo has
// taken back already.
//
// Mutants that die here: calls before the group or behind it, one that failed, one
// of another effect, one that was taken back, one made within another.
func TestDeeds(t *testing.T) {
	type past struct {
		call, within uint64
		effect       abi.Effect
		outcome      abi.Outcome
		undoes       uint64
	}
	const first, last, undo = 10, 14, 15
	const nested = 12 + kernel.NestedFrom
	all := []past{
		{9, 0, abi.Compensable, abi.OK, 0}, {10, 0, abi.Compensable, abi.OK, 0}, {11, 0, abi.Compensable, abi.Failed, 0}, {nested, 12, abi.Compensable, abi.OK, 0},
		{12, 0, abi.Irreversible, abi.OK, 0}, {13, 0, abi.Compensable, abi.Unknown, 0}, {14, 0, abi.Compensable, abi.OK, 0}, {16, 0, abi.Compensable, abi.OK, 0},
		{30 + kernel.NestedFrom, 30, abi.Irreversible, abi.OK, 10},     // by another undo
		{undo + kernel.NestedFrom, undo, abi.Irreversible, abi.OK, 14}, // by this one, before a restart
	}
	w := &World{
		Journal: Journal{
			Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil },
			Records: func(pid abi.Pid, n uint64) iter.Seq2[*abi.Record, error] {
				return func(yield func(*abi.Record, error) bool) {
					for _, p := range all {
						args, err := json.Marshal(ToolArgs{Name: "book", Args: json.RawMessage(fmt.Sprintf(`{"call":%d}`, p.call)), Undoes: p.undoes})
						if err != nil || pid != 1 || n != 3 {
							t.Errorf("records of %d after %d: %v", pid, n, err)
						}
						in := &abi.Intent{Row: "tool", Tool: "book", Effect: p.effect, Within: p.within, Args: abi.Data{Bytes: args}}
						a := &abi.Answer{Outcome: p.outcome, Value: abi.Data{Bytes: []byte(`"done"`)}}
						if !yield(&abi.Record{Kind: abi.KindBegan, Call: p.call, Intent: in}, nil) || !yield(&abi.Record{Kind: abi.KindEnded, Call: p.call, Answer: a}, nil) {
							return
						}
					}
				}
			},
		},
	}
	j := &kernel.Job{Call: abi.Call{Pid: 1, N: undo}, View: kernel.View{Pid: 1, Pages: []process.Page{{Pid: 1, N: 3, Role: process.RoleAssistant}, {Pid: 1, N: 5, Role: process.RoleTool}}}}
	list, err := (&undoing{w, j, nil}).calls(&UndoArgs{First: first, Last: last})
	if err != nil {
		t.Fatal(err)
	}
	var calls []uint64
	for _, d := range list {
		if calls = append(calls, d.call); d.tool != "book" || string(d.args) != fmt.Sprintf(`{"call":%d}`, d.call) || string(d.result) != `"done"` {
			t.Errorf("%+v", d)
		}
	}
	if !slices.Equal(calls, []uint64{nested, 14}) {
		t.Errorf("to be taken back are %d", calls)
	}
}
