package tokens

import (
	"iter"
	"strings"
	"unicode/utf8"
)

// boundOfAny bounds a text for a vocabulary that is not public. Two things hold
// for every byte-pair encoding in use: a token is at least one byte, and common
// pieces of text are tokens everywhere. So each token of o200k_base counts as the
// pieces that it may fall into in a vocabulary of half the size, and never as more
// than its bytes. Tests hold the bound against
// smaller vocabularies.
func boundOfAny(tokens iter.Seq2[uint32, string]) (n int) {
	for _, t := range tokens {
		n += pieceBound(t)
	}
	return n
}

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

// boundOfClaude is for the vocabulary of Claude since Opus 4.7, which is not
// public. Others measured that it is small, with some fifteen thousand pieces that
// know English best. It writes a capital letter as a mark and a small letter, and
// marks where words begin. So it takes up to half as much again as the vocabulary
// before it, and two and a half times o200k_base for other languages. Letters that
// make no word take a token each. The numbers here are the most that
// was seen of all words of o200k_base, which numbers common ones low.
func boundOfClaude(tokens iter.Seq2[uint32, string]) (n int) {
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
	part := after != "" && isLetter(after[0]) || word == t && before != "" && isLetter(before[len(before)-1])
	n := claudePieces(id, word, part)
	if word == t && !part && isLetter(t[0]) {
		n++ // the beginning of a word that no space tells
	}
	return n
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' || b >= utf8.RuneSelf }

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
