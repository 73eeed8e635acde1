package tariff

import (
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/provider/tokens"
)

// TestLeast is the fewest tokens that a provider takes as a maximum of output.
//
// Mutants that die here: a budget of one answer taken for that of all, one that is
// not below what was asked for, one that runs over, a floor that a budget lowers.
func TestLeast(t *testing.T) {
	for _, c := range []struct {
		at      Format
		body    string
		choices int64
		asked   int64
		want    int64
	}{
		{Chat, `{}`, 1, 0, 1},
		{Chat, `{}`, 3, 0, 3},
		{Embeddings, `{}`, 0, 0, 0},
		{Responses, `{}`, 1, 0, 16},
		{Responses, `{"reasoning":{"max_tokens":9}}`, 1, 0, 16},
		{Responses, `{"reasoning":{"max_tokens":900}}`, 1, 0, 901},
		{Chat, `{"reasoning":{"max_tokens":900}}`, 3, 0, 2703},
		{Chat, `{"reasoning":{"max_tokens":900}}`, 1, 901, 901},
		{Chat, `{"reasoning":{"max_tokens":900}}`, 1, 900, 1}, // the provider refuses it, whatever it is lowered to
		{Chat, `{"reasoning":{"max_tokens":-1}}`, 1, 0, 1},
		{Chat, `{"reasoning":{"max_tokens":1099511627776}}`, 1024, 0, 1024},
		{Chat, `{"reasoning":{"max_tokens":1099511627775}}`, 1024, 0, 1 << 50},
		{Chat, `{"thinking":{"type":"enabled","budget_tokens":900}}`, 1, 0, 1},
		{Messages, `{"thinking":{"type":"enabled","budget_tokens":900}}`, 1, 0, 901},
		{Messages, `{"thinking":{"type":"adaptive","budget_tokens":900}}`, 1, 0, 1},
	} {
		r := request(t, c.at, c.body)
		r.Choices, r.MaxOutput = c.choices, c.asked
		if got := Of(r).Least; got != c.want {
			t.Errorf("%s at %d, %d answers of %d: %d, want %d", c.body, c.at, c.choices, c.asked, got, c.want)
		}
	}
}

// TestNothing is what a request takes in which nothing is said: more where the
// server and its templates are not known.
//
// Mutants that die here: the words of a server's own counted for everybody, or for
// nobody.
func TestNothing(t *testing.T) {
	r := request(t, Chat, "{}")
	if b := Of(r); b.Input != PerRequest || b.Text != PerRequest || !b.Known || b.Why != "" {
		t.Errorf("%+v", b)
	}
	if r.Count = tokens.OpenAI("gpt-4o"); Of(r).Input != 0 {
		t.Errorf("%+v", Of(r))
	}
}

// TestItem is what one item of a conversation takes, where that is known.
//
// Mutants that die here: an item that counts nothing, or not for what it is.
func TestItem(t *testing.T) {
	r := request(t, Responses, "{}")
	n := int64(tokens.Counter{}.Count(long))
	if got, ok := Item(r, []byte(`{"type":"message","content":[{"type":"output_text","text":"`+long+`"}]}`)); !ok || got < n+PerMessage || got > n+60 {
		t.Errorf("%d tokens, %v, want some more than %d", got, ok, n)
	}
	if got, ok := Item(r, []byte(`{"type":"message","content":[{"type":"input_file","file_id":"f"}]}`)); ok {
		t.Errorf("a file is known to take %d tokens", got)
	}
}

// TestConversation counts each message, and what an embedding reads.
//
// Mutants that die here: messages that count no more than their words.
func TestConversation(t *testing.T) {
	many := strings.Repeat(`{"role":"user","content":"x"},`, 99) + `{"role":"user","content":"x"}`
	for _, c := range []struct {
		at       Format
		body     string
		from, to int64
	}{
		{Chat, `{"messages":[` + many + `]}`, 100*(PerMessage+perObject+1) + PerMessage, 100*(PerMessage+perObject+4) + PerMessage},
		{Messages, `{"system":"x"}`, PerMessage + 1, PerMessage + 4},
		{Embeddings, `{"input":["x","x"]}`, 2 * (PerMessage + 1), 2 * (PerMessage + 4)},
		{Embeddings, `{"input":[1,2,3]}`, 3, 3},
	} {
		if n := Of(request(t, c.at, c.body)).Input - PerRequest; n < c.from || n > c.to {
			t.Errorf("%.60s at %d: %d tokens, want %d to %d", c.body, c.at, n, c.from, c.to)
		}
	}
}

