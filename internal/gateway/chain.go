package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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
	groups := lists(rest)
	c.parts = append(c.parts, k.blob(&c, numbered(rest, groups, func(l *list) int { return min(l.n, 1) })))
	for _, g := range groups {
		group := msgs[:g.len()]
		msgs = msgs[g.len():]
		switch {
		case g.n == 0:
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

// Stored is a request as it came, put together from the parts of an intent.
func Stored(face string, parts []abi.Hash, blob func(abi.Hash) ([]byte, error)) ([]byte, error) {
	if len(parts) == 0 {
		return nil, errors.New("the call has no request that is stored in parts")
	}
	rest, err := blob(parts[0])
	if err != nil {
		return nil, err
	}
	groups := lists(rest)
	var msgs []json.RawMessage
	parts = parts[1:]
	for i := range groups {
		g := &groups[i]
		if g.n == 0 {
			continue
		}
		if len(parts) == 0 {
			return nil, errors.New("a part of the request is not named")
		}
		var group []json.RawMessage
		if g.grows {
			group, err = links(parts[0], blob)
		} else {
			var b []byte
			if b, err = blob(parts[0]); err == nil {
				err = json.Unmarshal(b, &group)
			}
		}
		if err != nil {
			return nil, err
		}
		if parts = parts[1:]; g.n > 0 {
			g.n = len(group)
		}
		msgs = append(msgs, group...)
	}
	return wire.Join(wire.Face(face), numbered(rest, groups, func(l *list) int { return l.n }), msgs)
}

// links are the elements of a conversation, by its last link.
func links(last abi.Hash, blob func(abi.Hash) ([]byte, error)) (group []json.RawMessage, err error) {
	for !last.IsZero() {
		b, err := blob(last)
		if err != nil {
			return nil, err
		}
		if len(b) < len(last) {
			return nil, fmt.Errorf("link %s has %d bytes", last, len(b))
		}
		group = append(group, b[len(last):])
		last = abi.Hash(b[:len(last)])
	}
	slices.Reverse(group)
	return group, nil
}

// blob names b, and stores it unless it is known to be stored.
func (k *known) blob(c *chain, b []byte) abi.Hash {
	h := sha256.Sum256(b)
	if !k.has(h) {
		c.fresh = append(c.fresh, abi.Blob{Hash: h, Bytes: b})
	}
	return h
}

// A list is one that [wire.Request.Split] took out of the body, and left a
// number for: how many elements it has, or -1 for a text.
type list struct {
	n     int
	grows bool // from request to request
	from  int  // where the number stands
	to    int
}

func (l *list) len() int { return max(l.n, -l.n) }

// lists finds the numbers that were left.
func lists(rest []byte) (all []list) {
	d := json.NewDecoder(bytes.NewReader(rest))
	if _, err := d.Token(); err != nil {
		return nil
	}
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
		if err == nil && slices.Contains([]string{"messages", "input", "system", "instructions", "tools", "functions"}, name) {
			end := int(d.InputOffset())
			all = append(all, list{n, name == "messages" || name == "input", end - len(v), end})
		}
	}
	return all
}

// numbered puts other numbers in the place of those. What is stored has a 1 for
// a list of any length, so that it is the same while a conversation grows: the
// links say how many they are.
func numbered(rest []byte, all []list, number func(*list) int) []byte {
	var b []byte
	from := 0
	for i := range all {
		b = strconv.AppendInt(append(b, rest[from:all[i].from]...), int64(number(&all[i])), 10)
		from = all[i].to
	}
	return append(b, rest[from:]...)
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
