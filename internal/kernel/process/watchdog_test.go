package process

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/abi"
)

// see is a call as the tables write it: a letter for what was called, a digit
// for what came back, "!" for a failure; "~" is idempotent, "@" is polling,
// "#" is a workspace that has changed, a quote is an answer in a
// conversation, and "=" an answer to the same request.
func watched(n int, word string) WatchedCall {
	s := WatchedCall{Call: uint64(n), Effect: abi.Pure, Name: "tool"}
	for _, c := range word {
		switch {
		case c == '!':
			s.Failed, s.Result[1] = true, 1 // the hash of a result holds how it ended
		case c == '~':
			s.Effect = abi.Idempotent
		case c == '@':
			s.Effect = abi.Polling
		case c == '#':
			s.Digest[0] = byte(n)
		case c == '"':
			s.Said, s.Key[1] = true, byte(n) // every request of a conversation is another
		case c == '=':
			s.Said = true
		case c >= '0' && c <= '9':
			s.Result[0] = byte(c)
		default:
			s.Key[0] = byte(c)
		}
	}
	return s
}

// verdict is the number of the call at which words become a loop; 0: never.
func firstLoop(cfg abi.Watchdog, words []string) (int, *abi.Error) {
	var w Watchdog
	for i, word := range words {
		s := watched(i+1, word)
		warning, end := w.Judge(cfg, &s)
		if e := cmp.Or(end, warning); e != nil {
			return i + 1, e
		}
		w.Add(s)
	}
	return 0, nil
}

// judged is what the watchdog says of each call: "." nothing, "w" a warning, "E" the end.
func judged(cfg abi.Watchdog, words []string) string {
	var w Watchdog
	var said strings.Builder
	for i, word := range words {
		s := watched(i+1, word)
		warning, end := w.Judge(cfg, &s)
		w.Add(s)
		switch {
		case end != nil:
			return said.String() + "E"
		case warning != nil:
			said.WriteString("w")
			w.Warn()
		default:
			said.WriteString(".")
		}
	}
	return said.String()
}

func repeated(n int, words ...string) (all []string) {
	for range n {
		all = append(all, words...)
	}
	return all
}

// changing numbers results so that none repeats in a row.
func changing(n int, word string) (all []string) {
	for i := range n {
		all = append(all, word+fmt.Sprint(i%10))
	}
	return all
}

// fresh are n calls of which none was made before.
func newCalls(n int) (all []string) {
	for i := range n {
		all = append(all, string(rune('A'+i))+"1")
	}
	return all
}

// mixed are rounds of the same calls, with a new one at the end of each.
func mixed(n int, words ...string) (all []string) {
	for i := range n {
		all = append(append(all, words...), string(rune('A'+i))+"1")
	}
	return all
}

func failing(words []string) (all []string) {
	for _, w := range words {
		all = append(all, w+"!")
	}
	return all
}

// TestRollbacks: three in a row are too many; what goes well in between ends the
// row, what fails without a change does not, and another tool has its own.
func TestRollbacks(t *testing.T) {
	rolled, failed, well, other := WatchedCall{Name: "a", Failed: true, Rolled: true}, WatchedCall{Name: "a", Failed: true}, WatchedCall{Name: "a"}, WatchedCall{Name: "b", Failed: true, Rolled: true}
	for name, c := range map[string]struct {
		cfg  abi.Watchdog
		seen []WatchedCall
		at   int // 0: never
	}{
		"three":                 {abi.Watchdog{}, []WatchedCall{rolled, rolled, rolled}, 3},
		"a failure in between":  {abi.Watchdog{}, []WatchedCall{rolled, failed, rolled, failed, rolled}, 5},
		"one that went well":    {abi.Watchdog{}, []WatchedCall{rolled, rolled, well, rolled, rolled}, 0},
		"another tool between":  {abi.Watchdog{}, []WatchedCall{rolled, other, rolled, other, rolled}, 5},
		"the third is another":  {abi.Watchdog{}, []WatchedCall{rolled, rolled, other}, 0},
		"nothing is taken back": {abi.Watchdog{}, []WatchedCall{failed, failed, failed, failed}, 0},
		"off":                   {abi.Watchdog{Profile: "off"}, []WatchedCall{rolled, rolled, rolled, rolled}, 0},
	} {
		var w Watchdog
		at := 0
		for i := range c.seen {
			_, e := w.Judge(c.cfg, &c.seen[i])
			if e != nil && at == 0 {
				at = i + 1
				if e.Code != abi.WatchdogLoop || !strings.Contains(e.Message, "3 times in a row") {
					t.Errorf("%s: %+v", name, e)
				}
			}
			w.Add(c.seen[i])
		}
		if at != c.at {
			t.Errorf("%s: too many at %d, want %d", name, at, c.at)
		}
	}
}

