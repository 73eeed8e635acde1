package kernel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
)

// TestRenewal: the limits of an account renew at midnight in UTC, what was settled
// before does not count any more, and a crash changes nothing of it.
//
// Mutants that die here: the base of a period is not recorded; a period that is over
// renews nothing; a new period begins with what was reserved before it.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newRig(t, Config{})
		now := time.Now().UTC()
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Limits: limits(abi.Money, 10), Per: "day"}); err != nil {
			t.Fatal(err)
		}
		act := deed{Reserve: abi.Usage{abi.Money: 6, abi.ModelCalls: 1}}
		s := Spawning{}
		s.Account, s.Name = "team", "crew"
		pid := m.spawn(s)
		n := uint64(0)
		do := func(d deed) *abi.Error {
			n++
			return m.do(pid, n, "act", d).Err
		}
		for day := range 4 {
			if day == 2 {
				m.crash()
			}
			if e := do(act); e != nil {
				t.Errorf("day %d: %v", day, e)
			}
			e := do(act)
			if e == nil || e.Code != abi.LimitMoney || e.Message != "the money limit of the account team is $0.00000001 a day; $0.000000006 is used, $0.000000004 is left and the call may use $0.000000006" {
				t.Errorf("day %d: %v", day, e)
			}
			midnight := time.Date(now.Year(), now.Month(), now.Day()+day+1, 0, 0, 0, 0, time.UTC)
			time.Sleep(time.Until(midnight) - 1)
			if e := do(act); e == nil {
				t.Errorf("day %d: a call before midnight was admitted", day)
			}
			time.Sleep(1)
		}
		if a := m.Accounts()[0]; a.Used[abi.Money] != 24 || a.Period.Base[abi.Money] != 18 {
			t.Errorf("%+v", a)
		}
		// A call that runs at midnight counts in the new period.
		time.Sleep(24 * time.Hour)
		open := act
		open.Gate = "late"
		n++
		done := m.start(pid, n, "act", open)
		m.idle()
		time.Sleep(24 * time.Hour)
		m.start(pid, n+1, "act", act)
		m.idle()
		if on := m.waits(pid); on != "room" {
			t.Errorf("beside a call of the day before, a call waits for %q", on)
		}
		m.let("late")
		<-done
		m.idle()
		n++
		if e := do(deed{Reserve: abi.Usage{abi.Money: 5}}); e == nil {
			t.Error("a call of the day before does not count")
		}
		// Without a period all that was ever used counts.
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Per: NeverRenews}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if e := do(act); e == nil {
			t.Error("a limit that does not renew renewed")
		}
		if err := m.SetAccount(t.Context(), "team", abi.Edit{Per: "hour"}); err == nil {
			t.Error("an unknown period was accepted")
		}
		if err := m.unfolded(); err != nil {
			t.Error(err)
		}
	})
}

// TestPeriods finds the period of a moment.
func TestPeriods(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct{ per, now, since, until string }{
		{"day", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"day", "2026-03-01T23:30:00-05:00", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"},
		{"week", "2026-03-01T12:00:00Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"}, // a Sunday
		{"week", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"}, // a Monday
		{"month", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	} {
		p, err := abi.NewPeriod(c.per, at(c.now))
		if err != nil || p.Since != at(c.since).UnixNano() || p.Until != at(c.until).UnixNano() {
			t.Errorf("%s of %s: %s to %s, %v", c.per, c.now, time.Unix(0, p.Since).UTC(), time.Unix(0, p.Until).UTC(), err)
		}
	}
}
