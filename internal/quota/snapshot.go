package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Snapshot is the state of one bucket: a model, a key ("openai#3f2a") or a
// whole provider.
type Snapshot struct {
	Name       string           `json:"name"`
	Configured map[string]int64 `json:"configured,omitempty"` // by requests, tokens, input_tokens, output_tokens
	Learned    map[string]int64 `json:"learned,omitempty"`    // from the provider's answers
	Used       map[string]int64 `json:"used"`                 // in the last minute
	Running    int              `json:"running"`              // calls
	Places     int              `json:"places,omitempty"`     // calls at one time; 0: any number
	Waiting    int              `json:"waiting"`              // calls
	For        string           `json:"for,omitempty"`        // what the next call waits for
	NextMS     int64            `json:"next_ms,omitempty"`    // until the next call may go, if that is known
	PausedMS   int64            `json:"paused_ms,omitempty"`  // until the pause ends
	Rests      string           `json:"rests,omitempty"`      // why calls with a fallback go to it
	RestMS     int64            `json:"rest_ms,omitempty"`    // until one call tries this provider again
	Margin     float64          `json:"margin,omitempty"`     // the part of the limits that is kept free since a 429
}

// Snapshots returns the state of every bucket, by name.
func (t *Turns) Snapshots() []Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	all := make([]Snapshot, 0, len(t.scheduler.buckets))
	add := func(b *bucket) {
		// An unused bucket would otherwise show what it used long ago.
		b.window.slide(now)
		v := Snapshot{Name: strings.TrimRight(b.name, "#"), Configured: named(b.configured), Learned: named(b.learned), Used: named(b.window.sum),
			Running: b.running, Margin: float64(b.pace.margin) / 1000, PausedMS: max(0, b.pace.paused-now) / 1e6}
		if n := b.slots(true); n < int(never) {
			v.Places = n
		}
		v.Rests, v.RestMS = b.outageState(now)
		if l := b.waiters; l != nil && l.waiting > 0 {
			v.Waiting, v.For = l.waiting, l.why
			if l.checkAt < never {
				v.NextMS = max(0, l.checkAt-now) / 1e6
			}
		}
		all = append(all, v)
	}
	for _, b := range t.scheduler.buckets {
		add(b)
	}
	for _, b := range t.scheduler.parents {
		if b.maxRunning > 0 || b.configured != (amount{}) { // else its models show everything
			add(b)
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Of prints the use of a unit in the last minute beside its limit.
func (v *Snapshot) Of(unit string) string {
	s := strconv.FormatInt(v.Used[unit], 10)
	switch limit, learned := v.Configured[unit], v.Learned[unit]; {
	case learned > 0 && (limit == 0 || learned < limit):
		s += fmt.Sprintf(" of %d (told)", learned)
	case limit > 0:
		s += fmt.Sprintf(" of %d", limit)
	}
	return s
}

// Next says what the next call waits for and how long, and whether the provider
// has an outage.
func (v *Snapshot) Next() string {
	var all []string
	switch {
	case v.Rests != "" && v.RestMS > 0:
		all = append(all, v.Rests+", tried again in "+inTenths(v.RestMS))
	case v.Rests != "":
		all = append(all, v.Rests+", tried by the next")
	}
	switch {
	case v.For == "" && v.PausedMS > 0:
		all = append(all, "paused for "+inTenths(v.PausedMS))
	case v.NextMS > 0:
		all = append(all, v.For+", "+inTenths(v.NextMS))
	case v.For != "":
		all = append(all, v.For)
	}
	return strings.Join(all, "; ")
}

func inTenths(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	return max(d.Round(100*time.Millisecond), 100*time.Millisecond).String()
}

func named(a amount) map[string]int64 {
	m := make(map[string]int64)
	for u, n := range a {
		if n != 0 {
			m[strings.ReplaceAll(unitNames[u], " ", "_")] = n
		}
	}
	return m
}

// WaitReason says what the next call at a resource waits for; empty if no call
// waits.
func (t *Turns) WaitReason(resource string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.scheduler.buckets[resource]
	if b == nil || b.waiters == nil || b.waiters.waiting == 0 || b.waiters.why == "" {
		return ""
	}
	now, why := t.clock(), b.waiters.why
	if b.waiters.checkAt < never {
		why += ", " + inTenths((b.waiters.checkAt-now)/1e6)
	}
	if rests, _ := b.outageState(now); rests != "" {
		why += "; it " + rests
	}
	return why
}