// TestTools counts each tool, and what a model is told of tools at all once.
//
// Mutants that die here: tools that cost no more than their words, the words
// before the first told of each, tools in a space of names that are free.
func TestTools(t *testing.T) {
	const own = `{"type":"function","name":"f"}`
	n := int64(tokens.Counter{}.Count(own))
	for _, c := range []struct {
		body     string
		from, to int64
	}{
		{`{"tools":[]}`, 0, 0},
		{`{"tools":[` + own + `]}`, perTools + perTool + n, perTools + perTool + n},
		{`{"tools":[` + own + `,` + own + `]}`, perTools + 2*(perTool+n), perTools + 2*(perTool+n)},
		{`{"functions":[` + own + `],"tools":[` + own + `]}`, perTools + 2*(perTool+n), perTools + 2*(perTool+n)},
		{`{"tools":[{"type":"namespace","tools":[` + own + `,` + own + `]}]}`, perTools + 3*perTool + 2*n, perTools + 3*perTool + 3*n},
	} {
		b := Of(request(t, Responses, c.body))
		if got := b.Input - PerRequest; got < c.from || got > c.to || b.Input-b.Text != min(got, perTools) {
			t.Errorf("%s: %d tokens, %d of them text, want %d to %d", c.body, got, b.Text, c.from, c.to)
		}
	}
}

// TestValues counts what is no text in a message as it is written.
//
// Mutants that die here: a number that is free.
func TestValues(t *testing.T) {
	for _, v := range []string{"123456789012", "true", "-1.5e300"} {
		w := weigher{r: request(t, Chat, "{}"), b: Bound{Known: true}}
		if w.part([]byte(v)); w.n != int64(len(v)) {
			t.Errorf("%s: %d tokens", v, w.n)
		}
	}
}

// TestDocuments are known where they are texts, and no more than what stands
// beside them elsewhere.
//
// Mutants that die here: a document of a provider's files taken for its text, one
// in parts taken for unknown, the words beside one that is unknown for free.
func TestDocuments(t *testing.T) {
	n := int64(tokens.Counter{}.Count(long))
	for _, c := range []struct {
		more  string
		known bool
		times int64 // that the long text is counted
	}{
		{`"source":{"type":"text","data":"LONG"}`, true, 1},
		{`"source":{"type":"content","content":[{"type":"text","text":"LONG"}]},"title":"LONG"`, true, 2},
		{`"source":{"type":"base64","data":"LONG"},"title":"LONG"`, false, 1},
		{`"source":{"type":"url","url":"https://a.example/f.pdf"}`, false, 0},
		{`"file_id":"f","source":{"type":"text","data":"LONG"}`, false, 0},
		{`"file_id":null,"source":{"type":"text","data":"LONG"}`, true, 1},
		{`"title":"LONG"`, false, 1},
	} {
		w := weigher{r: request(t, Messages, "{}"), b: Bound{Known: true}}
		w.part([]byte(`{"type":"document",` + strings.ReplaceAll(c.more, "LONG", long) + `}`))
		if w.b.Known != c.known || w.b.Known != (w.b.Why == "") || w.n < c.times*n || w.n > c.times*n+50 {
			t.Errorf("%s: known %v, %d tokens, want %v and %d times %d", c.more, w.b.Known, w.n, c.known, c.times, n)
		}
	}
}

