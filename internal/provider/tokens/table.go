package tokens

import (
	"hash/maphash"
	"math/bits"

	"github.com/tiktoken-go/tokenizer/codec"
)

// A table finds the id of a token. It is a hash table without pointers, so the
// garbage collector does not scan it.
type table struct {
	text  string   // all tokens, one behind the other
	ends  []uint32 // the end of each token in text
	slots []uint32 // id+1 above markBits bits of the hash; 0: free
	seed  maphash.Seed
	pairs [1 << 16]uint32 // id+1 of each token of two bytes, because every merge begins with those
}

// markBits is the number of hash bits in a slot. They rule out nearly every wrong
// token without a comparison of texts.
const (
	markBits = 14
	maxToken = 1<<(32-markBits) - 1
)

// newTable builds the table of the tokens of c. The ids of c start at 0 and have no
// gap. A slot holds id+1, because 0 means free.
func newTable(c *codec.Codec) *table {
	t := &table{seed: maphash.MakeSeed(), ends: make([]uint32, 0, 1<<18)}
	text := make([]byte, 0, 1<<20)
	for id := []uint{0}; id[0] < maxToken; id[0]++ {
		token, err := c.Decode(id)
		if err != nil {
			break
		}
		text = append(text, token...)
		t.ends = append(t.ends, uint32(len(text)))
	}
	t.text = string(text)
	// At most half full, so that a search looks at few slots.
	t.slots = make([]uint32, 2<<bits.Len(uint(len(t.ends))))
	for id := range t.ends {
		t.put(uint32(id))
		if s := t.token(uint32(id)); len(s) == 2 {
			t.pairs[pair(s)] = uint32(id) + 1
		}
	}
	return t
}

func (t *table) token(id uint32) string {
	if id == 0 {
		return t.text[:t.ends[0]]
	}
	return t.text[t.ends[id-1]:t.ends[id]]
}

func (t *table) put(id uint32) {
	h := t.hash(t.token(id))
	i := t.first(h)
	for t.slots[i] != 0 {
		i = t.after(i)
	}
	t.slots[i] = (id+1)<<markBits | mark(h)
}

func pair(s string) int                   { return int(s[0])<<8 | int(s[1]) }
func mark(hash uint64) uint32             { return uint32(hash>>32) & (1<<markBits - 1) }
func (t *table) first(hash uint64) uint32 { return uint32(hash) & uint32(len(t.slots)-1) }
func (t *table) after(i uint32) uint32    { return (i + 1) & uint32(len(t.slots)-1) }

// id returns the id of a token. The id is also its rank in merges.
func (t *table) id(s string) (id uint32, ok bool) {
	if len(s) == 2 {
		id := t.pairs[pair(s)]
		return id - 1, id > 0
	}
	return t.find(s, t.hash(s))
}

func (t *table) hash(s string) uint64 { return maphash.String(t.seed, s) }

func (t *table) find(s string, h uint64) (id uint32, ok bool) {
	want := mark(h)
	for i := t.first(h); t.slots[i] != 0; i = t.after(i) {
		if slot := t.slots[i]; slot&(1<<markBits-1) == want {
			// The mark is only a part of the hash, so the text decides.
			if id := slot>>markBits - 1; t.token(id) == s {
				return id, true
			}
		}
	}
	return 0, false
}
