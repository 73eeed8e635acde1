package provider

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A pile is a body of which something has come that is not read.
type pile struct {
	io.Reader
	until time.Time
}

func (p *pile) Unread() bool { return time.Now().Before(p.until) }

// TestDrain stops an answer whose end is on its way. What has come is read before
// it is cut off, however long we take for that; who sends nothing is not waited
// for, and nobody is for ever.
//
// Mutants that die here: one that does not look whether something has come, one
// that never gives up.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name         string
		unread, want time.Duration
		over         bool
	}{
		{"read as it comes", 0, maxEnd, false},
		{"late", 5 * time.Second, 5 * time.Second, false},
		{"never read", time.Hour, maxUnread, false},
		{"it was the last word", time.Hour, maxSilence, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, cut := time.Now(), make(chan time.Duration)
			l := &drain{cancel: func() { cut <- time.Since(begun) }}
			l.open(&pile{until: begun.Add(c.unread)})
			l.said()
			l.begin()
			if c.over {
				l.last()
			}
			if took := <-cut; took < c.want || took > c.want+2*maxSilence {
				t.Errorf("%s: it was cut off after %s, want %s", c.name, took, c.want)
			}
		})
	}
}
