// Mutants that a test here kills; each was tried:
//   - a mark before a word is a sign before it, a space is left where the text ends, a fourth digit is
//     taken, a slash ends no line, the long ſ shortens nothing: TestEverySequence
//   - of equal ranks the right one is merged first, a neighbour's rank stays as it was: TestMerge
//   - a character has another's class: TestEveryCharacter
//   - a lastPiece piece is known by its hash alone, or by its length: TestCorpora
//   - the room of a long piece is kept: TestRoomIsBounded
package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/dlclark/regexp2/v2"
	"github.com/tiktoken-go/tokenizer/codec"
	"pgregory.net/rapid"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A judge counts as the vocabulary is written down: with the expression, read
// by an engine that goes back, and by merging what has the least rank until
// nothing is left to merge.
type judge struct {
	name    string
	ours    *Vocabulary
	library *codec.Codec
	split   *regexp2.Regexp
	rank    map[string]uint
}

var judges = sync.OnceValue(func() []*judge {
	list := []*judge{
		{name: "o200k", ours: O200k(), library: codec.NewO200kBase(), split: regexp2.MustCompile(`(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`+
			`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`+
			`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None)},
		{name: "cl100k", ours: Cl100k(), library: codec.NewCl100kBase(), split: regexp2.MustCompile(`(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+`+
			`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None)},
	}
	for _, j := range list {
		j.rank = make(map[string]uint)
		for id := uint(0); ; id++ {
			token, err := j.library.Decode([]uint{id})
			if err != nil {
				break
			}
			j.rank[token] = id
		}
	}
	return list
})

func (j *judge) pieces(t failer, s string) (pieces []string) {
	m, err := j.split.FindStringMatch(s)
	for ; m != nil && err == nil; m, err = j.split.FindNextMatch(m) {
		pieces = append(pieces, m.String())
	}
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return pieces
}

func (j *judge) merge(piece string) []string {
	if _, ok := j.rank[piece]; ok {
		return []string{piece}
	}
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		at, least := -1, ^uint(0)
		for i := range len(parts) - 1 {
			if r, ok := j.rank[parts[i]+parts[i+1]]; ok && r < least {
				at, least = i, r
			}
		}
		if at < 0 {
			return parts
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// splits holds the pieces of s against the expression's.
func (j *judge) splits(t failer, s string) []string {
	t.Helper()
	want := j.pieces(t, s)
	rest := text(s)
	for i := 0; rest != ""; i++ {
		piece := rest[:j.ours.rule.piece(j.ours.classes, rest)]
		if i == len(want) || piece == "" || piece != want[i] {
			t.Fatalf("%s: in %q piece %d is %q, want %q", j.name, s, i, piece, want[min(i, len(want)-1):min(i+1, len(want))])
		}
		rest = rest[len(piece):]
	}
	return want
}

// counts holds pieces, tokens and count of s against the judge's.
func (j *judge) counts(t failer, s string) {
	t.Helper()
	var want []string
	for _, piece := range j.splits(t, s) {
		want = append(want, j.merge(piece)...)
	}
	var got []string
	for id, token := range j.ours.Tokens(s) {
		if uint(id) != j.rank[token] {
			t.Fatalf("%s: %q is number %d, want %d", j.name, token, id, j.rank[token])
		}
		got = append(got, token)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: the tokens of %q are %q, want %q", j.name, s, got, want)
	}
	for range 2 { // the second time, words are known
		if n := j.ours.Count(s); n != len(want) {
			t.Fatalf("%s: %q counts %d, want %d", j.name, s, n, len(want))
		}
	}
}

// astray is what the library splits otherwise than its own expression says. In
// its compiled form, white space goes back to the first end of a line and not to
// the last, and the character 127 is not seen at all.
var astray = regexp2.MustCompile(`[\r\n][^\S\r\n]+[\r\n]|\x7f`, regexp2.None)

// counted holds the count of s against the library's, where that is right.
func (j *judge) counted(t failer, s string) {
	t.Helper()
	if is, err := astray.MatchString(s); is && err == nil {
		return
	}
	if n, err := j.library.Count(s); err != nil || n != j.ours.Count(s) {
		t.Fatalf("%s: %q counts %d, the library says %d %v", j.name, s, j.ours.Count(s), n, err)
	}
}

func TestVocabulariesAreWhole(t *testing.T) {
	for i, want := range []int{199_998, 100_256} {
		j := judges()[i]
		if got := len(j.ours.tokens.ends); got != want || len(j.rank) != want {
			t.Errorf("%s has %d tokens, want %d", j.name, got, want)
		}
		for token, id := range j.rank {
			if got, ok := j.ours.tokens.id(token); !ok || uint(got) != id {
				t.Fatalf("%s: %q is %d %v, want %d", j.name, token, got, ok, id)
			}
		}
		if _, ok := j.ours.tokens.id("no token, surely"); ok {
			t.Errorf("%s finds what is not there", j.name)
		}
	}
}

// TestEveryCharacter holds the class of each, and how it splits alone, in words,
// before and behind them, where its neighbour is of another class.
func TestEveryCharacter(t *testing.T) {
	c := classesOnce()
	var s strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		var want class
		add := func(of class, is bool) {
			if is {
				want |= of
			}
		}
		add(opens, unicode.In(r, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M))
		add(closes, unicode.In(r, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M))
		add(letter, unicode.IsLetter(r))
		add(number, unicode.IsNumber(r))
		add(space, unicode.IsSpace(r))
		add(line, r == '\r' || r == '\n')
		if c[r] != want {
			t.Fatalf("%U is of class %b, want %b", r, c[r], want)
		}
		if r > 0 && c[r] != c[r-1] || r < 0x3000 {
			x := string(r)
			s.WriteString(x + "a" + x + x + "A" + x + "1 " + x + "\n" + x + " ")
		}
		if r%256 == 255 && s.Len() > 0 {
			for _, j := range judges() {
				j.splits(t, s.String())
			}
			s.Reset()
		}
	}
}

// of each kind of character one or more.
var kinds = []string{"A", "É", "a", "ß", "ǅ", "ʰ", "中", "ª", "\u0301", "\u0903", "\u20dd", "1", "Ⅷ", "½", "١", " ", "\t", "\u00a0", "\u3000", "\u2028", "\u0085",
	"\n", "\r", "'", "’", "s", "S", "ſ", "l", "L", "e", "/", "!", "€", "\u200d", "😀", "\x00", "\ufffd", "\U000E0001", "\xff"}

// TestEverySequence of three kinds, and of five that rules name.
func TestEverySequence(t *testing.T) {
	for _, j := range judges() {
		all(t, j, kinds, 3, "")
		all(t, j, []string{"A", "a", "中", "\u0301", " ", "\n", "'", "s", "!", "1"}, 5, "")
	}
}

func all(t *testing.T, j *judge, of []string, n int, s string) {
	if n == 0 {
		j.splits(t, s)
		return
	}
	for _, c := range of {
		all(t, j, of, n-1, s+c)
	}
}

var texts = rapid.OneOf(rapid.String(),
	rapid.Map(rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 40), func(s []string) string { return strings.Join(s, "") }),
	rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{" the", "Hello", "'S", "'ll", "'ſ", "'Re", " ", "  ", "\n", "\r\n", "1234", "العربية", "한국어", "👩‍👩‍👧", "é", "\xc3", "://", "<|endoftext|>", "日本", "camelCaseHTTPServer"}), 0, 30),
		func(s []string) string { return strings.Join(s, "") }),
	rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 60), func(b []byte) string { return string(b) }))

func TestAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := texts.Draw(t, "s")
		for _, j := range judges() {
			j.counts(t, s)
			j.counted(t, s)
		}
	})
}

func FuzzCount(f *testing.F) {
	for _, s := range corpora(f) {
		f.Add(s[:min(len(s), 300)])
	}
	f.Add("it'S IT'ſ we'Ll don't\u0301 \u0301A\u0301 ǅʰ\r\n \t\n/ \xff\x00 1½Ⅷ9")
	f.Fuzz(func(t *testing.T, s string) {
		for _, j := range judges() {
			j.counts(t, s[:min(len(s), 400)]) // the judge's time grows with the square
		}
	})
}

// TestMerge: a piece of any bytes, and of few, which merge in many ways.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 2, 40), rapid.SliceOfN(rapid.SampledFrom([]byte("aab=")), 2, 200),
			rapid.SliceOfN(rapid.SampledFrom([]byte("etaoinshr")), 2, 200)).Draw(t, "piece"))
		for _, j := range judges() {
			want := j.merge(s)
			var m merger
			if _, ok := j.ours.tokens.id(s); ok {
				continue
			}
			if n := m.merge(j.ours.tokens, s); n != len(want) {
				t.Fatalf("%s: %q is %d tokens, want %q", j.name, s, n, want)
			}
		}
	})
}

