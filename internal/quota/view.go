package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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
	Rests      string           `json:"rests,omitempty"`      // why what can go to another provider does
	RestMS     int64            `json:"rest_ms,omitempty"`    // until one call looks whether this one is back
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
		v.Rests, v.RestMS = b.resting(now)
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

// Of says how many of a unit were used in the last minute, of how many there are.
func (v *View) Of(unit string) string {
	s := strconv.FormatInt(v.Used[unit], 10)
	switch limit, told := v.Configured[unit], v.Learned[unit]; {
	case told > 0 && (limit == 0 || told < limit):
		s += fmt.Sprintf(" of %d (told)", told)
	case limit > 0:
		s += fmt.Sprintf(" of %d", limit)
	}
	return s
}

// Next says what the next call waits for, and how long where that is known; and
// that a provider rests.
func (v *View) Next() string {
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

// Why says in a few words what the next call at a resource waits for; nothing
// when none waits.
func (t *Turns) Why(resource string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.sched.buckets[resource]
	if b == nil || b.line == nil || b.line.waiting == 0 || b.line.why == "" {
		return ""
	}
	now, why := t.clock(), b.line.why
	if b.line.look < never {
		why += ", " + inTenths((b.line.look-now)/1e6)
	}
	if rests, _ := b.resting(now); rests != "" {
		why += "; it " + rests
	}
	return why
}
