// Package tokens counts the tokens of texts in the public vocabularies of OpenAI.
//
// A text is split into pieces, and a piece into tokens. A vocabulary defines a
// piece by a regular expression; here a scanner finds pieces by the classes of the
// characters (split.go). A piece that is not a token is merged from its bytes
// (merge.go). Each merge joins the two neighbours whose joint token has the least
// id.
//
// The work is at most n log n of the longest piece for any text. The vocabularies
// come from a library, and the tests compare these counts with the library's own.
package tokens

import (
	"iter"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// O200k and Cl100k return the vocabularies o200k_base and cl100k_base. Each is built at first use,
// which takes tens of milliseconds.
var (
	O200k  = sync.OnceValue(func() *Vocabulary { return newVocabulary(o200k, codec.NewO200kBase()) })
	Cl100k = sync.OnceValue(func() *Vocabulary { return newVocabulary(cl100k, codec.NewCl100kBase()) })
)

// A Vocabulary splits texts into tokens by one rule and one set of tokens. It is safe
// for concurrent use, because it does not change.
type Vocabulary struct {
	rule    rule
	classes *classes
	tokens  *table
	rooms   *sync.Pool
}

func newVocabulary(r rule, c *codec.Codec) *Vocabulary {
	return &Vocabulary{rule: r, classes: classesOnce(), tokens: newTable(c), rooms: &sync.Pool{New: func() any { return new(room) }}}
}

// Count returns the number of tokens of s. A byte that is not UTF-8 counts as the
// character U+FFFD.
func (v *Vocabulary) Count(s string) (n int) {
	r := v.enter()
	for piece := range v.pieces(s) {
		n += int(r.look(v.tokens, piece).count)
	}
	v.leave(r)
	return n
}

// Tokens yields the ids and the texts of the tokens of s. The texts joined are s, if s
// is valid UTF-8.
func (v *Vocabulary) Tokens(s string) iter.Seq2[uint32, string] {
	return func(yield func(uint32, string) bool) {
		r := v.enter()
		defer v.leave(r)
		for piece := range v.pieces(s) {
			if found := r.look(v.tokens, piece); found.count == 1 {
				if !yield(found.id, piece) {
					return
				}
				continue
			}
			r.merge(v.tokens, piece)
			for from := int32(0); int(from) < len(piece); from = r.next[from] {
				token := piece[from:r.next[from]]
				// Every part that merge leaves is a token, so the id is always found.
				id, _ := v.tokens.id(token)
				if !yield(id, token) {
					return
				}
			}
		}
	}
}

func (v *Vocabulary) pieces(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for s := text(s); s != ""; {
			n := v.rule.piece(v.classes, s)
			if !yield(s[:n]) {
				return
			}
			s = s[n:]
		}
	}
}

func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// A room is the working memory of one count. The next count uses it again.
type room struct {
	merger
	lastPiece [1 << 12]lastPiece
}

// A lastPiece is a cached piece and its count. The cache helps, because most pieces
// are words that repeat.
type lastPiece struct {
	found
	size uint8
	text [23]byte
}

// found describes a piece: its number of tokens, and its id if it is one token.
type found struct{ id, count uint32 }

func (v *Vocabulary) enter() *room { return v.rooms.Get().(*room) }

// leave returns the room to the pool, unless a long piece made it large.
func (v *Vocabulary) leave(r *room) {
	if cap(r.next) <= 1<<12 {
		v.rooms.Put(r)
	}
}

func (r *room) look(t *table, piece string) found {
	h := t.hash(piece)
	last := &r.lastPiece[h%uint64(len(r.lastPiece))]
	if string(last.text[:last.size]) == piece {
		return last.found
	}
	id, ok := t.find(piece, h)
	f := found{id, 1}
	if !ok {
		f.count = uint32(r.merge(t, piece))
	}
	// Long pieces seldom repeat, and would push out words that do.
	if len(piece) <= len(last.text) {
		last.found, last.size = f, uint8(copy(last.text[:], piece))
	}
	return f
}