// corpora are texts of the kinds that go through an agent.
func corpora(t testing.TB) map[string]string {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var noise []byte
	for last := sha256.Sum256(nil); len(noise) < 24<<10; last = sha256.Sum256(last[:]) {
		noise = append(noise, last[:]...)
	}
	return map[string]string{
		"english": read("../../../RATIONALE.md"),
		"code":    read("../../../policy_test.go"),
		"json":    read("../testdata/anthropic/tools.sse"),
		"cjk":     strings.Repeat("我能吞下玻璃而不伤身体。人工智能代理需要操作系统内核,エージェントはプロセスです。", 200),
		"base64":  base64.StdEncoding.EncodeToString(noise),
	}
}

func TestCorpora(t *testing.T) {
	for _, s := range corpora(t) {
		for _, j := range judges() {
			j.counts(t, s)
			j.counted(t, s)
		}
	}
}

// TestHostile: a megabyte that is one piece, or that an engine which goes back
// reads again from each of its places, takes about as long as any other. What
// grows with the square would not end within the time of a test.
func TestHostile(t *testing.T) {
	for of, want := range map[string]int{
		"a": 131_072, "=": 16_384, " ": 8_192, "中": 349_525, "A": 131_072, "1": 349_526, "aB": 524_289, "\u0301": 524_288,
		"\n ": 262_145, " \t\r": 699_050, "\x7f": 1 << 20, "\xff": 131_072, "中A": 524_288,
	} {
		s := strings.Repeat(of, 1<<20/len(of))
		if got := O200k().Count(s); got != want {
			t.Errorf("a megabyte of %q counts %d, want %d", of, got, want)
		}
		for _, j := range judges() {
			j.counts(t, s[:1000/len(of)*len(of)])
		}
	}
}

func TestRoomIsBounded(t *testing.T) {
	v := O200k()
	v.Count(strings.Repeat("a", 1<<16))
	for range 10 {
		if r := v.rooms.Get().(*room); cap(r.tree) > 4<<12 {
			t.Errorf("room for %d bytes is kept", cap(r.tree)/2)
		}
	}
}

func TestCountAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for kind, s := range corpora(t) {
		want := Cl100k().Count(s)
		for range 4 {
			wg.Go(func() {
				if got := Cl100k().Count(s); got != want {
					t.Errorf("%s: %d, and %d beside others", kind, want, got)
				}
			})
		}
	}
	wg.Wait()
}

func BenchmarkCount(b *testing.B) {
	v, lib := O200k(), codec.NewO200kBase()
	for kind, s := range corpora(b) {
		b.Run(kind, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			b.ReportAllocs()
			for b.Loop() {
				v.Count(s)
			}
		})
		b.Run(kind+"-library", func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lib.Count(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	c := codec.NewO200kBase()
	b.ReportAllocs()
	for b.Loop() {
		newTable(c)
	}
}
