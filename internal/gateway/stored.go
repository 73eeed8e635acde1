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

// A storedRequest is a request in the form in which the journal stores it. Each
// element of its conversation is a link. A link is a blob of two parts: the 32 bytes
// that name the link before it, and the element. The last link therefore names the
// whole conversation, and a request adds only its new elements to the journal.
//
// An element longer than shortElement is a blob of its own. Its link holds a zero byte
// and the name of that blob. All links after a changed element are new, so short links
// keep the cost low for programs that change the beginning of a conversation. Some
// programs put the time there or drop old elements.
//
// The tools and the rest of the body are the same in every request of a conversation,
// so each is a blob of its own.
//
// The parts of the intent are, in this order:
//   - the rest of the body;
//   - for each list in the rest that is not empty, in the order of the body: its blob,
//     or its last link;
//   - the blobs that may be new to the journal.
type storedRequest struct {
	pid   abi.Pid
	parts []abi.Hash
	named int        // how many parts come before the blobs that may be new
	fresh []abi.Blob // the blobs that may be new; nil after release
	prefix
}

// store splits a request into blobs for the journal. The journal stores the new blobs
// with the intent.
func (k *storedBlobs) store(pid abi.Pid, q *format.Request) (c storedRequest) {
	c.pid = pid
	rest, msgs := q.Split()
	groups := lists(q.Format, rest)
	rest = numbered(rest, groups, func(l *list) int { return min(l.n, 1) })
	c.parts = append(c.parts, k.blob(&c, rest))
	c.common = append(c.common, c.fields(q.Format, rest))
	for _, g := range groups {
		group := msgs[:g.len()]
		msgs = msgs[g.len():]
		for _, m := range group {
			c.part(g.name, m)
		}
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
			b, _ := json.Marshal(group) // its elements are valid JSON already
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

// bytes returns the size of the blobs that may be new.
func (c *storedRequest) bytes() (n int64) {
	for i := range c.fresh {
		n += int64(len(c.fresh[i].Bytes))
	}
	return n
}

// shortElement is the size up to which a link holds the element itself.
const shortElement = 128

// link returns the link of element m after the link last. own reports that m is a
// blob of its own.
func link(last abi.Hash, m []byte) (b []byte, own bool) {
	b = append(make([]byte, 0, len(last)+1+max(len(last), min(len(m), shortElement))), last[:]...)
	if len(m) <= shortElement {
		return append(b, m...), false
	}
	name := sha256.Sum256(m)
	return append(append(b, 0), name[:]...), true
}

// Stored returns the original body of a request, joined from the parts of its intent.
// f is the name of its format, and blob reads a blob of the journal.
func Stored(f string, parts []abi.Hash, blob func(abi.Hash) ([]byte, error)) ([]byte, error) {
	if len(parts) == 0 {
		return nil, errors.New("the call has no request that is stored in parts")
	}
	rest, err := blob(parts[0])
	if err != nil {
		return nil, err
	}
	if err := refusedNote(rest); err != nil {
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

// links returns the elements of a conversation in order, read back from its last link.
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
		if len(m) == 1+len(last) && m[0] == 0 { // no JSON begins with a zero byte, so this is the name of a blob
			if m, err = blob(abi.Hash(m[1:])); err != nil {
				return nil, err
			}
		}
		group = append(group, m)
	}
	slices.Reverse(group)
	return group, nil
}

// blob returns the name of b. It adds b to c.fresh unless the journal is known to
// have it.
func (k *storedBlobs) blob(c *storedRequest, b []byte) abi.Hash {
	h := sha256.Sum256(b)
	if !k.has(c.pid, h) {
		c.fresh = append(c.fresh, abi.Blob{Hash: h, Bytes: b})
	}
	return h
}

// A list is a list that [format.Request.Split] took out of the body. Split left a
// number in its place: the number of its elements, or -1 for a text.
type list struct {
	name  string
	n     int
	grows bool // the list grows from request to request
	from  int  // the number is at rest[from:to]
	to    int
}

func (l *list) len() int { return max(l.n, -l.n) }

// lists finds the numbers that [format.Request.Split] left in rest.
func lists(f format.Format, rest []byte) (all []list) {
	start := jsontext.Blank(rest, 0)
	for key, val := range jsontext.Spans(rest[start:]) {
		name := jsontext.String(rest[start+key.From : start+key.To])
		from, to := start+val.From, start+val.To
		if n, err := strconv.Atoi(string(rest[from:to])); err == nil && f.Parted(name) {
			all = append(all, list{name, n, name == "messages" || name == "input", from, to})
		}
	}
	return all
}

// numbered replaces the number of each list in rest. The stored text has a 1 for a
// list of any length, so it stays the same while a conversation grows. The links give
// the real length.
func numbered(rest []byte, all []list, number func(*list) int) []byte {
	var b []byte
	from := 0
	for i := range all {
		b = strconv.AppendInt(append(b, rest[from:all[i].from]...), int64(number(&all[i])), 10)
		from = all[i].to
	}
	return append(b, rest[from:]...)
}

// storedBlobs remembers blobs that the journal has, so that the gateway does not send
// them again. If it forgets a blob, the gateway sends it twice and the journal stores
// it once. It remembers them by process: a blob that only other processes named goes
// when those are removed.
type storedBlobs struct {
	recent.Cache[blobOf, struct{}]
}

// A blobOf is a blob that records of a process name.
type blobOf struct {
	pid  abi.Pid
	hash abi.Hash
}

// maxRemembered is the number of names in one generation of a cache.
const maxRemembered = 1 << 16

func (k *storedBlobs) has(pid abi.Pid, h abi.Hash) bool {
	_, ok := k.Get(blobOf{pid, h})
	return ok
}

func (k *storedBlobs) add(pid abi.Pid, names []abi.Hash) {
	for _, h := range names {
		k.Put(blobOf{pid, h}, struct{}{})
	}
}
