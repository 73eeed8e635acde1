package gateway

import (
	"bytes"
	"crypto/sha256"
	"hash/maphash"
	"math"
	"slices"
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
type learnedBounds struct {
	recent.Cache[abi.Hash, int64]
	heard recent.Cache[abi.Hash, []heard] // the last requests of a process to a model
}

// A heard is a request that the provider counted. Its parts stand for a later request
// that is no continuation: some programs put the time at the beginning, drop old
// elements, or keep the files they work on at the end.
type heard struct {
	parts  []uint64 // the hashes of the parts
	tokens int64
}

// A part is an element of a list of the body, or another field that the model reads.
type part struct {
	field  string
	hash   uint64
	size   int
	thinks bool // it may hold thoughts, which some providers drop from some places
}

var partSeed = maphash.MakeSeed()

// thinks reports whether an element of a conversation may hold a thought. An answer
// that only speaks of thoughts counts too.
func thinks(m []byte) bool {
	switch jsontext.String(jsontext.Get(m, "role")) {
	case "user", "system", "developer", "tool":
		return false
	}
	return slices.ContainsFunc([]string{"think", "thought", "reason", "signature", "encrypted"}, func(s string) bool { return bytes.Contains(m, []byte(s)) })
}

// maxHeard is how many requests of one process to one model are remembered, and
// maxParts the most parts of such a request.
const (
	maxHeard = 4
	maxParts = 4096
)

// A prefix names the parts that a request shares with earlier requests. They are the
// last elements, each named together with all elements before it, and everything
// outside the conversation.
type prefix struct {
	common []abi.Hash // the parts outside the conversation
	links  []abi.Hash // the names of the last elements, at most lookBack
	sent   int        // the number of elements
	marked bool       // some element has a mark for the provider's cache
	last   abi.Hash   // the name of the last element, without marks
	betas  string     // the beta features that the request asks for
	parts  []part
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

// fields adds the fields of a body that change what the model reads, and returns one
// name for them. Some programs write the time or the number of a turn into the others.
func (p *prefix) fields(f format.Format, rest []byte) abi.Hash {
	var b []byte
	for key, v := range jsontext.Members(rest[jsontext.Blank(rest, 0):]) {
		if name := string(key); !f.Unread(name) {
			b = append(append(append(b, name...), 0), v...)
			if jsontext.Kind(v) != '0' || !f.Parted(name) {
				p.part(name, v)
			}
		}
	}
	return sha256.Sum256(b)
}

// part adds an element of a list, or a field.
func (p *prefix) part(field string, m []byte) {
	plain := format.Unmarked(m)
	var h maphash.Hash
	h.SetSeed(partSeed)
	h.WriteString(field)
	h.WriteByte(0)
	h.Write(plain)
	p.parts = append(p.parts, part{field, h.Sum64(), len(m), (field == "messages" || field == "input") && thinks(plain)})
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
			return l
		}
	}
	all, _ := k.heard.Get(heardName(pid, model, c.betas))
	least := int64(math.MaxInt64)
	for _, h := range all {
		// A token has about three bytes, which is near enough to pick one.
		if fresh, size := c.fresher(h.parts); h.tokens+size/3 < least {
			least, l.Tokens, l.Fresh = h.tokens+size/3, h.tokens, fresh
		}
	}
	return l
}

// fresher says of each part whether it is not among those heard, and how many bytes
// are not. A part that may hold thoughts never is, because it moved.
func (p *prefix) fresher(heard []uint64) (fresh map[string][]bool, size int64) {
	left := make(map[uint64]int, len(heard))
	for _, h := range heard {
		left[h]++
	}
	fresh = make(map[string][]bool)
	for i := range p.parts {
		q := &p.parts[i]
		had := !q.thinks && left[q.hash] > 0
		if had {
			left[q.hash]--
		} else {
			size += int64(q.size)
		}
		fresh[q.field] = append(fresh[q.field], !had)
	}
	return fresh, size
}

// heardName returns the name of the last requests of a process to a model.
func heardName(pid abi.Pid, model, betas string) abi.Hash {
	return keptName(pid, model, "\x00"+betas)
}

// A lesson is what learn remembers of a request whose answer is under way.
type lesson struct {
	whole, heard abi.Hash
	parts        []uint64
}

// lesson returns what to remember of the request to model.
func (p *prefix) lesson(pid abi.Pid, model string) (l lesson) {
	l.whole = prefixName(pid, model, p.common, p.links[len(p.links)-1])
	if len(p.parts) <= maxParts {
		l.heard = heardName(pid, model, p.betas)
		for i := range p.parts {
			l.parts = append(l.parts, p.parts[i].hash)
		}
	}
	return l
}

// learn remembers that a request took so many input tokens.
func (k *learnedBounds) learn(l *lesson, tokens int64) {
	k.Put(l.whole, tokens)
	if l.parts == nil {
		return
	}
	all, _ := k.heard.Get(l.heard)
	all = append([]heard{{l.parts, tokens}}, all...)
	k.heard.Put(l.heard, all[:min(len(all), maxHeard)])
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
	if in := s.Usage.Input + s.Usage.CacheRead + s.Usage.CacheWrite; s.HasInput && tooHigh*in+aFew >= c.bound.Text && c.learns.whole != (abi.Hash{}) {
		c.g.learned.learn(&c.learns, in)
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
