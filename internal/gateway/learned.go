package gateway

import (
	"crypto/sha256"
	"strconv"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/recent"
)

// Earlier requests tell how many tokens a request takes, where a count can only
// bound it: the provider named the tokens of a conversation up to its last
// element, and of what it keeps. It is remembered for a while and by daemon,
// for it is worth no record: without it the bound is the one that can be
// counted.
type learnedBounds struct{ recent.Cache[abi.Hash, int64] }

// A past is what a request shares with those before it: its last elements, each
// named with all before it, and all that is not the conversation.
type prefix struct {
	common []abi.Hash // what is not the conversation
	links  []abi.Hash
	sent   int // how many elements there are
	marked bool
	last   abi.Hash // of the unmarked ones
}

// lookBack is how many elements a request may be longer than one before it.
const lookBack = 64

// follow adds an element, which the chain names so. Marks for the provider's
// cache move with the end of a conversation, so the names here are without.
func (p *prefix) follow(named abi.Hash, m []byte) {
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

// prefixName names what is remembered: a conversation up to a link, of a process
// with a model.
func prefixName(pid abi.Pid, model string, rest []abi.Hash, link abi.Hash) abi.Hash {
	b := append(strconv.AppendInt(nil, int64(pid), 10), 0)
	b = append(append(b, model...), 0)
	for i := range rest {
		b = append(b, rest[i][:]...)
	}
	return sha256.Sum256(append(b, link[:]...))
}

// keptName names what a provider keeps: the process that asked for it, and its id there.
func keptName(pid abi.Pid, model, id string) abi.Hash {
	return sha256.Sum256([]byte(strconv.FormatInt(int64(pid), 10) + "\x00" + model + "\x00" + id))
}

// of is what is known of a request for a model.
func (k *learnedBounds) of(pid abi.Pid, model string, c *storedRequest) (l format.Learned) {
	l.Kept = func(id string) (int64, bool) { return k.Get(keptName(pid, model, id)) }
	for i := len(c.links) - 1; i >= 0; i-- {
		if n, ok := k.Get(prefixName(pid, model, c.common, c.links[i])); ok {
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
func (c *upstreamCall) learn(s *format.Seen) {
	name := c.route().Facts.Name
	if in := s.Usage.Input + s.Usage.CacheRead + s.Usage.CacheWrite; s.HasInput && 4*in+aFew >= c.bound.Text && c.learns != (abi.Hash{}) {
		c.g.learned.Put(c.learns, in)
	}
	for _, k := range s.Kept { // there are servers that give the same ids to everything
		if k.ID == s.ID && c.bound.Elsewhere {
			continue
		}
		h := keptName(c.call.Pid, name, k.ID)
		if n, ok := c.g.learned.Get(h); !ok || n < k.Tokens {
			c.g.learned.Put(h, k.Tokens)
		}
	}
}
