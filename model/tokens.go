package model

import (
	"hash/maphash"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// Overheads of the chat format of OpenAI: each message is framed by three
// tokens and names its role with one, and the answer is primed with three. A
// call and a tool are framed too; there the numbers are above what was seen.
const (
	perMessage = 4
	perAnswer  = 3
	perCall    = 8
	perTool    = 16
	perTools   = 600 // what Anthropic tells a model about tools, at most some 530, before the first
)

// A vocabulary counts with one byte-pair encoding. It is built at first use,
// which takes tens of milliseconds and megabytes, so nothing at start-up may
// count.
type vocabulary struct {
	get   func() *codec.Codec
	weigh func(token string) int // nil: each token is one
	known counts
}

var (
	o200k  = vocabulary{get: sync.OnceValue(codec.NewO200kBase)}
	cl100k = vocabulary{get: sync.OnceValue(codec.NewCl100kBase)}
)

// vocabularyOf is the one of a model of OpenAI. Models it does not know are
// newer than the table, and have had the newer vocabulary since 2024.
func vocabularyOf(name string) *vocabulary {
	name = strings.TrimPrefix(name, "ft:")
	for _, old := range []string{"gpt-4-", "gpt-3.5", "gpt-35", "text-embedding"} {
		if name == "gpt-4" || strings.HasPrefix(name, old) {
			return &cl100k
		}
	}
	return &o200k
}

// CountText counts s in o200k_base, the vocabulary of OpenAI's models since
// GPT-4o. A text counted before costs a hash.
func CountText(s string) int { return o200k.count(s) }

// A Counter counts the tokens of texts for one model: exactly where its
// vocabulary is public, and by an upper bound elsewhere. The zero Counter is
// such a bound for every vocabulary in use.
type Counter struct{ exact *vocabulary }

// CounterOf returns the counter of a model of a provider, which is named as in
// [Facts].
func CounterOf(provider, name string) Counter {
	vendor, _, _ := strings.Cut(provider, "@")
	if vendor == "openai" && (provider == vendor || builtin().knows(vendor, name)) {
		return Counter{vocabularyOf(name)}
	}
	return Counter{}
}

// Count counts the tokens of s.
func (c Counter) Count(s string) int {
	if c.exact != nil {
		return c.exact.count(s)
	}
	return bounded.count(s)
}

// Exact says whether c counts with the model's own vocabulary.
func (c Counter) Exact() bool { return c.exact != nil }

// CountMessage counts m as it stands in a conversation, with the overhead of
// the chat format. A request's count is the sum of its messages', its tools'
// and a constant.
func CountMessage(m Message) int { return o200k.message(m) }

// CutText returns the longest beginning of s, in whole tokens and whole
// characters, that counts at most n tokens.
func CutText(s string, n int) string {
	if n <= 0 {
		return ""
	}
	if CountText(s) <= n {
		return s
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	_, tokens, err := o200k.get().Encode(s)
	if err != nil {
		return s[:min(len(s), n)]
	}
	// A beginning may split into other tokens than it did within the whole
	// text; then one token less is tried.
	for k := min(n, len(tokens)); k > 0; k-- {
		size := 0
		for _, t := range tokens[:k] {
			size += len(t)
		}
		cut := s[:min(size, len(s))]
		for !utf8.ValidString(cut) {
			cut = cut[:len(cut)-1]
		}
		if CountText(cut) <= n {
			return cut
		}
	}
	return ""
}

func (v *vocabulary) count(s string) int {
	if s == "" {
		return 0
	}
	if len(s) < worthwhile {
		n, err := v.sum(s)
		if err != nil {
			return len(s)
		}
		return n
	}
	return v.known.get(textKeyOf(s), func() int {
		n, err := v.sum(s)
		if err != nil {
			return len(s) // a token is at least one byte
		}
		return n
	})
}

func (v *vocabulary) sum(s string) (n int, err error) {
	if v.weigh == nil {
		return v.get().Count(s)
	}
	_, tokens, err := v.get().Encode(s)
	for _, t := range tokens {
		n += v.weigh(t)
	}
	return min(n, len(s)), err
}

func (v *vocabulary) message(m Message) int {
	if len(m.Calls) == 0 && m.CallID == "" {
		return perMessage + v.count(m.Text)
	}
	parts := append(make([]string, 0, 8), m.Text, m.CallID)
	for _, c := range m.Calls {
		parts = append(parts, c.ID, c.Name, c.Args)
	}
	return v.known.get(textKeyOf(parts...), func() int { return v.countMessage(m) })
}

func (v *vocabulary) countMessage(m Message) int {
	n := perMessage + v.count(m.Text)
	for _, c := range m.Calls {
		n += perCall + v.count(c.ID) + v.count(c.Name) + v.count(c.Args)
	}
	if m.CallID != "" {
		n += v.count(m.CallID)
	}
	return n
}

// request counts a request. The texts of messages are exact; a tool is sent to
// the model in a form that is shorter than its JSON, so its JSON is a bound.
func (v *vocabulary) request(r Request) int {
	n := perAnswer
	for _, m := range r.Messages {
		n += v.message(m)
	}
	for _, t := range r.Tools {
		n += perTool + v.count(t.Name) + v.count(t.Description) + v.count(string(t.Schema))
	}
	return n
}

// bound counts a request for a model whose vocabulary is not public. Two
// things hold for every byte-pair encoding in use: a token is at least one
// byte, and common pieces of text are tokens everywhere. So each token of
// o200k_base, among the largest vocabularies there are, is taken as the pieces
// that it may fall into in one of half the size, and never as more than its
// bytes; see [pieceBound]. Tests hold it against smaller vocabularies.
func bound(r Request) int {
	n := bounded.request(r)
	if len(r.Tools) > 0 {
		n += perTools
	}
	return n
}

// bounded remembers bounds as the vocabularies remember counts.
var bounded = vocabulary{get: o200k.get, weigh: pieceBound}

// pieceBound is how many tokens of another vocabulary one of o200k_base may
// fall into. Some take digits and signs one by one, and spaces in shorter
// runs; long words fall into more parts; of other alphabets a letter may stand
// alone, and of the scripts with thousands of characters one may be two.
func pieceBound(token string) int {
	letters, halves := 0, 0
	for _, r := range token {
		switch {
		case r >= 0x800:
			halves += 3
		case r >= utf8.RuneSelf:
			halves += 2
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == ' ':
			letters++
		default:
			halves += 2
		}
	}
	n := (halves + 1) / 2
	switch {
	case letters == 0 || letters == 1 && halves > 0 && token[0] != ' ':
	case token[0] == ' ':
		n += 1 + (letters-1)/4
	default:
		n += 1 + (letters+2)/4 // a part of a word, which others part elsewhere
	}
	return min(len(token), n)
}

// counts remembers the counts of texts by hash, so that a conversation that
// grows by a message is not counted again from its beginning. It holds two
// generations: when the young one is full it becomes the old one, so memory is
// bounded and what is in use stays.
type counts struct {
	mu         sync.Mutex
	young, old map[textKey]int
}

// A textKey is 128 bits of two independent hashes, and how long and how many
// the texts are.
type textKey struct {
	a, b     uint64
	n, parts int
}

func textKeyOf(parts ...string) textKey {
	k := textKey{parts: len(parts)}
	for _, s := range parts {
		// Multiplied by an odd number, so that the order of the parts matters.
		k.a = k.a*0x9e3779b97f4a7c15 + maphash.String(seedA, s)
		k.b = k.b*0xc2b2ae3d27d4eb4f + maphash.String(seedB, s)
		k.n += len(s)
	}
	return k
}

const (
	generation = 1 << 13
	worthwhile = 32 // bytes below which counting is as quick as remembering
)

var seedA, seedB = maphash.MakeSeed(), maphash.MakeSeed()

func (c *counts) get(k textKey, count func() int) int {
	c.mu.Lock()
	n, ok := c.young[k]
	if !ok {
		if n, ok = c.old[k]; ok {
			c.put(k, n)
		}
	}
	c.mu.Unlock()
	if ok {
		return n
	}
	n = count()
	c.mu.Lock()
	c.put(k, n)
	c.mu.Unlock()
	return n
}

// put adds to the young generation. c.mu is held.
func (c *counts) put(k textKey, n int) {
	if len(c.young) >= generation {
		c.old, c.young = c.young, nil
	}
	if c.young == nil {
		c.young = make(map[textKey]int)
	}
	c.young[k] = n
}
