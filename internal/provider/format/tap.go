package format

import (
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/model"
)

// tap reads the usage or the error from an answer with embeddings as it passes. It
// keeps nothing else, because embeddings are long and only these two matter here.
type tap struct {
	depth  int
	quoted bool // inside a string
	escape bool
	name   []byte // the current or last string at the top level
	key    bool   // name is the name of a member
	keep   bool   // the current member is the usage or an error
	bad    bool   // the kept member is an error
	kept   []byte
	over   bool // the object has ended
}

// maxTap is how many bytes of the usage or the error tap keeps.
const maxTap = 16 << 10

// write reads the next bytes of the answer.
func (t *tap) write(b []byte) {
	for i := 0; i < len(b) && !t.over; i++ {
		c := b[i]
		// Skip plain characters fast, because a base64 embedding is one long string.
		if t.quoted && !t.escape && !t.keep && t.depth > 1 {
			if i = jsontext.Plain(b, i); i == len(b) {
				return
			}
			c = b[i]
		}
		t.step(c)
	}
}

// step reads one byte. It tracks strings and depth, and collects the value of the
// member usage or error at the top level.
func (t *tap) step(c byte) {
	// The comma or brace after the kept member is not a part of its value.
	if t.keep && !(t.depth == 1 && !t.quoted && (c == ',' || c == '}')) && len(t.kept) < maxTap {
		t.kept = append(t.kept, c)
	}
	// The first switch handles strings, because brackets inside a string mean nothing.
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

// into stores the usage or the error in a. An answer that ended is done.
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
