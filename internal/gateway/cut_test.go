package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/syscalls"
)

// cut holds that an answer which a limit cut says so everywhere: in its headers, in
// its JSON, in the journal and in the exit of its process.
func (r *rig) cut(pid abi.Pid, g got, c abi.Ceiling) {
	r.t.Helper()
	if h := g.header.Get("X-Kern-Lowered"); h != c.String() {
		r.t.Errorf("X-Kern-Lowered is %q, want %q", h, c.String())
	}
	member := fmt.Sprintf(`"kern":{"cut":{"limit":%q,"granted":%d,"asked":%d}}`, c.Limit, c.Granted, c.Asked)
	if strings.Count(g.body, member) != 1 {
		r.t.Errorf("the body has no %s: %s", member, g.body)
	}
	if streamed := strings.Contains(g.body, "data: "); streamed && !strings.Contains(g.body, " cut at "+c.String()+"\n") || !streamed && g.header.Get("X-Kern-Cut") != c.String() {
		r.t.Errorf("the end of the answer does not name the limit: %q, %s", g.header.Get("X-Kern-Cut"), g.body)
	}
	if a := r.answer(pid); a.Cut == nil || *a.Cut != c {
		r.t.Errorf("the answer is recorded as cut at %v, want %v", a.Cut, c)
	}
	for _, rec := range r.records(pid) {
		if rec.Kind == abi.KindBegan && (rec.Intent.Lowered == nil || *rec.Intent.Lowered != c) {
			r.t.Errorf("the intent is recorded as lowered to %v, want %v", rec.Intent.Lowered, c)
		}
	}
}

// A program whose answer was cut and that ends well has not done its task: the
// process is never done, also after a restart.
//
// Mutants that die here: a cut that the exit forgets, or that is not in a record.
func TestCutIsNeverDone(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: strings.Repeat(longWords+" ", 10), Price: price}, "")
	k := r.key("output_tokens=70")
	r.ok(k.Key, "/v1/chat/completions", chat("x"))
	r.stop()
	r.start()
	if err := r.kernel.Gateway.End(t.Context(), k.Pid, syscalls.ExitArgs{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process has exited", func() bool { return r.info(k.Pid).Exit != nil })
	all := r.records(k.Pid)
	x := all[len(all)-1].Exit
	if x.Exit != abi.ExitLimit || x.Reason != "output_tokens" || x.Code != abi.LimitOutputTokens || x.Err == nil || !strings.Contains(x.Err.Message, "70 of the 1000 output tokens") {
		t.Errorf("%+v, error %v", x, x.Err)
	}
}

// An answer that ends by itself is no answer that a limit cut, also if it uses the
// last token of a lowered maximum.
func TestOwnEndIsNoCut(t *testing.T) {
	for _, words := range []int{1, 69, 70} {
		r := newRig(t, mockprovider.Config{Reply: strings.TrimSpace(strings.Repeat("word ", words)), Price: price}, "")
		k := r.key("output_tokens=70")
		g := r.ok(k.Key, "/v1/chat/completions", chat("x"))
		if g.header.Get("X-Kern-Lowered") == "" || g.header.Get("X-Kern-Cut") != "" || strings.Contains(g.body, `"kern"`) || r.answer(k.Pid).Cut != nil {
			t.Errorf("%d words: %v %s", words, g.header, g.body)
		}
		if err := r.kernel.Gateway.End(t.Context(), k.Pid, syscalls.ExitArgs{}); err != nil {
			t.Fatal(err)
		}
		if x := r.info(k.Pid).Exit; x == nil || x.Exit != abi.ExitDone {
			t.Errorf("%d words, %d tokens: %+v", words, r.info(k.Pid).Used[abi.OutputTokens], x)
		}
	}
}

// TestOwnMaximumIsNoCut: a maximum that the program or the model sets is no lowered one.
func TestOwnMaximumIsNoCut(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: strings.Repeat(longWords+" ", 200), Price: price}, "")
	k := r.key("output_tokens=5000,money=1")
	for _, body := range []string{chat("x", `,"max_tokens":20`), chat("x")} {
		g := r.ok(k.Key, "/v1/chat/completions", body)
		if !strings.Contains(g.body, `"length"`) || g.header.Get("X-Kern-Lowered") != "" || strings.Contains(g.body, `"kern"`) || r.answer(k.Pid).Cut != nil {
			t.Errorf("%v %s", g.header, g.body)
		}
	}
}

// A limit that leaves less than the least output refuses the call, with the default
// and with min_output of kern.yaml.
func TestLeastOutput(t *testing.T) {
	for setting, least := range map[string]int64{"": 62, "min_output: 30%\n": 300, "min_output: 7\n": 16, "min_output: 0\n": 16} {
		r := newRig(t, mockprovider.Config{Reply: strings.Repeat(longWords+" ", 200), Price: price}, setting+`providers:
  openai: {base_url: "$UP/v1", key_env: UP_KEY, models: {m: {input: 1, output: 2, max_output: 1000}}}
`)
		if g := r.ok(r.key(fmt.Sprint("output_tokens=", least)).Key, "/v1/chat/completions", chat("x")); g.header.Get("X-Kern-Cut") == "" {
			t.Errorf("%s: %s", setting, g.body)
		}
		g := r.refused(r.key(fmt.Sprint("output_tokens=", least-1)).Key, "/v1/chat/completions", chat("x"), abi.LimitOutputTokens, http.StatusPaymentRequired)
		if least > 16 && !strings.Contains(g.body, fmt.Sprintf("%d of the 1000 output tokens", least)) {
			t.Errorf("%s: %s", setting, g.body)
		}
	}
}

