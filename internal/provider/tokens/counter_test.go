// Mutants that a test here kills; each was tried:
//   - the bound is the plain count: TestBoundHoldsForOtherVocabularies
//   - a count is not remembered: TestCountedOnce
//   - CutText cuts within a character: TestCutText
//   - the library counts: TestCountText
//   - Claude's of today is bounded as those before it, or a capital counts once: TestBoundHoldsForClaude
//
// Not killed: CutText without its second count. No text is known whose
// beginning counts more than it did within the whole; the check is for such.
package tokens

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
	"pgregory.net/rapid"
)

func TestCountText(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "hello": 1, "hello world": 2, " ": 1, "tiktoken is great!": 6,
		"antidisestablishmentarianism": 6, "2 + 2 = 4": 7, "お誕生日おめでとう": 8,
		"<|endoftext|>": 7,                    // text, not the token of that name
		"\x7f\x7f\x7f":  3, "{\n  \n  \nx": 3, // both go wrong in the library
	} {
		if got := CountText(text); got != want {
			t.Errorf("%q counts %d, want %d", text, got, want)
		}
	}
	if n := CountText(strings.Repeat("\xff", 100)); n > 300 {
		t.Errorf("what is no text counts %d", n)
	}
}

// samples are texts of the kinds that go through an agent.
func samples(t testing.TB) map[string]string {
	t.Helper()
	code, err := os.ReadFile("counter_test.go")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("../catalog/prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := os.ReadFile("../testdata/anthropic/tools.sse")
	if err != nil {
		t.Fatal(err)
	}
	var hex, digits strings.Builder
	for i := range 400 {
		fmt.Fprintf(&hex, "%08x", uint32(i)*2654435761)
		fmt.Fprintf(&digits, "%d,", uint64(i)*6364136223846793005)
	}
	return map[string]string{
		"english": strings.Repeat("The quick brown fox jumps over the lazy dog, and nevertheless internationalization remains an afterthought. ", 20),
		"code":    string(code), "yaml": string(table), "json": string(stream),
		"german":   strings.Repeat("Die Donaudampfschifffahrtsgesellschaft befördert überraschend viele Fahrgäste. ", 20),
		"russian":  strings.Repeat("Съешь же ещё этих мягких французских булок, да выпей чаю. ", 20),
		"chinese":  strings.Repeat("我能吞下玻璃而不伤身体。人工智能代理需要操作系统内核。", 20),
		"japanese": strings.Repeat("いろはにほへと ちりぬるを。エージェントはプロセスです。", 20),
		"arabic":   strings.Repeat("نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. ", 20),
		"emoji":    strings.Repeat("😀👩‍👩‍👧‍👦🏳️‍🌈 ok ", 30),
		"hex":      hex.String(), "digits": digits.String(),
		"spaces": strings.Repeat("        \t\t\n\n", 60),
		"random": strings.Repeat("qX7zPw-Kd93_mVbnE+Rt/Yu1IoLpAsDfGhJk", 20),
	}
}

// The bound is at least the count in a vocabulary of half the size for every
// kind of text, and in those of a quarter, which knew little but English, for
// what is written in ASCII; and it is not absurdly more.
func TestBoundHoldsForOtherVocabularies(t *testing.T) {
	others := map[string]*codec.Codec{"cl100k": codec.NewCl100kBase(), "p50k": codec.NewP50kBase(), "r50k": codec.NewR50kBase()}
	for kind, text := range samples(t) {
		got := byBound.count(text)
		if got > len(text) {
			t.Errorf("%s: the bound %d is more than its %d bytes", kind, got, len(text))
		}
		line := fmt.Sprintf("%-9s bytes %6d, o200k %5d, bound %.2fx", kind, len(text), CountText(text), float64(got)/float64(CountText(text)))
		for name, c := range others {
			n, err := c.Count(text)
			if err != nil {
				t.Fatal(err)
			}
			line += fmt.Sprintf(", %s %.2fx", name, float64(n)/float64(CountText(text)))
			ascii := strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
			if name != "cl100k" && !ascii || name == "r50k" && (kind == "spaces" || kind == "code") {
				continue // r50k has no runs of spaces
			}
			if got < n {
				t.Errorf("%s: the bound %d is less than %d in %s", kind, got, n, name)
			}
		}
		t.Log(line)
		if kind == "english" && got > 2*CountText(text) {
			t.Errorf("the bound of plain English is %d for %d tokens", got, CountText(text))
		}
	}
}

// What these texts take in the vocabulary of Claude since Opus 4.7 is known from
// a reconstruction that others made and held against millions of the provider's
// own counts (ctok 1.3.0). The bound is no less, and not absurdly more.
func TestBoundHoldsForClaude(t *testing.T) {
	texts := samples(t)
	for kind, text := range map[string]string{
		"capitals": "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG AND NEVERTHELESS INTERNATIONALIZATION REMAINS AN AFTERTHOUGHT. ",
		"titles":   "The Quick Brown Fox Jumps Over The Lazy Dog And Nevertheless Internationalization Remains An Afterthought. ",
		"camels":   "getUserAccountBalanceFromRemoteServer setHttpRequestTimeoutInMilliseconds isAuthenticatedUserAllowedToWriteFile XMLHttpRequestEventTargetFactoryBean ",
		"latin":    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. Ut enim ad minim veniam. ",
		"polish":   "Autonomiczni agenci powinni być uważnie nadzorowani, ponieważ czasami wydają więcej, niż przewidywano. Zeszłego lata kilka przedsiębiorstw odkryło znaczne rachunki.",
		"letters":  strings.Repeat("a", 512),
	} {
		texts[kind] = strings.Repeat(text, 10)
	}
	for kind, want := range map[string]int{
		"english": 721, "german": 761, "russian": 521, "chinese": 620, "japanese": 520, "arabic": 761, "emoji": 870, "hex": 2074, "digits": 3173,
		"spaces": 179, "random": 760, "json": 838, "capitals": 721, "titles": 461, "camels": 771, "latin": 711, "polish": 810, "letters": 5120,
	} {
		if got := Other("claude-opus-4-8").Count(texts[kind]); got < want || got > want*4 {
			t.Errorf("%s: the bound is %d for %d tokens", kind, got, want)
		}
	}
	for name, of := range map[string]*counting{
		"claude-opus-4-7": byClaude, "claude-opus-4-8": byClaude, "claude-opus-5": byClaude, "claude-haiku-5-5": byClaude, "claude-fable-5-2": byClaude,
		"anthropic/claude-opus-4.8": byClaude, "claude-new": byClaude,
		"claude-opus-4-6": nil, "claude-opus-4-20250514": nil, "claude-haiku-4-5-20251001": nil, "claude-sonnet-4-6": nil, "claude-3-7-sonnet-latest": nil, "llama3": nil,
	} {
		if got := Other(name); got.by != of || got.Exact() {
			t.Errorf("%s has the wrong vocabulary", name)
		}
	}
}

func TestCutText(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"one two three", 2, "one two"},
		{"one two three", 3, "one two three"},
		{"one two three", 0, ""},
		{"one two three", -1, ""},
		{"", 5, ""},
	} {
		if got := CutText(c.s, c.n); got != c.want {
			t.Errorf("CutText(%q, %d) = %q, want %q", c.s, c.n, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \n\t😀é世a-f.]{0,40}`)).Draw(t, "s")
		n := rapid.IntRange(0, 30).Draw(t, "n")
		cut := CutText(s, n)
		if !strings.HasPrefix(s, cut) || !utf8.ValidString(cut) {
			t.Fatalf("CutText(%q, %d) = %q", s, n, cut)
		}
		if got := CountText(cut); got > n {
			t.Fatalf("CutText(%q, %d) = %q counts %d", s, n, cut, got)
		}
		if CountText(s) <= n && cut != s {
			t.Fatalf("CutText(%q, %d) = %q, though all of it fits", s, n, cut)
		}
	})
}

// TestCountedOnce: a text that was counted is found, however short it is. A
// conversation has hundreds of names and ids, and comes again with each request.
func TestCountedOnce(t *testing.T) {
	for _, c := range []Counter{{}, OpenAI("gpt-4o"), OpenAI("gpt-4")} {
		for _, s := range []string{"x", "user", "call_Ab12Cd34Ef56Gh78Ij90Kl12"} {
			if n := testing.AllocsPerRun(100, func() { c.Count(s) }); n > 0 {
				t.Errorf("%q is counted anew each time: %v allocations", s, n)
			}
		}
	}
}

// TestVocabularyOfName: the name of a model of OpenAI tells its vocabulary.
func TestVocabularyOfName(t *testing.T) {
	for name, want := range map[string]*counting{
		"gpt-4": byCl100k, "gpt-4-turbo": byCl100k, "gpt-3.5-turbo": byCl100k, "ft:gpt-3.5-turbo:x": byCl100k,
		"gpt-4o": byO200k, "gpt-4.1": byO200k, "o3": byO200k, "gpt-5-nano": byO200k, "ft:gpt-4o:x": byO200k, "gpt-9": byO200k,
	} {
		if OpenAI(name).by != want {
			t.Errorf("%s has the wrong vocabulary", name)
		}
	}
}

func TestCountConcurrently(t *testing.T) {
	text := func(i int) string { return fmt.Sprintf("a text that is long enough to be kept: %d", i) }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				if n := CountText(text(i % 20)); n < 10 {
					t.Errorf("%d", n)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkCountFirst(b *testing.B) {
	text := samples(b)["code"]
	for name, v := range map[string]*counting{"exact": byO200k, "bound": byBound, "claude": byClaude} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				v.sum(text)
			}
		})
	}
}
