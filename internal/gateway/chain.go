package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/wire"
)

// A chain is a request as it is stored. The elements of its conversation are
// links: each is a blob of the 32 bytes that name the link before it, and the
// element. So a conversation is named by its last link, a longer one shares all
// that it has in common with a shorter one, and storing a request costs what is
// new in it. What is the same in every request of a conversation, the tools and
// the rest of the body, is a blob of its own each.
//
// The parts of the intent are: the rest; for each list in the rest, in the order
// of the body, its blob or its last link, where it is not empty; and then the
// blobs that may be new to the journal.
type chain struct {
	parts []abi.Hash
	named int        // of the parts, those that are not only there because they are new
	fresh []abi.Blob // nil when they were given away
}

// store makes the chain of a request.
func (k *known) store(q *wire.Request) (c chain) {
	rest, msgs := q.Split()
	rest, groups := lists(rest)
	c.parts = append(c.parts, k.blob(&c, rest))
	for _, g := range groups {
		group := msgs[:g.len]
		msgs = msgs[g.len:]
		switch {
		case g.len == 0:
		case g.grows:
			var last abi.Hash
			for _, m := range group {
				b := make([]byte, 0, len(last)+len(m))
				last = k.blob(&c, append(append(b, last[:]...), m...))
			}
			c.parts = append(c.parts, last)
		default:
			b, _ := json.Marshal(group) // they were read from JSON
			c.parts = append(c.parts, k.blob(&c, b))
		}
	}
	c.named = len(c.parts)
	for i := range c.fresh {
		c.parts = append(c.parts, c.fresh[i].Hash)
	}
	return c
}

// blob names b, and stores it unless it is known to be stored.
func (k *known) blob(c *chain, b []byte) abi.Hash {
	h := sha256.Sum256(b)
	if !k.has(h) {
		c.fresh = append(c.fresh, abi.Blob{Hash: h, Bytes: b})
	}
	return h
}

// A list is one that [wire.Request.Split] took out.
type list struct {
	len   int
	grows bool // from request to request
}

// lists reads the numbers that were left for lists in the rest of a request. A
// list of any length is a 1 in what it returns, so that the rest is the same
// while the conversation grows: the links say how many they are.
func lists(rest []byte) (same []byte, all []list) {
	d := json.NewDecoder(bytes.NewReader(rest))
	if _, err := d.Token(); err != nil {
		return rest, nil
	}
	from := int64(0)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			break
		}
		name, _ := key.(string)
		n, err := strconv.Atoi(string(v))
		if err != nil || !slices.Contains([]string{"messages", "input", "system", "instructions", "tools", "functions"}, name) {
			continue
		}
		all = append(all, list{max(n, -n), name == "messages" || name == "input"})
		if n > 1 {
			end := d.InputOffset()
			same = append(append(same, rest[from:end-int64(len(v))]...), '1')
			from = end
		}
	}
	return append(same, rest[from:]...), all
}

// known remembers blobs that are in the journal, so that they are not given to
// it again. It forgets: then a blob is given twice, and stored once.
type known struct {
	mu       sync.Mutex
	now, old map[abi.Hash]struct{}
}

// generation is how many names are kept before the older half is forgotten.
const generation = 1 << 16

func (k *known) has(h abi.Hash) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.now[h]; ok {
		return true
	}
	_, ok := k.old[h]
	if ok {
		k.put(h)
	}
	return ok
}

func (k *known) add(names []abi.Hash) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range names {
		k.put(h)
	}
}

// put is called with k.mu held.
func (k *known) put(h abi.Hash) {
	if k.now == nil || len(k.now) >= generation {
		k.old, k.now = k.now, make(map[abi.Hash]struct{})
	}
	k.now[h] = struct{}{}
}
