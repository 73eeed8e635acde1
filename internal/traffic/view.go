package traffic

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A View is how one bucket stands: a model, a key ("openai#3f2a") or a provider
// as a whole.
type View struct {
	Name       string           `json:"name"`
	Configured map[string]int64 `json:"configured,omitempty"` // by requests, tokens, input_tokens, output_tokens
	Learned    map[string]int64 `json:"learned,omitempty"`    // from the provider's answers
	Used       map[string]int64 `json:"used"`                 // in the last minute
	Running    int              `json:"running"`              // calls
	Places     int              `json:"places,omitempty"`     // calls there may be; 0: any number
	Waiting    int              `json:"waiting"`              // calls
	For        string           `json:"for,omitempty"`        // what the next of them waits for
	NextMS     int64            `json:"next_ms,omitempty"`    // until it may go, where that is known
	PausedMS   int64            `json:"paused_ms,omitempty"`  // until the provider is asked again
	Margin     float64          `json:"margin,omitempty"`     // the share of the limits that is kept free, because it was needed
}

// View shows every bucket, by name.
func (t *Turns) View() []View {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	all := make([]View, 0, len(t.sched.buckets))
	add := func(b *bucket) {
		b.window.slide(now)
		v := View{Name: strings.TrimRight(b.name, "#"), Configured: named(b.set), Learned: named(b.told), Used: named(b.window.sum),
			Running: b.running, Margin: float64(b.care.margin) / 1000, PausedMS: max(0, b.care.paused-now) / 1e6}
		if n := b.places(true); n < int(never) {
			v.Places = n
		}
		if l := b.line; l != nil && l.waiting > 0 {
			v.Waiting, v.For = l.waiting, l.why
			if l.look < never {
				v.NextMS = max(0, l.look-now) / 1e6
			}
		}
		all = append(all, v)
	}
	for _, b := range t.sched.buckets {
		add(b)
	}
	for _, b := range t.sched.above {
		if b.most > 0 || b.set != (amount{}) { // else it says nothing that its models do not
			add(b)
		}
	}
	slices.SortFunc(all, func(a, b View) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Quota says what was used in the last minute, of what there is.
func (v *View) Quota() string {
	var all []string
	for _, u := range slices.Sorted(maps.Keys(v.Used)) {
		s := fmt.Sprintf("%d %s", v.Used[u], strings.ReplaceAll(u, "_", " "))
		switch limit, told := v.Configured[u], v.Learned[u]; {
		case told > 0 && (limit == 0 || told < limit):
			s += fmt.Sprintf(" of %d (told)", told)
		case limit > 0:
			s += fmt.Sprintf(" of %d", limit)
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}

// Next says what the next call waits for, and how long where that is known.
func (v *View) Next() string {
	switch {
	case v.For == "" && v.PausedMS > 0:
		return "paused for " + inTenths(v.PausedMS)
	case v.NextMS > 0:
		return v.For + ", " + inTenths(v.NextMS)
	}
	return v.For
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

// Why says in a few words what the next call at a resource waits for; nothing
// when none waits.
func (t *Turns) Why(resource string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.sched.buckets[resource]
	if b == nil || b.line == nil || b.line.waiting == 0 || b.line.why == "" {
		return ""
	}
	if b.line.look == never {
		return b.line.why
	}
	return b.line.why + ", " + inTenths((b.line.look-t.clock())/1e6)
}
