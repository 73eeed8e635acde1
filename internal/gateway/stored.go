package gateway

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/recent"
)

// A storedRequest is a request as it is stored. The elements of its conversation are
// links: each is a blob of the 32 bytes that name the link before it, and the
// element. So the last link names a conversation, and storing a request costs
// only what is new in it. An element that is not short is a blob by itself, and the link has
// a zero byte and its name: programs put the time at the beginning of a
// conversation, or drop what is old, and all links behind are new then. The tools
// and the rest of the body are the same in every request of a conversation, so each
// is a blob of its own.
//
// The parts of the intent are: the rest; for each list in the rest, in the order
// of the body, its blob or its last link, where it is not empty; and then the
// blobs that may be new to the journal.
type storedRequest struct {
	parts []abi.Hash
	named int        // of the parts, those that are not only there because they are new
	fresh []abi.Blob // nil when they were given away
	prefix
}

// store makes ready to store a request.
func (k *storedBlobs) store(q *format.Request) (c storedRequest) {
	rest, msgs := q.Split()
	groups := lists(q.Format, rest)
	c.parts = append(c.parts, k.blob(&c, numbered(rest, groups, func(l *list) int { return min(l.n, 1) })))
	c.common = append(c.common, c.parts[0])
	for _, g := range groups {
		group := msgs[:g.len()]
		msgs = msgs[g.len():]
		switch {
		case g.n == 0:
		case g.grows:
			var last abi.Hash
			for _, m := range group {
				b, own := link(last, m)
				if own {
					k.blob(&c, m)
				}
				last = k.blob(&c, b)
				c.follow(last, m)
			}
			c.parts = append(c.parts, last)
		default:
			b, _ := json.Marshal(group) // they were read from JSON
			c.parts = append(c.parts, k.blob(&c, b))
			c.common = append(c.common, c.parts[len(c.parts)-1])
		}
	}
	c.named = len(c.parts)
	for i := range c.fresh {
		c.parts = append(c.parts, c.fresh[i].Hash)
	}
	return c
}

// shortElement is the size up to which an element stands in its link.
const shortElement = 128

// link is that of an element behind another, and whether the element is a blob
// of its own.
func link(last abi.Hash, m []byte) (b []byte, own bool) {
	b = append(make([]byte, 0, len(last)+1+max(len(last), min(len(m), shortElement))), last[:]...)
	if len(m) <= shortElement {
		return append(b, m...), false
	}
	name := sha256.Sum256(m)
	return append(append(b, 0), name[:]...), true
}

// Stored is a request as it came, put together from the parts of an intent.
func Stored(f string, parts []abi.Hash, blob func(abi.Hash) ([]byte, error)) ([]byte, error) {
	if len(parts) == 0 {
		return nil, errors.New("the call has no request that is stored in parts")
	}
	rest, err := blob(parts[0])
	if err != nil {
		return nil, err
	}
	groups := lists(format.Format(f), rest)
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
	return format.Join(format.Format(f), numbered(rest, groups, func(l *list) int { return l.n }), msgs)
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
		m := b[len(last):]
		last = abi.Hash(b[:len(last)])
		if len(m) == 1+len(last) && m[0] == 0 { // no JSON begins so
			if m, err = blob(abi.Hash(m[1:])); err != nil {
				return nil, err
			}
		}
		group = append(group, m)
	}
	slices.Reverse(group)
	return group, nil
}

// blob names b, and stores it unless it is known to be stored.
func (k *storedBlobs) blob(c *storedRequest, b []byte) abi.Hash {
	h := sha256.Sum256(b)
	if !k.has(h) {
		c.fresh = append(c.fresh, abi.Blob{Hash: h, Bytes: b})
	}
	return h
}

// A list is one that [format.Request.Split] took out of the body, and left a
// number for: how many elements it has, or -1 for a text.
type list struct {
	n     int
	grows bool // from request to request
	from  int  // where the number stands
	to    int
}

func (l *list) len() int { return max(l.n, -l.n) }

// lists finds the numbers that were left.
func lists(f format.Format, rest []byte) (all []list) {
	start := jsontext.Blank(rest, 0)
	for key, val := range jsontext.Spans(rest[start:]) {
		name := jsontext.String(rest[start+key.From : start+key.To])
		from, to := start+val.From, start+val.To
		if n, err := strconv.Atoi(string(rest[from:to])); err == nil && f.Parted(name) {
			all = append(all, list{n, name == "messages" || name == "input", from, to})
		}
	}
	return all
}

// numbered puts other numbers in the place of those. The stored text has a 1 for
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

// storedBlobs remembers blobs that are in the journal, so that they are not given
// to it again. When it forgets one, the blob is given twice and stored once.
type storedBlobs struct {
	recent.Cache[abi.Hash, struct{}]
}

// maxRemembered is how many names a generation of a cache holds.
const maxRemembered = 1 << 16

func (k *storedBlobs) has(h abi.Hash) bool {
	_, ok := k.Get(h)
	return ok
}

func (k *storedBlobs) add(names []abi.Hash) {
	for _, h := range names {
		k.Put(h, struct{}{})
	}
}
