package process

import (
	"testing"
)

func TestFitsContext(t *testing.T) {
	for _, c := range []struct {
		name                  string
		tokens, answer, limit int64
		limited               bool
		window                int64
		bound                 int64
		ok                    bool
	}{
		{"no bounds", 1 << 40, 1, 0, false, 0, 0, true},
		{"at the limit", 100, 10, 100, true, 0, 0, true},
		{"over the limit", 101, 10, 100, true, 0, 100, false},
		{"a limit of nothing", 1, 1, 0, true, 0, 0, false},
		{"an answer just fits the window", 90, 10, 0, false, 100, 0, true},
		{"no room for an answer", 91, 10, 0, false, 100, 100, false},
		{"the limit is said before the window", 200, 10, 100, true, 50, 100, false},
		{"within the limit, over the window", 80, 10, 100, true, 50, 50, false},
	} {
		if bound, ok := FitsContext(c.tokens, c.answer, c.limit, c.limited, c.window); bound != c.bound || ok != c.ok {
			t.Errorf("%s: %d %v, want %d %v", c.name, bound, ok, c.bound, c.ok)
		}
	}
}

// TestResidentStays: what a call was given to send does not change while pages
// are added.
func TestResidentStays(t *testing.T) {
	var m Memory
	for n := uint64(1); n <= 3; n++ {
		m.Add(Page{N: n, Tokens: 10})
	}
	before := m.Resident()
	other := append(before, Page{N: 99}) // somebody adds to his own
	m.Add(Page{N: 4, Tokens: 1})
	if len(before) != 3 || other[3].N != 99 || m.Pages[3].N != 4 || m.Tokens() != 31 {
		t.Errorf("%v %v %v, %d tokens", before, other, m.Pages, m.Tokens())
	}
}
