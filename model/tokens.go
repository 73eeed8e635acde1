package model

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kern-run/kern/internal/provider/tokens"
)

// Overheads of the chat format of OpenAI: each message is framed by three
// tokens and names its role with one, and the answer is primed with three. A
// call and a tool are framed too; there the numbers are above what was seen.
const (
	perMessage = 4
	perAnswer  = 3
	perCall    = 8
	perTool    = 16
	perTools   = 1_000 // what Anthropic tells a model about tools before the first: at most some 530, in the words of Claude 3
)

// A vocabulary counts with one byte-pair encoding. It is built at first use,
// which takes tens of milliseconds and megabytes, so nothing at start-up may
// count.
type vocabulary struct {
	get   func() *tokens.Vocabulary
	weigh func(tokens iter.Seq2[uint32, string]) int // nil: each token is one
	known counts
}

var (
	o200k  = vocabulary{get: tokens.O200k}
	cl100k = vocabulary{get: tokens.Cl100k}
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
// such a bound for every vocabulary in use but Claude's of today.
type Counter struct{ of *vocabulary }

// CounterOf returns the counter of a model of a provider, which is named as in
// [Facts].
func CounterOf(provider, name string) Counter {
	vendor, _, _ := strings.Cut(provider, "@")
	switch {
	case vendor == "openai" && (provider == vendor || builtin().knows(vendor, name)):
		return Counter{vocabularyOf(name)}
	case marked(name):
		return Counter{&claude}
	}
	return Counter{}
}

// marked says whether a model is one of Claude's with the vocabulary that they
// have had since Opus 4.7, whoever serves it.
func marked(name string) bool {
	_, is, ok := strings.Cut(name, "claude-")
	return ok && !slices.ContainsFunc([]string{"2", "3", "opus-4-0", "opus-4-1", "opus-4-20", "opus-4-5", "opus-4-6", "opus-4.1", "opus-4.5", "opus-4.6", "sonnet-4", "haiku-4"},
		func(old string) bool { return strings.HasPrefix(is, old) })
}

// Count counts the tokens of s.
func (c Counter) Count(s string) int { return c.vocabulary().count(s) }

func (c Counter) vocabulary() *vocabulary {
	if c.of != nil {
		return c.of
	}
	return &bounded
}

// Said counts what a model said, where nobody tells what it took. Of most that
// are not counted exactly it is a guess; Claude's of today would be far off.
func (c Counter) Said(s string) int {
	if c.of != nil {
		return c.of.count(s)
	}
	return CountText(s)
}

// Exact says whether c counts with the model's own vocabulary.
func (c Counter) Exact() bool { return c.of != nil && c.of.weigh == nil }

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
	var ends []int
	for _, t := range o200k.get().Tokens(s) {
		if ends = append(ends, len(t)); len(ends) > 1 {
			ends[len(ends)-1] += ends[len(ends)-2]
		}
		if len(ends) == n {
			break
		}
	}
	// A beginning may split into other tokens than it did within the whole
	// text; then one token less is tried.
	for _, end := range slices.Backward(ends) {
		cut := s[:end]
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
	return v.known.get(textKeyOf(s), func() int { return v.sum(s) })
}

func (v *vocabulary) sum(s string) int {
	if v.weigh == nil {
		return v.get().Count(s)
	}
	return v.weigh(v.get().Tokens(s))
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

// request counts a request, and bounds it for a model whose vocabulary is not
// public. Two
// things hold for every byte-pair encoding in use: a token is at least one
// byte, and common pieces of text are tokens everywhere. So each token of
// o200k_base, among the largest vocabularies there are, is taken as the pieces
// that it may fall into in one of half the size, and never as more than its
// bytes; see [pieceBound]. Tests hold it against smaller vocabularies.
func (c Counter) request(r Request) int {
	if c.Exact() {
		return c.of.request(r)
	}
	n := c.vocabulary().request(r)
	if len(r.Tools) > 0 {
		n += perTools
	}
	return n
}

// bounded and claude remember bounds as the vocabularies remember counts.
var (
	bounded = vocabulary{get: o200k.get, weigh: func(tokens iter.Seq2[uint32, string]) (n int) {
		for _, t := range tokens {
			n += pieceBound(t)
		}
		return n
	}}
	claude = vocabulary{get: o200k.get, weigh: claudeBound}
)

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

// claudeBound is for the vocabulary of Claude since Opus 4.7, which is not
// public. Measured by others, it is small, some fifteen thousand pieces that
// know English best; it writes a capital letter as a mark and a small letter,
// marks where words begin, and so takes up to half as much again as the one
// before it, two and a half times o200k_base for other languages, and a token
// for each letter where they make no word. The numbers here are the most that
// was seen of all words of o200k_base, which numbers common ones low.
func claudeBound(tokens iter.Seq2[uint32, string]) (n int) {
	var before, t string
	var id uint32
	for next, after := range tokens {
		n += claudeToken(before, id, t, after)
		before, id, t = t, next, after
	}
	n += claudeToken(before, id, t, "")
	return n + n/50 // for what was not measured
}

// claudeToken bounds one token between its neighbours.
func claudeToken(before string, id uint32, t, after string) int {
	if t == "" {
		return 0
	}
	word := strings.TrimPrefix(t, " ")
	part := after != "" && letter(after[0]) || word == t && before != "" && letter(before[len(before)-1])
	n := claudePieces(id, word, part)
	if word == t && !part && letter(t[0]) {
		n++ // the beginning of a word that no space tells
	}
	return n
}

func letter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' || b >= utf8.RuneSelf }

// claudePieces bounds the pieces of one token of o200k_base, which is a word or
// a part of one where it is of letters.
func claudePieces(id uint32, word string, part bool) int {
	small, large, other, last := 0, 0, 0, rune(-1)
	for _, r := range word {
		again := r == last
		last = r
		switch {
		case again && (r == ' ' || r == '\t' || r == '\n'):
			other++ // runs of white space are pieces
		case r >= '0' && r <= '9' && len(word) <= 3 && other > 0:
			// digits are, by up to three
		case r >= 'a' && r <= 'z':
			small++
		case r >= 'A' && r <= 'Z':
			large++
		case r >= 0x800:
			other += 3
		case r >= utf8.RuneSelf:
			other += 4
		default:
			other += 2
		}
	}
	n := small + 2*large + (other+1)/2
	switch {
	case other > 0 || small == 0 && large < 3 || strings.Count(word, word[:min(1, len(word))]) > len(word)/2:
		return max(1, n)
	case small == 0:
		return large + 2 // one mark for all of it
	case large > 1:
		return n
	case part:
		return min(n+1, 3+small/2+2*large)
	case id < 2500:
		return min(n, 2+large)
	case id < 5000:
		return min(n, 3+large)
	case id < 20_000:
		return min(n, 4+large)
	case id < 60_000:
		return min(n, 3+small/4+large)
	}
	return min(n, 3+small/3+large)
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

// generation is how many texts are remembered before the older half is
// forgotten. Short ones are among them: to count the name of a tool takes a
// hundred times as long as to find it here, and a conversation has many.
const generation = 1 << 15

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
