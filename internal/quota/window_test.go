package quota

import "testing"

// TestRemove: what is taken back is taken from the slot it was counted in, as
// long as that one counts, and leaves nothing behind when it has passed.
func TestRemove(t *testing.T) {
	one := amount{1, 10, 10, 0}
	for _, v := range []struct {
		name     string
		at, late int64 // slots
	}{
		{"soon", 7, 1}, {"as the first that there is", 0, 1}, {"as its minute ends", 7, span}, {"when it counts no more", 7, span + 1},
		{"long after", 7, ring - 1}, {"when its slot is another's", 7, ring}, {"much later", 7, 5 * ring},
	} {
		var w window
		at := v.at * slotTime
		now := at + v.late*slotTime
		w.add(at, &one)
		w.remove(now, at, &one)
		if w.sum != (amount{}) {
			t.Errorf("%s: %v is counted", v.name, w.sum)
		}
		w.add(now, &one)
		for range 3 {
			w.slide(now)
			if age := now/slotTime - v.at - v.late; (w.sum == one) != (age <= span) || (w.sum == amount{}) != (age > span) {
				t.Errorf("%s: %d slots later %v is counted", v.name, age, w.sum)
			}
			now += minute/2 + slotTime
		}
	}
	var w window
	w.add(0, &one)
	if w.slide(minute + slotTime); w.sum != (amount{}) {
		t.Errorf("of the first moment %v is counted a minute later", w.sum)
	}
}
