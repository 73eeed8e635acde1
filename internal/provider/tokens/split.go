package tokens

// A rule says how a vocabulary splits texts into pieces. The expressions are
//
//	o200k   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	       |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	       |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//	cl100k  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+
//	       |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// The first alternative that matches wins, and it takes as much as it can. Each
// function here returns the matched bytes, or 0 without a match. No function looks
// at a character much more often than once.
type rule bool

const (
	o200k  rule = false
	cl100k rule = true
)

// piece returns the size of the first piece of s. s must not be empty.
func (r rule) piece(c *classes, s string) int {
	if n := short(s); n > 0 && r == cl100k {
		return n
	}
	of, n := c.at(s, 0)
	switch {
	case of&number != 0:
		return c.numbers(s)
	case of&letter != 0, of&opens != 0 && r == o200k: // a combining mark before a word belongs to the word
		return r.word(c, s)
	// One character that is neither letter nor digit may stand before a word and belongs to it.
	case of&line == 0:
		if w := r.word(c, s[n:]); w > 0 {
			return n + w
		}
	}
	if n := r.signs(c, s); n > 0 {
		return n
	}
	return c.spaces(s)
}

func (r rule) word(c *classes, s string) int {
	if r == cl100k {
		return c.letters(s)
	}
	n := c.word(s)
	if n == 0 {
		return 0
	}
	return n + short(s[n:])
}

func (c *classes) letters(s string) (i int) {
	for {
		of, n := c.at(s, i)
		if of&letter == 0 {
			return i
		}
		i += n
	}
}

// word matches characters that open a word, then characters that close it. If no
// closing character follows, the word ends at its last character that both opens
// and closes. Without such a character it is a word of capitals.
func (c *classes) word(s string) int {
	i, end := 0, 0
	of, n := c.at(s, 0)
	for of&opens != 0 {
		i += n
		if of&closes != 0 {
			end = i
		}
		of, n = c.at(s, i)
	}
	for of&closes != 0 {
		i += n
		end = i
		of, n = c.at(s, i)
	}
	if end > 0 {
		return end
	}
	return i
}

// short matches the end of a contraction: 's, 't, 're, 've, 'm, 'll, 'd, in small
// letters or capitals. The long ſ counts as an s.
func short(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && s[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2]|0x20 == 'l' {
			return 3
		}
	}
	if len(s) > 2 && s[1:3] == "ſ" {
		return 3
	}
	return 0
}

func (c *classes) numbers(s string) (i int) {
	for range 3 {
		of, n := c.at(s, i)
		if of&number == 0 {
			break
		}
		i += n
	}
	return i
}

// signs matches a run of characters other than space, letter and number. It takes
// one space before the run and all line ends behind it; o200k takes slashes too.
func (r rule) signs(c *classes, s string) int {
	from := 0
	if s[0] == ' ' {
		from = 1
	}
	i := from
	for i < len(s) {
		of, n := c.at(s, i)
		if of&(space|letter|number) != 0 {
			break
		}
		i += n
	}
	if i == from {
		return 0
	}
	for i < len(s) && (s[i] == '\r' || s[i] == '\n' || s[i] == '/' && r == o200k) {
		i++
	}
	return i
}

// spaces matches white space up to its last line end. Without a line end it takes
// all at the end of the text. Before other text it leaves the last space to the
// next piece, unless there is only one.
func (c *classes) spaces(s string) int {
	i, last, lines := 0, 0, 0
	of, n := c.at(s, 0)
	for of&space != 0 {
		last = i
		i += n
		if of&line != 0 {
			lines = i
		}
		of, n = c.at(s, i)
	}
	switch {
	case lines > 0:
		return lines
	// The next piece is a word or a sign, which takes one space before it.
	case i < len(s) && last > 0:
		return last
	}
	return i
}
