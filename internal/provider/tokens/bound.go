package tokens

import (
	"iter"
	"strings"
	"unicode/utf8"
)

// boundOfAny bounds the tokens of a text in a vocabulary that is not public. Two
// facts hold for every byte-pair encoding in use: a token is at least one byte, and
// common pieces of text are tokens everywhere. So each token of o200k_base counts
// as the pieces that it may become in a vocabulary of half the size. It never
// counts as more than its bytes. Tests compare the bound with smaller vocabularies.
func boundOfAny(tokens iter.Seq2[uint32, string]) (n int) {
	for _, t := range tokens {
		n += pieceBound(t)
	}
	return n
}

// pieceBound returns how many tokens of another vocabulary one token of o200k_base
// may become. Some vocabularies split digits and signs one by one, use shorter runs
// of spaces and split long words into more parts. A letter of another alphabet may
// be a token of its own. A character of a script with thousands of characters may
// be two tokens.
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
		n += 1 + (letters+2)/4 // a part of a word, which other vocabularies split elsewhere
	}
	return min(len(token), n)
}

// boundOfClaude bounds the tokens of a text in the vocabulary of Claude since Opus
// 4.7, which is not public. Published measurements show a small vocabulary, with
// some fifteen thousand pieces that fit English best. It writes a capital letter as
// a mark and a small letter, and it marks where words begin. So it uses up to half
// as many tokens again as the vocabulary before it. For other languages it uses two
// and a half times the tokens of o200k_base. Letters that form no word are a token
// each. The numbers here are the maximum seen over all words of o200k_base, which
// gives common words low ids.
func boundOfClaude(tokens iter.Seq2[uint32, string]) (n int) {
	var before, t string
	var id uint32
	for next, after := range tokens {
		n += claudeToken(before, id, t, after)
		before, id, t = t, next, after
	}
	n += claudeToken(before, id, t, "")
	return n + n/50 // a margin for texts that were not measured
}

// claudeToken bounds the Claude tokens of t, a token of o200k_base, between its
// neighbours.
func claudeToken(before string, id uint32, t, after string) int {
	if t == "" {
		return 0
	}
	word := strings.TrimPrefix(t, " ")
	part := after != "" && isLetter(after[0]) || word == t && before != "" && isLetter(before[len(before)-1])
	n := claudePieces(id, word, part)
	if word == t && !part && isLetter(t[0]) {
		n++ // the mark of a word that begins without a space
	}
	return n
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' || b >= utf8.RuneSelf }

// claudePieces bounds the Claude tokens of one token of o200k_base without its
// leading space. part is true if the token is only a part of a word.
func claudePieces(id uint32, word string, part bool) int {
	small, large, other, last := 0, 0, 0, rune(-1)
	for _, r := range word {
		again := r == last
		last = r
		switch {
		case again && (r == ' ' || r == '\t' || r == '\n'):
			other++ // runs of white space are pieces
		case r >= '0' && r <= '9' && len(word) <= 3 && other > 0:
			// up to three digits are one piece
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
	n := small + 2*large + (other+1)/2 // the bound of letters that form no word
	// Common words have low ids in o200k_base and few pieces in Claude's vocabulary.
	switch {
	case other > 0 || small == 0 && large < 3 || strings.Count(word, word[:min(1, len(word))]) > len(word)/2:
		return max(1, n)
	case small == 0:
		return large + 2 // one mark covers a word of capitals
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
