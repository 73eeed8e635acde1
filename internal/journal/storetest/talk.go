package storetest

import (
	"fmt"
	"strings"

	"github.com/kern-run/kern/abi"
)

// The words of the messages of a [Talk]. Prose gives random words; Hex gives text
// that hardly compresses.
const (
	Prose = "the file was read and holds a list of names with one line for every order in it so next step is to count " +
		"them by customer check that total matches what report says before writing result back error none found function " +
		"return value string number table column index query update value plan tool output input model context"
	Hex = ""
)

// A Talk makes the records of a long conversation: rounds of a model call that
// asks for a tool, and the tool call. No two messages are the same.
type Talk struct {
	Pid   abi.Pid
	Words string

	Calls  uint64 // tool calls so far
	Tokens int    // tokens so far, of four bytes each
	Unique int    // bytes of messages so far

	n     uint64
	state int
}

// message returns a text of at least size bytes.
func (t *Talk) message(size int) []byte {
	list := strings.Fields(t.Words)
	var b []byte
	for len(b) < size {
		t.state++
		h := abi.HashOf(fmt.Append(nil, t.Pid, t.state))
		if len(list) == 0 {
			b = append(b, h.String()...)
			continue
		}
		for _, x := range h[:8] {
			b = append(append(b, list[int(x)%len(list)]...), ' ')
		}
		b = fmt.Appendf(b, "%d. ", t.state)
	}
	t.Unique += len(b)
	t.Tokens += len(b) / 4
	return b
}

// Round returns the four records of the next round.
func (t *Talk) Round() []abi.Record {
	t.Calls++
	reply, replyBlob := abi.NewData(t.message(280))
	args, argsBlob := abi.NewData(t.message(60))
	result, resultBlob := abi.NewData(t.message(480))
	name := fmt.Sprintf("call_%d", t.Calls)
	used := abi.Usage{abi.Money: 1_234_500, abi.Tokens: 1100, abi.InputTokens: 1000, abi.OutputTokens: 100, abi.Steps: 1, abi.ModelCalls: 1}
	model, tool := 2*t.Calls, 2*t.Calls+1
	return []abi.Record{
		t.record(abi.KindBegan, model, nil, &abi.Intent{Row: "model", Key: t.key("asked"), Effect: abi.Irreversible, Attempt: 1, Reserve: used,
			Granted: 4096, Price: abi.Price{Input: 3_000_000_000, Output: 15_000_000_000}}, nil),
		t.record(abi.KindEnded, model, replyBlob, nil, &abi.Answer{Outcome: abi.OK, Value: reply, Attempt: 1, Usage: used, Result: t.key("reply"),
			Digest: abi.Key{9}, Page: &abi.Page{Role: "assistant", Tokens: 100}, First: 234_567_890}),
		t.record(abi.KindBegan, tool, argsBlob, &abi.Intent{Row: "tool", Tool: "search", Args: args, Key: t.key("args"), Effect: abi.Irreversible,
			Attempt: 1, For: name, Reserve: abi.Usage{abi.ToolCalls: 1}}, nil),
		t.record(abi.KindEnded, tool, resultBlob, nil, &abi.Answer{Outcome: abi.OK, Value: result, Attempt: 1, Result: t.key("result"),
			Usage: abi.Usage{abi.ToolCalls: 1, abi.OutputBytes: result.Size}, Digest: abi.Key{9}, Page: &abi.Page{Role: "tool", Tokens: 110, ID: name}}),
	}
}

func (t *Talk) record(kind abi.Kind, call uint64, blob *abi.Blob, i *abi.Intent, a *abi.Answer) abi.Record {
	t.n++
	r := abi.Record{Pid: t.Pid, N: t.n, Time: 1_790_000_000_123_456_789 + int64(t.n)*1_234_567, Kind: kind, Call: call, Intent: i, Answer: a}
	if blob != nil {
		r.Blobs = []abi.Blob{*blob}
	}
	return r
}

// key returns a key as random as the keys of real records.
func (t *Talk) key(what string) abi.Key {
	h := abi.HashOf(fmt.Append(nil, what, t.n))
	return abi.Key(h[:len(abi.Key{})])
}
