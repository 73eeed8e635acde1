// Mutants that a test here kills; each was tried:
//   - a message's overhead is left out: TestCountMatchesOpenAI
//   - the bound is the plain count: TestBoundHoldsForOtherVocabularies
//   - the cache forgets the length or never turns over: TestCountsAreRemembered
//   - CutText cuts within a character: TestCutText
//   - the library counts: TestCountText
//   - Claude's of today is bounded as those before it, or a capital counts once: TestBoundHoldsForClaude
//
// Not killed: CutText without its second count. No text is known whose
// beginning counts more than it did within the whole; the check is for such.
package model

import (
	"encoding/json"
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

// These totals are those that OpenAI's own description of the chat format
// gives for its example conversation.
func TestCountMatchesOpenAI(t *testing.T) {
	r := Request{Messages: []Message{
		{Role: System, Text: "You are a helpful assistant."},
		{Role: User, Text: "hello"},
	}}
	if got := over(t, "openai:gpt-5", nil).Count(r); got != 3+4+6+4+1 {
		t.Errorf("o200k: %d", got)
	}
	if got := over(t, "openai:gpt-4", nil).Count(r); got != 3+4+6+4+1 {
		t.Errorf("cl100k: %d", got)
	}
	for name, want := range map[string]*vocabulary{
		"gpt-4": &cl100k, "gpt-4-turbo": &cl100k, "gpt-3.5-turbo": &cl100k, "ft:gpt-3.5-turbo:x": &cl100k,
		"gpt-4o": &o200k, "gpt-4.1": &o200k, "o3": &o200k, "gpt-5-nano": &o200k, "ft:gpt-4o:x": &o200k, "gpt-9": &o200k,
	} {
		if vocabularyOf(name) != want {
			t.Errorf("%s has the wrong vocabulary", name)
		}
	}
}

// More in a request never counts less, and everything in it counts.
func TestCountIsOfEverything(t *testing.T) {
	for _, ref := range []string{"openai:gpt-5", "anthropic:claude-sonnet-4-5"} {
		m := over(t, ref, nil)
		r := conversation
		last := m.Count(r)
		for name, grow := range map[string]func(r *Request){
			"a message": func(r *Request) { r.Messages = append(r.Messages, Message{Role: User}) },
			"a call":    func(r *Request) { r.Messages = append(r.Messages, Message{Role: Assistant, Calls: []ToolCall{{}}}) },
			"arguments": func(r *Request) {
				r.Messages = append(r.Messages, Message{Role: Assistant, Calls: []ToolCall{{Args: `{"a":"b"}`}}})
			},
			"a tool":        func(r *Request) { r.Tools = append(r.Tools, ToolSpec{Name: "f"}) },
			"a description": func(r *Request) { r.Tools = append(r.Tools, ToolSpec{Name: "f", Description: "does something"}) },
			"a schema": func(r *Request) {
				r.Tools = append(r.Tools, ToolSpec{Name: "f", Schema: json.RawMessage(`{"type":"object"}`)})
			},
		} {
			g := Request{Messages: append([]Message{}, r.Messages...), Tools: append([]ToolSpec{}, r.Tools...)}
			grow(&g)
			if got := m.Count(g); got <= last {
				t.Errorf("%s: with %s it counts %d, without %d", ref, name, got, last)
			}
		}
	}
}

// corpora are texts of the kinds that go through an agent.
func corpora(t testing.TB) map[string]string {
	t.Helper()
	code, err := os.ReadFile("remote.go")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := os.ReadFile("testdata/anthropic/tools.sse")
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
	for kind, text := range corpora(t) {
		got := bounded.count(text)
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
	texts := corpora(t)
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
		if got := CounterOf("anthropic", "claude-opus-4-8").Count(texts[kind]); got < want || got > want*4 {
			t.Errorf("%s: the bound is %d for %d tokens", kind, got, want)
		}
	}
	for name, of := range map[string]*vocabulary{
		"claude-opus-4-7": &claude, "claude-opus-4-8": &claude, "claude-opus-5": &claude, "claude-haiku-5-5": &claude, "claude-fable-5-2": &claude,
		"anthropic/claude-opus-4.8": &claude, "claude-new": &claude,
		"claude-opus-4-6": nil, "claude-opus-4-20250514": nil, "claude-haiku-4-5-20251001": nil, "claude-sonnet-4-6": nil, "claude-3-7-sonnet-latest": nil, "llama3": nil,
	} {
		if got := CounterOf("openai@host", name); got.of != of || got.Exact() {
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
	for _, c := range []Counter{{}, CounterOf("openai", "gpt-4o"), CounterOf("openai", "gpt-4")} {
		for _, s := range []string{"x", "user", "call_Ab12Cd34Ef56Gh78Ij90Kl12"} {
			if n := testing.AllocsPerRun(100, func() { c.Count(s) }); n > 0 {
				t.Errorf("%q is counted anew each time: %v allocations", s, n)
			}
		}
	}
}

func TestCountsAreRemembered(t *testing.T) {
	var c counts
	asked := 0
	text := func(i int) string { return fmt.Sprintf("a text that is long enough to be kept: %d", i) }
	get := func(i int) int { return c.get(textKeyOf(text(i)), func() int { asked++; return i }) }
	for i := range 3 * generation {
		if get(i) != i || get(0) != 0 {
			t.Fatal("another text's count")
		}
	}
	if asked != 3*generation {
		t.Errorf("%d texts were counted %d times; what is in use must stay", 3*generation, asked)
	}
	if n := len(c.young) + len(c.old); n > 2*generation {
		t.Errorf("%d counts are kept", n)
	}
	if get(1); asked != 3*generation+1 {
		t.Error("nothing was forgotten")
	}
	if textKeyOf("a", "b") == textKeyOf("b", "a") || textKeyOf("ab") == textKeyOf("a", "b") || textKeyOf("", "a") == textKeyOf("a", "") {
		t.Error("other texts have the same key")
	}
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

// longConversation is about 200,000 tokens in 2,000 messages.
func longConversation() Request {
	var r Request
	for i := range 1000 {
		r.Messages = append(r.Messages,
			Message{Role: Assistant, Calls: []ToolCall{{ID: fmt.Sprintf("call_%d_0", i), Name: "read_file", Args: fmt.Sprintf(`{"path":"src/module_%d/file.go","from":%d}`, i%7, i)}}},
			Message{Role: Tool, CallID: fmt.Sprintf("call_%d_0", i), Text: fmt.Sprintf("%d: %s", i, strings.Repeat("func example(a, b int) (int, error) { return a + b, nil }\n", 9))})
	}
	return r
}

func BenchmarkCountAgain(b *testing.B) {
	for name, ref := range map[string]string{"exact": "openai:gpt-5", "bound": "anthropic:claude-sonnet-4-5"} {
		b.Run(name, func(b *testing.B) {
			m, r := over(b, ref, nil), longConversation()
			b.ReportMetric(float64(m.Count(r)), "tokens")
			b.ReportAllocs()
			for b.Loop() {
				m.Count(r)
			}
		})
	}
}

func BenchmarkCountFirst(b *testing.B) {
	text := corpora(b)["code"]
	for name, v := range map[string]*vocabulary{"exact": {get: o200k.get}, "bound": {get: o200k.get, weigh: bounded.weigh}, "claude": {get: o200k.get, weigh: claudeBound}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				v.sum(text)
			}
		})
	}
}

func BenchmarkMessage(b *testing.B) {
	m := longConversation().Messages[1]
	CountMessage(m)
	for b.Loop() {
		CountMessage(m)
	}
}