func TestVerdicts(t *testing.T) {
	strict := abi.Watchdog{Profile: "strict"}
	for _, c := range []struct {
		name  string
		cfg   abi.Watchdog
		words []string
		at    int
	}{
		{"twice is fine", strict, repeated(2, "a1"), 0},
		{"three times", strict, repeated(3, "a1"), 3},
		{"repeat 5, four times", abi.Watchdog{Profile: "strict", Repeat: 5}, repeated(4, "a1"), 0},
		{"repeat 5", abi.Watchdog{Profile: "strict", Repeat: 5}, repeated(5, "a1"), 5},
		{"repeat 2", abi.Watchdog{Profile: "strict", Repeat: 2}, repeated(2, "a1"), 2},
		{"off", abi.Watchdog{Profile: "off"}, repeated(100, "a1"), 0},
		{"strict", abi.Watchdog{Profile: "strict"}, repeated(3, "a1"), 3},
		{"three different reads", strict, []string{"a1", "b1", "c1"}, 0},
		{"the same read, other results", strict, changing(10, "a"), 0},
		{"broken by another", strict, []string{"a1", "a1", "b1", "a1", "a1"}, 0},
		{"broken by another result", strict, []string{"a1", "a1", "a2", "a1", "a1"}, 0},
		{"broken by a change of the workspace", strict, []string{"a1", "a1#", "a1#", "a1#"}, 0},
		{"failing three times, however worded", strict, []string{"a1!", "a2!", "a3!"}, 3},
		{"a failure is no success", strict, []string{"a1", "a1!", "a1"}, 0},
		{"a-b-a-b", strict, repeated(2, "a1", "b1"), 4},
		{"a-b-a", strict, []string{"a1", "b1", "a1"}, 0},
		{"a-b-a-c", strict, []string{"a1", "b1", "a1", "c1"}, 0},
		{"a-b-a-b with other results", strict, []string{"a1", "b1", "a2", "b1"}, 0},
		{"a-b-a-b with changes", strict, []string{"a1#", "b1#", "a1#", "b1#"}, 0},
		{"a cycle of three", strict, repeated(2, "a1", "b1", "c1"), 6},
		{"a cycle of twelve", strict, repeated(2, "a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1", "j1", "k1", "l1"), 22},
		{"a cycle of two, repeat 6", abi.Watchdog{Profile: "strict", Repeat: 6}, repeated(3, "a1", "b1"), 6},
		{"idempotent, up to its bound", strict, repeated(8, "a1~"), 0},
		{"idempotent, at its bound", strict, repeated(9, "a1~"), 9},
		{"idempotent in a cycle, before its bound", strict, repeated(4, "a1~", "b1"), 0},
		{"idempotent in a cycle, at its bound", strict, repeated(5, "a1~", "b1"), 10},
		{"polling, long", strict, repeated(119, "a1@"), 0},
		{"polling, at its bound", strict, repeated(120, "a1@"), 120},
		{"polling in strict, long", abi.Watchdog{Profile: "strict"}, repeated(119, "a1@"), 0},
		{"polling between others", strict, repeated(40, "a1@", "b1", "a1@", "c1"), 0},
		{"four calls in no order", strict, []string{"a1", "b1", "c1", "d1", "b1", "a1", "d1", "c1", "a1", "c1", "b1", "d1", "c1", "a1"}, 14},
		{"no order, and the four idempotent", strict, []string{"a1~", "b1~", "c1~", "d1~", "b1~", "a1~", "d1~", "c1~", "a1~", "c1~", "b1~", "d1~", "c1~", "a1~"}, 0},
		{"rounds of three and of four", strict, []string{"a1", "b1", "c1", "b1", "a1", "d1", "c1", "a1", "c1", "b1", "a1", "b1", "d1", "c1"}, 14},
		{"one of three is new every round", strict, mixed(10, "a1", "b1"), 0},
		{"one of six is new every round", strict, mixed(4, "a1", "b1", "c1", "d1", "e1"), 17},
		{"the same answer", strict, repeated(6, "a1\""), 6},
		{"the same answer, less often", strict, repeated(5, "a1\""), 0},
		{"other answers", strict, changing(10, "a\""), 0},
		{"an answer is no call", strict, repeated(2, "a1", "a1\""), 0},
		{"two answers in turn", strict, repeated(3, "a1\"", "b2\""), 6},
		{"sampled answers", strict, repeated(100, "a1="), 0},
		{"a cycle after more calls than are kept", strict, append(newCalls(30), repeated(2, "a1", "b1", "c1")...), 36},
		{"thirteen calls in no order", strict, append(newCalls(13), "M1", "A1", "D1", "C1", "F1", "B1", "E1", "G1", "H1"), 0},
		{"a change among four", strict, []string{"a1", "b1", "c1", "d1", "b1", "a1", "d1#", "c1", "a1#", "c1", "b1#", "d1", "c1#", "a1"}, 0},
	} {
		at, e := firstLoop(c.cfg, c.words)
		if at != c.at {
			t.Errorf("%s: a loop at call %d, want %d (%v)", c.name, at, c.at, e)
		}
		if e != nil && (e.Code != abi.WatchdogLoop || e.Hint == "" || !strings.Contains(e.Message, "call")) {
			t.Errorf("%s: %+v names no evidence", c.name, e)
		}
	}
}

