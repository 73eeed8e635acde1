package kernel

import (
	"fmt"
	"testing"
	"time"
)

// TestUrgentMail: fifty log lines are in a mailbox, then an urgent message. It is
// received first, the others in their order, also when a crash came between.
func TestUrgentMail(t *testing.T) {
	for _, crash := range []bool{false, true} {
		lived(t, func(t *testing.T, m *rig) {
			from, to := m.spawn(Spawning{}), m.spawn(Spawning{})
			for n := range 50 {
				m.do(from, uint64(n+1), "send", deed{Pid: to, Give: fmt.Sprint("log ", n)})
			}
			m.do(from, 51, "send", deed{Pid: to, Give: "HALT", Nonce: 10})
			m.do(from, 52, "send", deed{Pid: to, Give: "no hurry", Nonce: -5})
			if crash {
				m.crash()
			}
			want := []string{"HALT"}
			for n := range 50 {
				want = append(want, fmt.Sprint("log ", n))
			}
			for i, text := range append(want, "no hurry") {
				r := m.do(to, uint64(i+1), "recv", deed{For: time.Second.String()})
				if got, want := string(r.Value), fmt.Sprintf("[%q,%q]", fmt.Sprint(from), text); got != want {
					t.Fatalf("message %d: %s, want %s", i, got, want)
				}
			}
		})
	}
}
