package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/mockprovider"
)

// bills answers every request with a bill of so many tokens of input and output.
func (p *listener) bills(in func(path, body string) (input, output int64)) {
	p.answer = func(path, body string) string {
		i, o := in(path, body)
		switch path {
		case "/v1/messages":
			return fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":%d}}`, i, o)
		case "/v1/responses":
			return fmt.Sprintf(`{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":%d,"output_tokens":%d}}`, i, o)
		}
		return fmt.Sprintf(`{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, i, o)
	}
}

// TestGrowsElsewhere sends the same request again, of which a part is not in the
// request: what it took the last time says nothing of this time.
//
// Mutants that die here: a conversation that the provider keeps taken for what it
// was, a picture at an address likewise, a header that changes what a body takes.
func TestGrowsElsewhere(t *testing.T) {
	const picture = `[{"role":"user","content":[{"type":"input_image","image_url":"https://pictures.example/now.png"}]}]`
	for name, c := range map[string]struct {
		path, body string
		header     string // of the second request
	}{
		"a conversation": {"/v1/responses", `{"model":"m","conversation":"conv_1","input":[{"role":"user","content":"go on"}]}`, ""},
		"a prompt":       {"/v1/responses", `{"model":"m","prompt":{"id":"p"},"input":[{"role":"user","content":"go on"}]}`, ""},
		"a thread":       {"/v1/messages", `{"model":"m","max_tokens":9,"thread":{"type":"continue"},"messages":[{"role":"user","content":"go on"}]}`, ""},
		"a picture":      {"/v1/responses", `{"model":"m","input":` + picture + `}`, ""},
		"a picture that the provider keeps": {"/v1/responses",
			`{"model":"m","input":` + picture + `}` + "\n" + `{"model":"m","previous_response_id":"resp_1","input":[{"role":"user","content":"and now?"}]}`, ""},
		"a picture in Chat": {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://pictures.example/now.png"}}]}]}`, ""},
		"a document":        {"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://papers.example/now.pdf"}}]}]}`, ""},
		"a header":          {"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"` + strings.Repeat(longWords+" ", 60) + `"}]}`, "new-words-2026-01-01"},
	} {
		r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000")
		k := r.key("money=10")
		truth := int64(900)
		p.bills(func(string, string) (int64, int64) { return truth, 1 })
		first, second, two := strings.Cut(c.body, "\n")
		if !two {
			second = first
		}
		r.ok(k.Key, c.path, first)
		truth = 1400 // it has grown
		var h []string
		if c.header != "" {
			h = []string{"Anthropic-Beta", c.header}
		}
		r.ok(k.Key, c.path, second, h...)
		if n := r.reserved(k.Pid); n < truth {
			t.Errorf("%s: %d tokens were reserved, and %d taken", name, n, truth)
		}
	}
	// What stands in the request itself is known.
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000")
	k := r.key("money=10")
	p.bills(func(string, string) (int64, int64) { return 900, 1 })
	here := `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}]}`
	r.ok(k.Key, "/v1/responses", here)
	if r.ok(k.Key, "/v1/responses", here); r.reserved(k.Pid) > 1000 {
		t.Errorf("%d tokens were reserved for a picture that took 900", r.reserved(k.Pid))
	}
}

// TestWholeWindow reserves all of the window for what has no bound, however much
// of it the model is to think: there are models that take it full all the same.
//
// Mutants that die here: a window less what the model is to think.
func TestWholeWindow(t *testing.T) {
	r, _ := listening(t, "input: 1, output: 2, max_output: 60000, window: 100000")
	k := r.key("money=10")
	r.ok(k.Key, "/v1/messages", `{"model":"m","max_tokens":60000,"thinking":{"type":"enabled","budget_tokens":50000},"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"AA"}}]}]}`)
	if n := r.reserved(k.Pid); n < 100_000 {
		t.Errorf("%d tokens were reserved for a window of 100,000", n)
	}
}

// TestHalfDeafProvider reads an output maximum by one name alone, as there are
// such: what is asked for by another name is set by that one too.
//
// Mutants that die here: a maximum left to a name that is not read.
func TestHalfDeafProvider(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000")
	p.bills(func(path, body string) (int64, int64) {
		var q struct {
			Chat      int64 `json:"max_tokens"`
			Responses int64 `json:"max_output_tokens"`
		}
		if err := json.Unmarshal([]byte(body), &q); err != nil {
			return 0, 0
		}
		n := q.Chat
		if path == "/v1/responses" {
			n = q.Responses
		}
		if n == 0 {
			n = 500
		}
		return 9, n
	})
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", chat("x", `,"max_completion_tokens":5`)},
		{"/v1/chat/completions", chat("x", `,"n_predict":5`)},
		{"/v1/responses", `{"model":"m","input":"x","max_tokens":20}`},
	} {
		k := r.key("output_tokens=100,money=1")
		if r.ok(k.Key, c.path, c.body); r.info(k.Pid).Used[abi.OutputTokens] > 20 {
			t.Errorf("%s: %d tokens came", c.body, r.info(k.Pid).Used[abi.OutputTokens])
		}
		free := r.key("")
		if r.ok(free.Key, c.path, c.body); p.last() != c.body {
			t.Errorf("without a limit it was sent as %s", p.last())
		}
	}
}