// TestWarnings: a warning comes first, the end only if the loop goes on although
// the model has had it; a share of repeats warns and does not end; and after honest
// progress there is a warning again.
func TestWarnings(t *testing.T) {
	smart, strict := abi.Watchdog{}, abi.Watchdog{Profile: "strict"}
	for _, c := range []struct {
		name  string
		cfg   abi.Watchdog
		words []string
		want  string
	}{
		{"on and on", smart, repeated(9, "a1"), "..w.E"},
		{"once more, and then another", smart, append(repeated(4, "a1"), "b1", "c1"), "..w..."},
		{"strict", strict, repeated(9, "a1"), "..E"},
		{"two in turn", smart, repeated(9, "a1", "b1"), "...w.E"},
		{"one of three is new every round", smart, mixed(9, "a1", "b1"), ".........w................."},
		{"again, soon after the warning", smart, append(append(repeated(3, "a1"), newCalls(10)...), repeated(3, "b1")...), "..w............E"},
		{"again, after progress", smart, append(append(repeated(3, "a1"), newCalls(12)...), repeated(5, "b1")...), "..w..............w.E"},
		{"what fails is no progress", smart, append(append(repeated(3, "a1"), failing(newCalls(20))...), repeated(3, "b1")...), "..w......................E"},
		{"the same answer", smart, repeated(9, "a1\""), ".....w.E"},
	} {
		if got := judged(c.cfg, c.words); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestJudgeChangesNothing: to judge is not to remember.
func TestJudgeChangesNothing(t *testing.T) {
	var w Watchdog
	for i := range 30 {
		s := watched(i, "a1~")
		for range 5 {
			w.Judge(abi.Watchdog{}, &s)
		}
		if len(w.Ring) != min(i, RingSize) {
			t.Fatalf("%d in the ring after %d", len(w.Ring), i)
		}
		w.Add(s)
		if last := w.Ring[len(w.Ring)-1]; last.Run != i+1 {
			t.Fatalf("run %d, want %d: the count must outlive the ring", last.Run, i+1)
		}
	}
}

// TestFresh: calls that never repeat are never a loop, and the same call over
// and over always is one in the end, whatever came before.
func TestFresh(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var w Watchdog
		before := rapid.SliceOfN(rapid.SampledFrom([]string{"a1", "b1", "c2", "d1!", "e1~", "f1@", "g1#"}), 0, 40).Draw(rt, "before")
		for i, word := range before {
			w.Add(watched(i+1, word))
		}
		for i := range 30 {
			s := watched(100+i, "z")
			s.Key[1], s.Digest[1] = byte(i), byte(i)
			if _, e := w.Judge(abi.Watchdog{Profile: "strict"}, &s); e != nil {
				rt.Fatalf("fresh call %d: %v", i, e)
			}
			w.Add(s)
		}
		for i := range 3 {
			s := watched(200+i, "y1")
			if _, e := w.Judge(abi.Watchdog{Profile: "strict"}, &s); (e != nil) != (i == 2) {
				rt.Fatalf("repeat %d: %v", i, e)
			}
			w.Add(s)
		}
	})
}
