package gateway

import (
	"crypto/sha256"
	"strconv"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/format"
)

// What went through before says what a request takes, where a count can only
// bound it: the provider named the tokens of a conversation up to its last
// element, and of what it keeps. It is remembered for a while and by daemon,
// for it is worth no record: without it the bound is the one that can be
// counted.
type lessons struct{ lately[int64] }

// A past is what a request shares with those before it: its last elements, each
// named with all before it, and all that is not the conversation.
type past struct {
	rest   []abi.Hash
	links  []abi.Hash
	sent   int // how many elements there are
	marked bool
	last   abi.Hash // of the unmarked ones
}

// lookBack is how many elements a request may be longer than one before it.
const lookBack = 64

// follow adds an element, which the chain names so. Marks for the provider's
// cache move with the end of a conversation, so the names here are without.
func (p *past) follow(named abi.Hash, m []byte) {
	plain := format.Unmarked(m)
	p.marked = p.marked || len(plain) != len(m)
	if p.marked {
		b, _ := link(p.last, plain)
		named = sha256.Sum256(b)
	}
	if p.last = named; len(p.links) == lookBack {
		p.links = append(p.links[:0], p.links[1:]...)
	}
	p.links, p.sent = append(p.links, named), p.sent+1
}

// lesson names what is remembered: a conversation up to a link, of a process
// with a model.
func lesson(pid abi.Pid, model string, rest []abi.Hash, link abi.Hash) abi.Hash {
	b := append(strconv.AppendInt(nil, int64(pid), 10), 0)
	b = append(append(b, model...), 0)
	for i := range rest {
		b = append(b, rest[i][:]...)
	}
	return sha256.Sum256(append(b, link[:]...))
}

// keptName names what a provider keeps: who asked for it, and its id there.
func keptName(pid abi.Pid, model, id string) abi.Hash {
	return sha256.Sum256([]byte(strconv.FormatInt(int64(pid), 10) + "\x00" + model + "\x00" + id))
}

// of is what is known of a request for a model.
func (k *lessons) of(pid abi.Pid, model string, c *chain) (l format.Learned) {
	l.Kept = func(id string) (int64, bool) { return k.get(keptName(pid, model, id)) }
	for i := len(c.links) - 1; i >= 0; i-- {
		if n, ok := k.get(lesson(pid, model, c.rest, c.links[i])); ok {
			l.Sent, l.Tokens = c.sent-len(c.links)+i+1, n
			break
		}
	}
	return l
}

// aFew is how many tokens a bound may be too high by for reasons of its own.
const aFew = 500

// learn remembers what a whole answer says of its request. A provider that says
// far less than there was counts otherwise than it bills.
func (x *exchange) learn(s *format.Seen) {
	name := x.route().Facts.Name
	if in := s.Usage.Input + s.Usage.CacheRead + s.Usage.CacheWrite; s.HasInput && 4*in+aFew >= x.bound.Text && x.lesson != (abi.Hash{}) {
		x.g.lessons.put(x.lesson, in)
	}
	for _, k := range s.Kept { // there are servers that give the same ids to everything
		if k.ID == s.ID && x.bound.Elsewhere {
			continue
		}
		h := keptName(x.call.Pid, name, k.ID)
		if n, ok := x.g.lessons.get(h); !ok || n < k.Tokens {
			x.g.lessons.put(h, k.Tokens)
		}
	}
}