// TestMembers is what each member of a part counts: names that every format has
// are free, others are read, and what a tool is given is no part of a message.
//
// Mutants that die here: a member of one kind taken for another, a type or a role
// that hides words, a seal that counts nothing.
func TestMembers(t *testing.T) {
	count := func(s string) int64 { return int64(tokens.Counter{}.Count(s)) }
	w := func(part string) *weigher {
		w := &weigher{r: request(t, Messages, "{}"), b: Bound{Known: true}}
		w.part([]byte(part))
		w.n -= perObject
		return w
	}
	for _, name := range strings.Fields("content text name id call_id tool_call_id tool_use_id function output tool_calls source") {
		if got := w(`{"` + name + `":"word"}`).n; got != count("word") {
			t.Errorf("%s counts %d", name, got)
		}
	}
	for _, name := range []string{"title", "new", "content_type"} {
		if got := w(`{"` + name + `":"word"}`).n; got != count(name)+count("word") {
			t.Errorf("%s counts %d", name, got)
		}
	}
	for _, name := range []string{"type", "role"} {
		if got := w(`{"` + name + `":"user"}`).n; got != 0 && got != count("user")-perWord {
			t.Errorf("%s counts %d", name, got)
		}
		if got := w(`{"` + name + `":"` + long + `"}`).n; got != count(long)-perWord {
			t.Errorf("a long %s counts %d, want %d", name, got, count(long)-perWord)
		}
	}
	const given = `{"type":"image","cache_control":{"ttl":"1h"}}`
	for _, name := range []string{"arguments", "input", "action", "operation"} {
		if got := w(`{"` + name + `":` + given + `}`); got.n != count(given) || got.beside != 0 || got.b.Cached {
			t.Errorf("%s counts %d, want %d; %+v", name, got.n, count(given), got.b)
		}
	}
	for _, name := range []string{"encrypted_content", "signature"} {
		seal := strings.Repeat("1+/A", 100)
		if got := w(`{"` + name + `":"` + seal + `"}`).n; got != 302 { // of base64, with its quotes
			t.Errorf("%s of 400 characters counts %d", name, got)
		}
		if got := w(`{"` + name + `":{"a":"` + long + `"}}`).n; got < count(long)*3/2 {
			t.Errorf("%s that is none counts %d", name, got)
		}
	}
	if got := w(`{"cache_control":{"type":"ephemeral","new":"` + long + `"}}`); got.n != 0 || !got.b.Cached || got.b.Hour {
		t.Errorf("a mark counts %d, %+v", got.n, got.b)
	}
	if got := w(`{"audio":{"id":"a"}}`); got.b.Known || len(got.b.Extras) != 1 || len(strings.Fields(got.b.Extras[0].Why)) < 4 {
		t.Errorf("sound that was said: %+v", got.b)
	}
	if got := w(`{"audio":null}`); !got.b.Known || got.n != 0 {
		t.Errorf("no sound: %+v", got.b)
	}
	for _, beside := range []string{`"type":"tool_definition","definition":{"name":"f"}`, `"type":"additional_tools","tools":[{"name":"f"}]`} {
		if got := w(`{`+beside+`,"title":"`+long+`"}`).n - w(`{`+beside+`}`).n; got != count("title")+count(long) {
			t.Errorf("beside %s a text counts %d, want %d", beside, got, count("title")+count(long))
		}
	}
}

// TestCited counts what marks each sentence of a text that can be cited.
//
// Mutants that die here: an end of sentences that is not known.
func TestCited(t *testing.T) {
	for _, end := range []string{".", "!", "?", `\n`, "\u3002"} {
		bill := func(enabled string) int64 {
			w := weigher{r: request(t, Messages, "{}"), b: Bound{Known: true}}
			w.part([]byte(`{"type":"text","citations":{"enabled":` + enabled + `},"text":"` + strings.Repeat("word"+end, 50) + `"}`))
			return w.n
		}
		if more := bill("true") - bill("null"); more < perTools+50*perCited-1 || more > perTools+50*perCited {
			t.Errorf("%q: %d tokens more", end, more)
		}
	}
}

// TestDepth: parts of a message are read to a bounded depth, because each level
// reads its text once more. A deeper message has no bound.
func TestDepth(t *testing.T) {
	for depth, known := range map[int]bool{maxDepth / 2: true, maxDepth + 1: false, 200: false} {
		deep := strings.Repeat(`[{"a":`, depth/2) + `"x"` + strings.Repeat(`}]`, depth/2)
		b := Of(request(t, Chat, `{"messages":[{"role":"user","content":`+deep+`}]}`))
		if b.Known != known || b.Input < int64(depth) {
			t.Errorf("%d levels: known %v, %d tokens, %s", depth, b.Known, b.Input, b.Why)
		}
	}
}

// TestThinks says which models think unasked and do not show it.
//
// Mutants that die here: a generation that does not taken for one that does, and
// the other way.
func TestThinks(t *testing.T) {
	for name, want := range map[string]bool{
		"gpt-3.5-turbo": false, "gpt-4o": false, "gpt-4.1": false, "chatgpt-4o-latest": false, "claude-2.1": false, "claude-3-7-sonnet-latest": false,
		"claude-opus-4-8": false, "claude-sonnet-4-5": false, "claude-haiku-4-5": false, "gpt-oss-120b": false, "llama3": false, "": false,
		"gpt-5": true, "gpt-5.1-codex-mini": true, "gpt-6.2-sol": true, "o3": true, "o4-mini": true, "claude-opus-5": true, "claude-sonnet-5": true, "claude-haiku-5": true,
	} {
		if ThinksSilently(name) != want {
			t.Errorf("%s thinks in silence: %v", name, !want)
		}
		for at, hidden := range map[Format]bool{Chat: want, Responses: want, Messages: want, Embeddings: false} {
			r := request(t, at, "{}")
			if r.Model = name; Of(r).Hidden != hidden {
				t.Errorf("%s at %d hides what it thinks: %v", name, at, !hidden)
			}
		}
	}
}
