package process

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/abi"
)

// TestKept keeps random processes and compares.
//
// Mutants that die here: a limit of zero is none, numbers below zero are lost,
// one sum stands in the place of another.
func TestKept(t *testing.T) {
	number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
	sum := rapid.Custom(func(t *rapid.T) (u abi.Usage) {
		for i := range u {
			u[i] = number.Draw(t, "amount")
		}
		return u
	})
	rapid.Check(t, func(t *rapid.T) {
		b := Summary{
			Name: rapid.String().Draw(t, "name"), Account: rapid.String().Draw(t, "account"),
			Depth: int(number.Draw(t, "depth")), Priority: int(number.Draw(t, "priority")),
			Born: number.Draw(t, "born"), Last: number.Draw(t, "last"), Records: uint64(number.Draw(t, "records")),
			Steps: number.Draw(t, "steps"), Beyond: Beyond{Drift: number.Draw(t, "drift"), Claims: number.Draw(t, "claims")},
			Used: sum.Draw(t, "used"), Reserved: sum.Draw(t, "reserved"), Doubt: sum.Draw(t, "doubt"),
			Exit: ExitOf(&abi.ExitInfo{Exit: abi.ExitLimit, Code: abi.LimitMoney, Reason: rapid.String().Draw(t, "reason")}),
		}
		for u := range abi.AllUnits {
			if rapid.Bool().Draw(t, "limited") {
				b.Limits.Set(u, number.Draw(t, "limit"))
			}
		}
		k := b.Pack()
		if got := k.Unpack(); !reflect.DeepEqual(got, b) || k.Exit() != *b.Exit {
			t.Fatalf("kept %+v\n was %+v", got, b)
		}
	})
}

// TestPackedSummaryIsShort: what is kept of a usual process is short, and its text are there
// once.
func TestPackedSummaryIsShort(t *testing.T) {
	usual := func(born int64) PackedSummary {
		b := Summary{Name: "crew", Depth: 1, Priority: 10, Born: born, Last: born + 90e9, Records: 40, Steps: 12, Exit: &Exit{Exit: abi.ExitDone},
			Used: abi.Usage{abi.Money: 12_345_678, abi.Tokens: 34_567, abi.InputTokens: 30_000, abi.OutputTokens: 4_567, abi.Steps: 12, abi.ModelCalls: 12, abi.ToolCalls: 11, abi.OutputBytes: 20_000}}
		b.Limits.Set(abi.Money, 1e9)
		b.Limits.Set(abi.Steps, 100)
		return b.Pack()
	}
	one, two := usual(1_790_000_000_000_000_000), usual(1_790_000_000_000_000_001)
	if len(one.numbers) > 80 || one.text != two.text || one == two {
		t.Errorf("%d bytes; the same text: %v", len(one.numbers), one.text == two.text)
	}
}
