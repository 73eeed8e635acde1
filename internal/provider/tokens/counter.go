package tokens

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kern-run/kern/internal/recent"
)

// A counting is one method to count texts: a vocabulary, a weight of its tokens and
// a cache of counts.
type counting struct {
	vocabulary func() *Vocabulary                         // built at first use, which is slow, so no code counts at start-up
	weigh      func(tokens iter.Seq2[uint32, string]) int // nil: each token counts 1
	known      *recent.Cache[textKey, int]
}

// maxKnown is the number of counts in one generation of the cache. The cache keeps
// short texts too, because a conversation repeats hundreds of names and ids.
// Counting one takes a hundred times as long as finding it in the cache.
const maxKnown = 1 << 15

func newCounting(v func() *Vocabulary, weigh func(iter.Seq2[uint32, string]) int) *counting {
	return &counting{v, weigh, &recent.Cache[textKey, int]{Max: maxKnown}}
}

var (
	byO200k  = newCounting(O200k, nil)
	byCl100k = newCounting(Cl100k, nil)
	byBound  = newCounting(O200k, boundOfAny)
	byClaude = newCounting(O200k, boundOfClaude)
)

// A Counter counts the tokens of texts for one model: exactly where its
// vocabulary is public, and by an upper bound elsewhere. The zero Counter is an
// upper bound for every vocabulary in use but that of Claude since Opus 4.7.
type Counter struct{ by *counting }

// OpenAI returns the exact counter of an OpenAI model. An unknown model gets the
// newer vocabulary, because it is newer than this table.
func OpenAI(name string) Counter {
	name = strings.TrimPrefix(name, "ft:")
	for _, old := range []string{"gpt-4-", "gpt-3.5", "gpt-35", "text-embedding"} {
		if name == "gpt-4" || strings.HasPrefix(name, old) {
			return Counter{byCl100k}
		}
	}
	return Counter{byO200k}
}

// Other returns the counter of a model whose vocabulary is not public.
func Other(name string) Counter {
	_, is, ok := strings.Cut(name, "claude-")
	old := func(p string) bool { return strings.HasPrefix(is, p) }
	if ok && !slices.ContainsFunc(claudeBefore47, old) {
		return Counter{byClaude}
	}
	return Counter{}
}

// claudeBefore47 lists the Claude models with the vocabulary before Opus 4.7.
var claudeBefore47 = []string{"2", "3", "opus-4-0", "opus-4-1", "opus-4-20", "opus-4-5", "opus-4-6", "opus-4.1", "opus-4.5", "opus-4.6", "sonnet-4", "haiku-4"}

// Count counts the tokens of s, or bounds them.
func (c Counter) Count(s string) int {
	if c.by != nil {
		return c.by.count(s)
	}
	return byBound.count(s)
}

// Said counts the output of a model when the provider reports no usage. Without an
// exact vocabulary the result is an estimate by o200k_base. For Claude since Opus
// 4.7 that estimate would be far too low, so the result is the bound.
func (c Counter) Said(s string) int {
	if c.by != nil {
		return c.by.count(s)
	}
	return CountText(s)
}

// Exact reports whether c counts with the model's own vocabulary.
func (c Counter) Exact() bool { return c.by != nil && c.by.weigh == nil }

// Percent returns about how many tokens the model uses for 100 of o200k_base, by
// published measurements.
func (c Counter) Percent() int64 {
	if c.by == byClaude {
		return 150
	}
	return 110
}

// CountText counts s in o200k_base, the vocabulary of OpenAI's models since
// GPT-4o. Counting a text again costs only a hash.
func CountText(s string) int { return byO200k.count(s) }

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
	for _, t := range O200k().Tokens(s) {
		if ends = append(ends, len(t)); len(ends) > 1 {
			ends[len(ends)-1] += ends[len(ends)-2]
		}
		if len(ends) == n {
			break
		}
	}
	// A beginning may split into more tokens alone than within the whole text. In
	// that case the loop drops one more token.
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

func (c *counting) count(s string) int {
	if s == "" {
		return 0
	}
	k := textKeyOf(s)
	if n, ok := c.known.Get(k); ok {
		return n
	}
	n := c.sum(s)
	c.known.Put(k, n)
	return n
}

// sum counts s without the cache.
func (c *counting) sum(s string) int {
	if c.weigh == nil {
		return c.vocabulary().Count(s)
	}
	return c.weigh(c.vocabulary().Tokens(s))
}

// A textKey identifies a text by two independent hashes of 64 bits and its length.
type textKey struct {
	a, b uint64
	n    int
}

var seedA, seedB = maphash.MakeSeed(), maphash.MakeSeed()

func textKeyOf(s string) textKey {
	return textKey{maphash.String(seedA, s), maphash.String(seedB, s), len(s)}
}