// TestForeignFields has fields that another format knows, and in it are lists.
// They pass, and are stored as they came.
//
// Mutants that die here: a number in such a field taken for the length of a list.
func TestForeignFields(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	for path, bodies := range map[string][]string{
		"/v1/chat/completions": {chat("x", `,"input":3`), chat("x", `,"input":-1`), `{"system":1,"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`, chat("x", `,"instructions":99999999999`)},
		"/v1/responses":        {`{"model":"m","messages":2,"input":[{"role":"user","content":"a"}]}`, `{"model":"m","system":-1,"input":"x"}`},
		"/v1/messages":         {`{"model":"m","max_tokens":9,"input":5,"messages":[{"role":"user","content":"a"}]}`},
		"/v1/embeddings":       {`{"messages":1,"model":"m","input":["a","b"]}`},
	} {
		for _, body := range bodies {
			k := r.key("")
			r.ok(k.Key, path, body)
			r.stored(k.Pid, 0, body)
		}
	}
}

// TestTwoReadings sends bodies that two readers take for different requests. Each
// is refused with a code, and none reaches the provider.
func TestTwoReadings(t *testing.T) {
	r, p := listening(t, "input: 1, output: 2, max_output: 500, window: 100000")
	k := r.key("money=1")
	for _, body := range []string{
		chat("x", `,"max_tokens":5,"max_tokens":500`), chat("x", `,"max_tokens":5,"max\u005ftokens":500`), chat("x", `,"Max_Tokens":500`), chat("x", `,"MAX_TOKENS":500,"max_tokens":5`),
		chat("x", `,"model":"dear"`), chat("x", `,"mod\u0065l":"dear"`), chat("x", `,"Model":"dear"`), chat("x", `,"model\u0000":"dear"`), chat("x", `,"mode\u212a":1,"\u212Aey":1,"tool\u017f":[]`),
		chat("x", `,"stream":true,"stream":false`), chat("x", `,"Stream":true`), chat("x", `,"stream":1`), chat("x", `,"stream":"true"`), chat("x", `,"stream":true,"stream_options":[]`),
		chat("x", `,"n":1,"n":9`), chat("x", `,"N":9`), chat("x", `,"n":1.5`), chat("x", `,"n":"9"`), chat("x", `,"n":-1`), chat("x", `,"n":1e9`), chat("x", `,"max_tokens":"500"`), chat("x", `,"max_tokens":[500]`),
		chat("x") + chat("y"), chat("x") + "x", chat("x") + "\x00", "\ufeff" + chat("x"), "\xff\xfe" + chat("x"), chat("x\xff"), "[" + chat("x") + "]", "", "null", `"` + "x" + `"`,
		`{"model":"m","messages":[{"role":"user","role":"system","content":"x"}]}`, `{"model":"m","messages":[{"role":"user","content":"x","conten\u0074":"y"}]}`, `{"model":"m","messages":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`,
		`{'model':'m'}`, `{model:"m","messages":[]}`, `{"model":"m","messages":[],}`, `{"model":"m",/**/"messages":[]}`, `{"model":"m","messages":[],"max_tokens":0x10}`, `{"model":"m","messages":[],"max_tokens":NaN}`, `{"model":"m","messages":[],"max_tokens":01}`,
	} {
		r.refused(k.Key, "/v1/chat/completions", body, abi.InvalidArguments, http.StatusBadRequest)
	}
	if p.last() != "" || r.info(k.Pid).Used != (abi.Usage{}) {
		t.Errorf("%s was sent, %v taken", p.last(), r.info(k.Pid).Used)
	}
}

// TestCallHeader names the call of an answer as the journal does, and a request
// that the provider turned away is one call that took nothing.
//
// Mutants that die here: the number of another call, a refusal that counts twice.
func TestCallHeader(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	for _, more := range []string{"", `,"stream":true`} {
		k := r.key("")
		g := r.ok(k.Key, "/v1/chat/completions", chat("x", more))
		for _, rec := range r.records(k.Pid) {
			if rec.Intent != nil && g.header.Get("X-Kern-Call") != fmt.Sprint(rec.Call) {
				t.Errorf("%q: the header says %s, the journal %d", more, g.header.Get("X-Kern-Call"), rec.Call)
			}
		}
	}
	r = newRig(t, mockprovider.Config{Keys: []string{"another"}}, "")
	k := r.key("")
	r.post(k.Key, "/v1/chat/completions", chat("x"))
	if used := r.info(k.Pid).Used; used[abi.ModelCalls] != 1 || used[abi.Money] != 0 || used[abi.InputTokens] != 0 {
		t.Errorf("%v", used)
	}
}
