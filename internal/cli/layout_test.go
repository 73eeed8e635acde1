package cli

import (
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestWrap breaks lines, and leaves alone what must stay whole.
func TestWrap(t *testing.T) {
	address := "http://127.0.0.1:46315/k/sk-kern-0123456789"
	for _, c := range []struct {
		line    string
		columns int
		want    string
	}{
		{"a b c", 0, "a b c"},
		{"a b c", 5, "a b c"},
		{"one two three", 9, "one two\n  three"},
		{"   ok    one two three", 14, "   ok    one\n  two three"},
		{"key  " + address, 20, "key \n  " + address},
		{address + " " + address, 20, address + "\n  " + address},
		{"\x1b[32mone\x1b[0m two", 7, "\x1b[32mone\x1b[0m two"},
		{"über ähn", 8, "über ähn"},
	} {
		if got := Wrap(c.line, c.columns, 2); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.line, c.columns, got, c.want)
		}
	}
}

// TestFitted cuts columns and leaves them out, and in a pipe does neither.
func TestFitted(t *testing.T) {
	columns := []Column{{Head: "PID"}, {Head: "NAME", Least: 4}, {Head: "STATE", Least: 6}, {Head: "TOKENS", Spare: 1}, {Head: "AGE", Spare: 2}}
	need := []int{3, 10, 20, 6, 3}
	for room, want := range map[int][5]int{
		0:  {3, 10, 20, 6, 3},
		50: {3, 10, 20, 6, 3},
		49: {3, 10, 19, 6, 3},
		35: {3, 7, 8, 6, 3},
		30: {3, 4, 6, 6, 3},
		29: {3, 8, 9, 0, 3},
		21: {3, 7, 7, 0, 0},
		10: {3, 4, 6, 0, 0},
	} {
		if got := [5]int(fitted(columns, need, room)); got != want {
			t.Errorf("%d columns: %v, want %v", room, got, want)
		}
	}
}

// TestTable cuts texts where they say least.
func TestTable(t *testing.T) {
	columns := []Column{{Head: "MODEL", Least: 6, End: true}, {Head: "N"}, {Head: "NOTE", Least: 4}}
	rows := [][]string{{"provider/name", "1", "so it is"}, {"a", "22", ""}}
	for width, want := range map[int]string{
		0:  "MODEL          N   NOTE\nprovider/name  1   so it is\na              22\n",
		20: "MODEL    N   NOTE\n…r/name  1   so it …\na        22\n",
	} {
		if got := Table(columns, rows, width, func(_, s string) string { return s }); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
}

// TestFill breaks paragraphs, and indented lines by themselves.
func TestFill(t *testing.T) {
	text := "one two\nthree four\n\n  124  five six seven\nend"
	for width, want := range map[int]string{
		80: "one two three four\n\n  124  five six seven\nend\n",
		16: "one two three\nfour\n\n  124  five six\n       seven\nend\n",
	} {
		if got := Fill(text, width); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
}
