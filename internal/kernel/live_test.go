package kernel

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/live"
)

// TestLiveWaits: subscribers learn of waits as they begin and end, and of no call
// that does not wait.
func TestLiveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var channel live.Channel
		m := newRig(t, Config{Live: &channel})
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 10)}); err != nil {
			t.Fatal(err)
		}
		s := Spawning{}
		s.Account = "team"
		busy, waits := m.spawn(s), m.spawn(s)
		sub := channel.Subscribe(nil)
		defer sub.Close()
		m.start(busy, 1, "act", deed{Reserve: money(9), Use: new(abi.Usage), Gate: "end"})
		m.idle()
		m.start(waits, 4, "act", deed{Reserve: money(8)})
		m.idle()
		m.let("end")
		m.idle()
		var got []string
		for range 2 {
			i, err := sub.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %d:%d %q", i.Kind, i.Pid, i.Call, i.For))
		}
		if want := []string{`wait 2:4 "room"`, `wait 2:4 ""`}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
