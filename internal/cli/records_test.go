package cli

import (
	"testing"

	"github.com/kern-run/kern/abi"
)

// TestLogFromTheMiddle prints the end of a call that began before the first
// printed record: its name is unknown and left out.
func TestLogFromTheMiddle(t *testing.T) {
	p := RecordPrinter{Term: &Terminal{Getenv: func(string) string { return "" }}, Born: 1e9}
	ended := &abi.Record{N: 300, Time: 3e9, Kind: abi.KindEnded, Call: 7, Answer: &abi.Answer{Outcome: abi.OK, Attempt: 1, Usage: abi.Usage{abi.Money: 1e9}}}
	if got, want := p.Format(ended), " 300   +2.000s  call 7 ok, took $1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Format(&abi.Record{N: 301, Time: 3e9, Kind: abi.KindBegan, Call: 8, Intent: &abi.Intent{Row: "tool", Tool: "look", Attempt: 1}})
	ended.N, ended.Call, ended.Answer.Again, ended.Answer.Outcome = 302, 8, true, abi.Refused
	if got, want := p.Format(ended), " 302   +2.000s  call 8 look turned away, took $1, waits for another turn\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
