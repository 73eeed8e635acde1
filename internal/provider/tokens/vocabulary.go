// Package tokens counts the tokens of texts in the public vocabularies of OpenAI.
//
// A text falls into pieces, and a piece into tokens. A vocabulary
// defines a piece by a regular expression; here a scanner reads it off the
// classes of the characters (split.go). A piece that is not itself a token is
// merged from its bytes: of all neighbours that together are a token, first
// those whose token has the least number (merge.go).
//
// The work grows with n log n of the longest piece, whatever the text says. The
// tokens come from a library that carries the vocabularies; its own counting
// is what the tests hold this one against.
package tokens

import (
	"iter"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// O200k and Cl100k are o200k_base and cl100k_base. Each is built at first use,
// which takes tens of milliseconds.
var (
	O200k  = sync.OnceValue(func() *Vocabulary { return newVocabulary(o200k, codec.NewO200kBase()) })
	Cl100k = sync.OnceValue(func() *Vocabulary { return newVocabulary(cl100k, codec.NewCl100kBase()) })
)

// A Vocabulary splits texts in one way into tokens of one set. Nothing in it
// changes, so anybody may use it at any time.
type Vocabulary struct {
	rule    rule
	classes *classes
	tokens  *table
	rooms   *sync.Pool
}

func newVocabulary(r rule, c *codec.Codec) *Vocabulary {
	return &Vocabulary{rule: r, classes: classesOnce(), tokens: newTable(c), rooms: &sync.Pool{New: func() any { return new(room) }}}
}

// Count is how many tokens s is. A byte in it that is part of no character
// counts as the character that stands for such.
func (v *Vocabulary) Count(s string) (n int) {
	r := v.enter()
	for piece := range v.pieces(s) {
		n += int(r.look(v.tokens, piece).count)
	}
	v.leave(r)
	return n
}

// Tokens are the tokens of s with their numbers. Joined they are s, where that
// is text.
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

// A room is the memory of one count, and leaves to the next.
type room struct {
	merger
	lastPiece [1 << 12]lastPiece
}

// A lastPiece is a piece and its count: most pieces are words, and come again.
type lastPiece struct {
	found
	size uint8
	text [23]byte
}

// found describes a piece: how many tokens it is, and the number where it is
// one.
type found struct{ id, count uint32 }

func (v *Vocabulary) enter() *room { return v.rooms.Get().(*room) }

// leave keeps the room, unless a piece made it large.
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
	if len(piece) <= len(last.text) {
		last.found, last.size = f, uint8(copy(last.text[:], piece))
	}
	return f
}