// Two calls at once, with room for one and a half: the first gets all that it asks
// for, and the second gets the rest and knows it.
func TestCutOfParallelCalls(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: strings.Repeat(longWords+" ", 200), Price: price}, "")
	k := r.key("output_tokens=1500")
	answers := make(chan got, 2)
	for range 2 {
		go func() { answers <- r.ok(k.Key, "/v1/chat/completions", chat("x")) }()
	}
	a, b := <-answers, <-answers
	if a.header.Get("X-Kern-Cut") != "" {
		a, b = b, a
	}
	if a.header.Get("X-Kern-Lowered") != "" || b.header.Get("X-Kern-Cut") != "500 of 1000 output tokens, by the output_tokens limit" {
		t.Errorf("%v\n%v", a.header, b.header)
	}
	r.books(k.Pid)
}

// A maximum of 0 is passed to a provider that knows it, and is never raised.
func TestNoOutput(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	body := `{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"x"}]}`
	r.refused(r.key("money=1").Key, "/v1/messages", body, abi.InvalidArguments, http.StatusBadRequest)
	r.post(r.key("").Key, "/v1/messages", body) // unchanged: the provider decides
	if n := r.mock.Stats().Output; n != 0 {
		t.Errorf("%d tokens", n)
	}
}

// Unknown fields that may switch on a service are refused under a limit, at the top as
// within extra_body; kern.yaml can say that they cost nothing.
func TestUnknownServices(t *testing.T) {
	const providers = `providers:
  openai: {base_url: "$UP/v1", key_env: UP_KEY, free: [vendor], models: {m: {input: 1, output: 2, max_output: 1000}}}
`
	r := newRig(t, mockprovider.Config{Reply: "yes"}, providers)
	k, open := r.key("money=1"), r.key("")
	for _, field := range []string{`"enable_search":true`, `"extra_body":{"enable_search":true}`, `"grounding":{"google_search":{}}`, `"extra_body":{"vendor":{"search":1}}`, `"fast":"yes"`} {
		g := r.refused(k.Key, "/v1/chat/completions", chat("x", ","+field), abi.UnknownPrice, http.StatusBadRequest)
		if !strings.Contains(g.body, "free: [") {
			t.Errorf("%s: %s", field, g.body)
		}
		r.ok(open.Key, "/v1/chat/completions", chat("x", ","+field))
	}
	for _, field := range []string{`"vendor":{"search":1}`, `"new_sampler":0.5`, `"new_mode":false`} {
		r.ok(k.Key, "/v1/chat/completions", chat("x", ","+field))
	}
}

// Both spellings of a model with its provider work in a program, and the list of models
// has something to choose from without a word of configuration.
func TestSpellingsOfAModel(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, `providers:
  local: {format: openai, base_url: "$UP/v1", models: {"llama3": {input: 1, output: 2}, "llama3:8b": {input: 1, output: 2}}}
`)
	k := r.key("money=1")
	for _, name := range []string{"llama3", "local/llama3", "local:llama3", "local:llama3:8b", "local/llama3:8b", "llama3:8b"} {
		r.ok(k.Key, "/v1/chat/completions", strings.Replace(chat("x"), `"model":"m"`, fmt.Sprintf(`"model":%q`, name), 1))
	}
	if names := (provider.Config{Getenv: func(string) string { return "" }}).Models("openai"); len(names) < 10 || !slices.Contains(names, "gpt-5") {
		t.Errorf("%q", names)
	}
}

// A key without a limit on children starts a bounded number of them; with one it has
// that limit.
func TestChildrenOfAKey(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	k, wide := r.key(""), r.key("children=1002")
	derive := func(key string) got { return r.post(key, "/kern/v1/keys", `{"name":"kid"}`) }
	for range 1000 {
		if g := derive(k.Key); g.status != http.StatusOK {
			t.Fatal(g.body)
		}
	}
	if g := derive(k.Key); g.code() != abi.LimitChildren || g.status != http.StatusPaymentRequired {
		t.Errorf("%d %s", g.status, g.body)
	}
	if g := r.post(k.Key, "/v1/chat/completions", chat("x"), "X-Kern-Child", "one more"); g.code() != abi.LimitChildren {
		t.Errorf("%d %s", g.status, g.body)
	}
	for range 1002 {
		if g := derive(wide.Key); g.status != http.StatusOK {
			t.Fatal(g.body)
		}
	}
	if g := derive(wide.Key); g.code() != abi.LimitChildren {
		t.Errorf("%d %s", g.status, g.body)
	}
}
