package format

import (
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/model"
)

// A tap reads the usage of embeddings while they pass. They are long, and
// nothing else in them matters here, so nothing else is kept.
type tap struct {
	depth  int
	quoted bool // within a string
	escape bool
	name   []byte // the string that is being read at the top, or was last
	key    bool   // name is a member's
	keep   bool   // this member is the usage, or an error
	bad    bool
	kept   []byte
	over   bool // the object has ended
}

const maxTap = 16 << 10

func (t *tap) write(b []byte) {
	for i := 0; i < len(b) && !t.over; i++ {
		c := b[i]
		if t.quoted && !t.escape && !t.keep && t.depth > 1 {
			if i = jsontext.Plain(b, i); i == len(b) {
				return
			}
			c = b[i]
		}
		t.step(c)
	}
}

func (t *tap) step(c byte) {
	if t.keep && !(t.depth == 1 && !t.quoted && (c == ',' || c == '}')) && len(t.kept) < maxTap {
		t.kept = append(t.kept, c)
	}
	switch {
	case t.escape:
		t.escape = false
	case t.quoted && c == '\\':
		t.escape = true
	case c == '"':
		if t.quoted = !t.quoted; t.quoted && !t.keep {
			t.name = t.name[:0]
		}
		return
	case t.quoted:
		if t.depth == 1 && !t.keep && len(t.name) < maxKey {
			t.name = append(t.name, c)
		}
		return
	}
	if t.quoted {
		return
	}
	switch c {
	case '{', '[':
		t.depth++
	case '}', ']':
		if t.depth--; t.depth <= 0 {
			t.over = true
		}
		if t.depth == 0 {
			t.keep = false
		}
	case ':':
		if t.depth == 1 && !t.keep {
			name := string(t.name)
			if name == "usage" || name == "error" {
				t.keep, t.bad, t.kept = true, name == "error", t.kept[:0]
			}
		}
	case ',':
		if t.depth == 1 {
			t.keep = false
		}
	}
}

// into hands over what was read.
func (t *tap) into(a *answer) {
	a.done = t.over
	if jsontext.Check(t.kept, jsontext.Lenient) != nil {
		return
	}
	v := t.kept[jsontext.Blank(t.kept, 0):]
	if jsontext.Kind(v) != '{' {
		return
	}
	if t.bad {
		a.failure = Classify(append(append([]byte(`{"error":`), v...), '}'))
		return
	}
	n := max(number(jsontext.Get(v, "prompt_tokens")), number(jsontext.Get(v, "total_tokens")))
	a.usage, a.hasInput, a.reported = model.Usage{Input: n}, true, true
}
