package quota

import (
	"strconv"
	"testing"
	"time"
)

// TestRoutePicker: a call goes by the first route whose provider is there and that is
// for it, beginning where it stands, and is told whether there is another.
func TestRoutePicker(t *testing.T) {
	const there = 0
	for _, c := range []struct {
		name  string
		at    int
		away  []time.Duration
		want  int
		other bool
	}{
		{"one", 0, []time.Duration{there}, 0, false},
		{"one that is away", 0, []time.Duration{9}, 0, false},
		{"both are there", 0, []time.Duration{there, there}, 0, true},
		{"the first failed", 1, []time.Duration{there, there}, 1, true},
		{"the first is away", 0, []time.Duration{9, there}, 1, false},
		{"the second is away", 1, []time.Duration{there, 9}, 0, false},
		{"all are away", 0, []time.Duration{9, 7, 8}, 1, false},
		{"all are away for as long", 1, []time.Duration{9, 9}, 1, false},
		{"the second is shut", 0, []time.Duration{9, Closed, 8}, 2, false},
		{"the second is shut, and the third is there", 0, []time.Duration{9, Closed, there}, 2, false},
		{"it stands where it is shut", 1, []time.Duration{9, Closed}, 0, false},
	} {
		w := RoutePicker{At: c.at, Of: len(c.away)}
		other := w.Choose(func(at int) time.Duration { return c.away[at] })
		if w.At != c.want || other != c.other {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, w.At, other, c.want, c.other)
		}
	}
	w := RoutePicker{At: 1, Of: 3}
	if w.Next(); w.At != 2 {
		t.Errorf("behind the second comes %d", w.At)
	}
	if w.Next(); w.At != 0 {
		t.Errorf("behind the last comes %d", w.At)
	}
}

// TestRoutePickerStartsOver: after a failure the next route is one that has not failed, as
// long as there is one that can be had; then all of them start over.
//
// Mutants that die here: any other route is fresh, whether it failed or cannot
// be had; nothing is fresh any more after the first round.
func TestRoutePickerStartsOver(t *testing.T) {
	for _, c := range []struct {
		name string
		away []time.Duration
		want string // each try, and a dash where it waits
	}{
		{"one", []time.Duration{0}, "0-0-0-0-0"},
		{"two", []time.Duration{0, 0}, "01-01-01"},
		{"three", []time.Duration{0, 0, 0}, "012-012-0"},
		{"the second is away", []time.Duration{0, 9, 0}, "02-02-02"},
		{"the second is shut", []time.Duration{0, Closed, 0}, "02-02-02"},
		{"the others are away", []time.Duration{0, 9, 9}, "0-0-0-0"},
		{"all are away", []time.Duration{7, 9}, "0-0-0-0"},
	} {
		w, got := RoutePicker{Of: len(c.away)}, ""
		for len(got) < len(c.want) {
			w.Choose(func(at int) time.Duration { return c.away[at] })
			if got += strconv.Itoa(w.At); !w.Next() {
				got += "-"
			}
		}
		if got[:len(c.want)] != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
