package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/tokens"
)

// reserved is the input that the last request of a process was admitted with.
func (r *rig) reserved(pid abi.Pid) (n int64) {
	r.t.Helper()
	for _, rec := range r.records(pid) {
		if rec.Intent != nil && rec.Intent.Row == "model" {
			n = rec.Intent.Reserve[abi.InputTokens]
		}
	}
	return n
}

// TestReferences asks with references to what the provider keeps. What came
// through here is known by its size; of anything else the whole window is
// reserved, which a small limit does not have.
//
// Mutants that die here: an answer that is not remembered, one that is
// remembered for every key, or for every model.
func TestReferences(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000}, m2: {input: 1, output: 2, window: 100000")
	k, other := r.key("money=0.02"), r.key("money=0.02")
	said := `[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a few words"}]},{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}"}]`
	p.answer = func(string, string) string {
		return `{"id":"resp_1","object":"response","status":"completed","output":` + said + `,"usage":{"input_tokens":300,"output_tokens":200}}`
	}
	const references = `[{"role":"user","content":"x"},{"type":"item_reference","id":"rs_1"},{"type":"item_reference","id":"fc_1"},{"type":"function_call_output","call_id":"c1","output":"1"}]`
	byItem := `{"model":"m","input":` + references + `}`
	byAnswer := `{"model":"m","previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"c1","output":"1"}]}`
	for _, q := range []string{byItem, byAnswer} {
		r.refused(k.Key, "/v1/responses", q, abi.LimitMoney, http.StatusPaymentRequired)
	}
	r.ok(k.Key, "/v1/responses", `{"model":"m","input":[{"role":"user","content":"x"}]}`)
	said = "[]"
	for q, most := range map[string]int64{byItem: 700, byAnswer: 1000} {
		r.ok(k.Key, "/v1/responses", q)
		if n := r.reserved(k.Pid); n < 200 || n > most {
			t.Errorf("%s: %d tokens were reserved, want up to %d", q, n, most)
		}
		r.refused(k.Key, "/v1/responses", strings.Replace(q, `"m"`, `"m2"`, 1), abi.LimitMoney, http.StatusPaymentRequired)
		r.refused(k.Key, "/v1/responses", strings.NewReplacer("rs_1", "rs_2", "resp_1", "resp_2").Replace(q), abi.LimitMoney, http.StatusPaymentRequired)
		r.refused(other.Key, "/v1/responses", q, abi.LimitMoney, http.StatusPaymentRequired)
	}
}

