package gateway

import (
	"crypto/sha256"
	"strconv"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/recent"
)

// learnedBounds remembers how many input tokens earlier requests used, because a count
// of the text is only an upper bound. A provider reports the tokens of a conversation
// up to its last element, and of the answers that it keeps. The daemon keeps this in
// memory for a while and does not record it. Without it the counted bound applies.
type learnedBounds struct{ recent.Cache[abi.Hash, int64] }

// A prefix names the parts that a request shares with earlier requests. They are the
// last elements, each named together with all elements before it, and everything
// outside the conversation.
type prefix struct {
	common []abi.Hash // the parts outside the conversation
	links  []abi.Hash // the names of the last elements, at most lookBack
	sent   int        // the number of elements
	marked bool       // some element has a mark for the provider's cache
	last   abi.Hash   // the name of the last element, without marks
}

// lookBack is the most elements that a request may add to an earlier one and still use
// its count.
const lookBack = 64

// follow adds the element m, whose stored link is named. Marks for the provider's cache
// move with the end of a conversation, so follow names a marked element without them.
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

// readPart names the fields of a body that change what the model reads. Some programs
// write the number of a turn or the time into the others.
func readPart(f format.Format, rest []byte) abi.Hash {
	var b []byte
	for name, v := range jsontext.Members(rest[jsontext.Blank(rest, 0):]) {
		if !f.Unread(string(name)) {
			b = append(append(append(b, name...), 0), v...)
		}
	}
	return sha256.Sum256(b)
}

// prefixName returns the name of a conversation up to a link, for one process and one
// model.
func prefixName(pid abi.Pid, model string, rest []abi.Hash, link abi.Hash) abi.Hash {
	b := append(strconv.AppendInt(nil, int64(pid), 10), 0)
	b = append(append(b, model...), 0)
	for i := range rest {
		b = append(b, rest[i][:]...)
	}
	return sha256.Sum256(append(b, link[:]...))
}

// keptName returns the name of an item that a provider keeps, for the process that
// asked for it. id is the provider's id of the item.
func keptName(pid abi.Pid, model, id string) abi.Hash {
	return sha256.Sum256([]byte(strconv.FormatInt(int64(pid), 10) + "\x00" + model + "\x00" + id))
}

// of returns what earlier requests say about the request c. It uses the longest part of
// the conversation that is known.
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

// aFew is the number of tokens by which any bound may be too high.
const aFew = 500

// tooHigh is how many times the true count a bound may be. The bound of a text in
// an unknown vocabulary is twice its tokens in o200k_base, and three times for
// Claude; a vocabulary may be half as long again on what it was made for.
const tooHigh = 8

// learn remembers the usage that a whole answer reports for its request. It ignores a
// report far below the text, because such a provider does not count as it bills.
func (c *upstreamCall) learn(s *format.Seen) {
	name := c.route().Facts.Name
	if in := s.Usage.Input + s.Usage.CacheRead + s.Usage.CacheWrite; s.HasInput && tooHigh*in+aFew >= c.bound.Text && c.learns != (abi.Hash{}) {
		c.g.learned.Put(c.learns, in)
	}
	for _, k := range s.Kept { // some servers give every answer the same id, so the largest count wins
		if k.ID == s.ID && c.bound.Elsewhere {
			continue
		}
		h := keptName(c.call.Pid, name, k.ID)
		if n, ok := c.g.learned.Get(h); !ok || n < k.Tokens {
			c.g.learned.Put(h, k.Tokens)
		}
	}
}