// TestLongConversation reserves what a conversation is known to take and a bound
// of what is new in it, and never less than the provider bills.
//
// Mutants that die here: a beginning that is not found again, one that is found
// for other tools, one found by its length.
func TestLongConversation(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000")
	k := r.key("money=10")
	var truth int64
	p.answer = func(path, _ string) string {
		if path == "/v1/messages" {
			return fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":"a%d"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":1}}`, truth, truth/2, truth-truth/2)
		}
		return fmt.Sprintf(`{"choices":[{"index":0,"message":{"content":"a%d"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, truth, truth)
	}
	user := func(mark string) string {
		return `{"role":"user","content":[{"type":"text","text":"` + longWords + `"` + mark + `}]}`
	}
	const mark, agent = `,"cache_control":{"type":"ephemeral"}`, `{"role":"assistant","content":"a"}`
	const edits = `"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},`
	for path, mark := range map[string]string{"/v1/messages": mark, "/v1/chat/completions": ""} {
		tools, more, asked := `[{"name":"f","input_schema":{}}]`, map[string]string{"/v1/messages": edits}[path], 0
		body := func(turns int, last string) string {
			asked++ // no model reads the metadata, and some programs send others each time
			return `{"model":"m","max_tokens":` + strconv.Itoa(9+asked) + `,"metadata":{"turn":"` + strconv.Itoa(asked) + `"},` + more + `"tools":` + tools + `,"messages":[` + strings.Repeat(user("")+","+agent+",", turns-1) + last + `]}`
		}
		for turn := 1; turn <= 70; turn++ {
			truth = 400 + int64(turn)*40
			r.ok(k.Key, path, body(turn, user(mark)))
			switch n := r.reserved(k.Pid); {
			case n < truth:
				t.Fatalf("%s, turn %d: %d tokens were reserved, and %d taken", path, turn, n, truth)
			case turn > 1 && n > truth+200:
				t.Fatalf("%s, turn %d: %d tokens were reserved for %d", path, turn, n, truth)
			}
		}
		whole := truth + 1000
		r.ok(k.Key, path, body(70, strings.Replace(user(mark), "twenty", "one more", 1)))
		if n := r.reserved(k.Pid); n < truth || n > truth+200 {
			t.Errorf("%s: another end: %d tokens were reserved for %d", path, n, truth)
		}
		tools = `[{"name":"g","input_schema":{}}]`
		if r.ok(k.Key, path, body(70, user(mark))); r.reserved(k.Pid) < whole {
			t.Errorf("%s: %d tokens were reserved with other tools", path, r.reserved(k.Pid))
		}
		tools, truth = `[{"name":"h","input_schema":{}}]`, 10 // who counts so does not count all
		r.ok(k.Key, path, body(70, user(mark)))
		if r.ok(k.Key, path, body(70, user(mark))); r.reserved(k.Pid) < whole {
			t.Errorf("%s: %d tokens were reserved where the provider says 10", path, r.reserved(k.Pid))
		}
	}
}

// TestGrowing holds the bounds of a growing conversation with calls against what
// the provider for tests counts.
func TestGrowing(t *testing.T) {
	const turns = 12
	reply := ""
	for i := range turns {
		reply += fmt.Sprintf("  - {text: \"%s\", calls: [{tool: look, args: {at: %d}}]}\n", longWords, i)
	}
	talks(t, func(t *testing.T, face string, stream bool) {
		r := newRig(t, mockprovider.Config{Script: script(t, "price: {input: 1.00, output: 2.00}\nreplies:\n"+reply+"  - {text: the end}\n")}, "")
		k := r.key("money=1")
		a := (&talk{r: r, key: k.Key, face: face, stream: stream}).say("go")
		for i := 0; len(a.calls) == 1 && i < turns; i++ {
			a.result(false, fmt.Sprintf("result %d: %s", i, longWords))
		}
		r.books(k.Pid)
		reserved := make(map[uint64]int64)
		n, loose := 0, int64(0)
		for _, rec := range r.records(k.Pid) {
			if rec.Intent != nil && rec.Intent.Row == "model" {
				reserved[rec.Call] = rec.Intent.Reserve[abi.InputTokens]
			}
			if most, ok := reserved[rec.Call]; ok && rec.Answer != nil {
				n++
				took := rec.Answer.Usage[abi.InputTokens]
				if loose = most - took; loose < 0 {
					t.Errorf("call %d took %d tokens of input, and %d were reserved", rec.Call, took, most)
				}
			}
		}
		if n != turns+1 || loose > 250 {
			t.Errorf("%d calls, of which the last had %d tokens too many", n, loose)
		}
	})
}

// TestMovedParts reserves what an earlier request took, and a bound of the parts that
// it did not have, where a conversation does not only grow: a program that puts the
// time first, drops old elements and keeps its files at the end.
//
// Mutants that die here: a part that counts as often as it is said, thoughts that
// count where they were dropped, other tools that count as known.
func TestMovedParts(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000")
	k := r.key("money=10")
	truth := int64(0)
	p.answer = func(string, string) string {
		return fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":1}}`, truth)
	}
	word := func(i int) string { return fmt.Sprintf("%d. %s", i, longWords) }
	user := func(text string) string { return `{"role":"user","content":"` + text + `"},` }
	files := user("these are the files: " + strings.Repeat(longWords, 20))
	said := func(i int) string { return user(word(i)) + `{"role":"assistant","content":"` + word(-i) + `"},` }
	thought := `{"role":"assistant","content":[{"type":"thinking","thinking":"` + strings.Repeat(longWords, 9) + `","signature":""},{"type":"text","text":"a"}]},`
	ask := func(turn int, tools, messages string) int64 {
		r.ok(k.Key, "/v1/messages", fmt.Sprintf(`{"model":"m","max_tokens":9,"system":"it is %d o'clock","tools":%s,"messages":[%s{"role":"user","content":"go"}]}`, turn, tools, messages))
		return r.reserved(k.Pid)
	}
	tools := `[{"name":"f","description":"` + strings.Repeat(longWords, 10) + `","input_schema":{}}]`
	one := int64(tokens.Counter{}.Count(word(10)))
	counted := int64(tokens.Counter{}.Count(files))
	truth = 700
	first := ask(0, tools, files)
	for turn := range 12 {
		talk := ""
		for i := max(0, turn-3); i <= turn; i++ {
			talk += said(i)
		}
		before := truth
		truth = 700 + 2*one*int64(min(turn+1, 4))
		if n := ask(turn+1, tools, talk+files); n < truth || n > before+2*one+60 {
			t.Errorf("turn %d: %d tokens were reserved; the request before took %d, this one %d", turn, n, before, truth)
		}
	}
	if n := ask(20, tools, files+files); n < truth+counted {
		t.Errorf("the same files twice: %d tokens were reserved, and each time may take %d", n, counted)
	}
	if n := ask(21, strings.Replace(tools, "twenty", "other", 1), files); n < first {
		t.Errorf("other tools: %d tokens were reserved, want %d", n, first)
	}
	truth = 900
	ask(22, tools, thought+files+files)
	if n, more := ask(23, tools, thought+files), int64(tokens.Counter{}.Count(strings.Repeat(longWords, 9))); n < truth+more && n < first+more {
		t.Errorf("thoughts in another place: %d tokens were reserved, and they alone may take %d", n, more)
	}
}

// TestCountTokens asks what a request will take: about what the provider counts, and
// in a header the bound that it is admitted by then, which Claude's own vocabulary is
// not beyond. The bound is less for what the provider said of the conversation. It
// leaves no record.
func TestCountTokens(t *testing.T) {
	const name = "claude-opus-4-8"
	r := newRig(t, mockprovider.Config{Reply: "ja"}, `providers:
  anthropic: {base_url: "$UP", key_env: UP_KEY, models: {claude-opus-4-8: {input: 1, output: 2, window: 200000, max_output: 1000}}}
`)
	k := r.key("")
	const said = "Die Donaudampfschifffahrtsgesellschaft VERKAUFT ihre Kapitänsmützen an XKCDQZW."
	question := `{"role":"user","content":"` + said + `"}`
	more := question + `,{"role":"assistant","content":"ja"},{"role":"user","content":"und?"}`
	count := func(messages string) int64 {
		var c struct {
			Tokens int64 `json:"input_tokens"`
		}
		g := r.ok(k.Key, "/v1/messages/count_tokens", `{"model":"`+name+`","max_tokens":50,"messages":[`+messages+`]}`)
		bound, bad := strconv.ParseInt(g.header.Get("X-Kern-Bound"), 10, 64)
		if err := json.Unmarshal([]byte(g.body), &c); err != nil || bad != nil || c.Tokens > bound || c.Tokens < int64(tokens.CountText(messages))/2 {
			t.Fatal(err, bad, g.body, bound)
		}
		return bound
	}
	first, long := count(question), count(more)
	if bound := int64(catalog.CounterOf("anthropic", name).Count(said)); first < bound {
		t.Errorf("%d tokens, and the text alone may be %d", first, bound)
	}
	if n := len(r.records(k.Pid)); n != 1 {
		t.Errorf("%d records", n)
	}
	ask := func(messages string) int64 {
		r.ok(k.Key, "/v1/messages", `{"model":"`+name+`","max_tokens":50,"messages":[`+messages+`]}`)
		return r.reserved(k.Pid)
	}
	if in := ask(question); in != first {
		t.Errorf("%d tokens were told, and %d reserved", first, in)
	}
	known := count(more)
	if known >= long {
		t.Errorf("%d tokens, and %d before the provider told of the beginning", known, long)
	}
	if in := ask(more); in != known {
		t.Errorf("%d tokens were told, and %d reserved", known, in)
	}
}

// TestCountTokensOfOpenAI counts as OpenAI does: four tokens for a message, three for
// the answer to come, and the text in the public vocabulary.
func TestCountTokensOfOpenAI(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "ja"}, `providers:
  openai: {base_url: "$UP/v1", key_env: UP_KEY, models: {gpt-4o: {input: 1, output: 2, window: 100000, max_output: 1000}}}
  anthropic: {base_url: "$UP", key_env: UP_KEY, models: {claude-opus-4-5: {input: 1, output: 2, window: 200000, max_output: 1000}}}
`)
	k := r.key("")
	long := strings.Repeat("It is "+longWords+". ", 30)
	text := int64(tokens.CountText(long))
	for _, c := range []struct {
		path, body  string
		least, most int64
	}{
		{"/v1/responses/input_tokens", `{"model":"gpt-4o","input":"hi"}`, 8, 8},
		{"/v1/responses/input_tokens", `{"model":"gpt-4o","input":[{"role":"user","content":"` + long + `"}]}`, text + 7, text + 7},
		{"/v1/responses/input_tokens", `{"model":"gpt-4o","instructions":"hi","input":[{"role":"user","content":"` + long + `"}]}`, text + 12, text + 12},
		{"/v1/messages/count_tokens", `{"model":"claude-opus-4-5","messages":[{"role":"user","content":"hi"}]}`, 8, 9},
		{"/v1/messages/count_tokens", `{"model":"claude-opus-4-5","system":"hi","messages":[{"role":"user","content":"` + long + `"}]}`, text, text * 6 / 5},
	} {
		var got struct {
			Tokens int64 `json:"input_tokens"`
		}
		g := r.ok(k.Key, c.path, c.body)
		bound, _ := strconv.ParseInt(g.header.Get("X-Kern-Bound"), 10, 64)
		if err := json.Unmarshal([]byte(g.body), &got); err != nil || got.Tokens < c.least || got.Tokens > c.most || got.Tokens > bound {
			t.Errorf("%s %.90s: %v %s of at most %d, want %d to %d", c.path, c.body, err, g.body, bound, c.least, c.most)
		}
	}
}

// TestUntold books an answer whose size nobody tells: in the vocabulary of its
// model, and not in one in which it is less.
func TestUntold(t *testing.T) {
	const name, said = "claude-opus-4-8", "VERKAUFT XKCDQZW Kapitänsmützen"
	fault, err := mockprovider.ParseFault("nousage")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, mockprovider.Config{Reply: said, Faults: []mockprovider.Fault{fault}}, `providers:
  anthropic: {base_url: "$UP", key_env: UP_KEY, models: {claude-opus-4-8: {input: 1, output: 2, window: 200000, max_output: 1000}}}
`)
	k := r.key("")
	r.ok(k.Key, "/v1/messages", `{"model":"`+name+`","max_tokens":500,"messages":[{"role":"user","content":"x"}]}`)
	want := int64(catalog.CounterOf("anthropic", name).Said(said))
	if got := r.info(k.Pid).Used[abi.OutputTokens]; got < want || want <= int64(tokens.CountText(said)) {
		t.Errorf("%d output tokens are booked, want at least %d", got, want)
	}
}
