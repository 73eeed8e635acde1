package clients

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

// liveLimit is the most that one run may spend, in dollars. Kern holds it.
const liveLimit = "0.05"

// An endpoint is a real provider, or the mock in its place.
type endpoint struct {
	name  string
	url   string // of the provider's format
	key   string
	model string
	query string
	price string // dollars for a million tokens, in and out
}

// endpoints are those whose keys the environment has.
func endpoints(getenv func(string) string) []endpoint {
	return []endpoint{
		{"openai", cmp.Or(getenv("OPENAI_LIVE_URL"), "https://api.openai.com/v1"), getenv("OPENAI_API_KEY"), cmp.Or(getenv("OPENAI_LIVE_MODEL"), "gpt-4.1-nano"), "", "input: 0.10, output: 0.40"},
		{"anthropic", cmp.Or(getenv("ANTHROPIC_LIVE_URL"), "https://api.anthropic.com"), getenv("ANTHROPIC_API_KEY"), cmp.Or(getenv("ANTHROPIC_LIVE_MODEL"), "claude-haiku-4-5"), "", "input: 1.00, output: 5.00"},
		{"azure", strings.TrimSuffix(getenv("AZURE_OPENAI_ENDPOINT"), "/") + "/openai/v1", getenv("AZURE_OPENAI_API_KEY"), cmp.Or(getenv("AZURE_OPENAI_DEPLOYMENT"), "gpt-4.1-nano"),
			"?api-version=" + cmp.Or(getenv("AZURE_OPENAI_API_VERSION"), "preview"), "input: 0.10, output: 0.40"},
	}
}

// entry is the provider in kern.yaml. The programs ask for gpt-test and claude-test.
func (e endpoint) entry() string {
	auth, format := "key_env: LIVE_KEY", ""
	if e.name == "azure" {
		auth, format = "headers: {api-key: {key_env: LIVE_KEY}}", "format: openai, "
	}
	facts := fmt.Sprintf("{alias: %q, %s, window: 100000, max_output: 4000}", e.model, e.price)
	return fmt.Sprintf("providers:\n  %s: {%sbase_url: %q, %s, models: {gpt-test: %s, claude-test: %s}}\n", e.name, format, e.url, auth, facts, facts)
}

// called is the model as a program names it.
func (e endpoint) called() string {
	return map[string]string{"openai": "gpt-test", "anthropic": "claude-test", "azure": "azure/gpt-test"}[e.name]
}

// TestLive asks the real providers: programs on their SDKs run to their end under a
// limit, and Kern's bound, its booking and its count of tokens are compared with the
// usage that the provider reports. make live runs it.
func TestLive(t *testing.T) {
	if os.Getenv("KERN_LIVE") == "" {
		t.Skip("it costs money; make live runs it, with the keys in .env")
	}
	for _, e := range endpoints(os.Getenv) {
		t.Run(e.name, func(t *testing.T) {
			if e.key == "" {
				t.Skipf("%s has no key; .env.example says which", e.name)
			}
			live(t, e)
		})
	}
}

// TestLiveHarness runs the same with the mock in place of each provider.
func TestLiveHarness(t *testing.T) {
	for _, e := range endpoints(func(name string) string { return map[string]string{"AZURE_OPENAI_ENDPOINT": "http://azure/"}[name] }) {
		t.Run(e.name, func(t *testing.T) {
			s, err := model.ParseScript("live", []byte("price: {input: 1.00, output: 1.00}\nreplies: [{calls: [{tool: get_weather, args: {city: Paris}}]}, {text: It has 21 degrees.}]"))
			if err != nil {
				t.Fatal(err)
			}
			p := serve(t, mockprovider.Config{Script: s})
			front := p.openai
			if e.name == "azure" { // it has its key in a header of its own, and wants the version of its interface
				front = azure(t, p) + "/openai/v1"
			} else if e.name == "anthropic" {
				front = p.anthropic
			}
			e.url, e.key = front, key
			live(t, e)
			if b := p.Idle(t.Context()); b.Requests == 0 || b.Keys[hashOfKey].Requests != b.Requests {
				t.Errorf("%d requests came, %d with the key", b.Requests, b.Keys[hashOfKey].Requests)
			}
		})
	}
}

// azure serves the mock as Azure does.
func azure(t *testing.T, p provider) string {
	return serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Api-Key") != key || r.Header.Get("Authorization") != "" {
			http.Error(w, `{"error":{"message":"Access denied due to invalid subscription key."}}`, http.StatusUnauthorized)
			return
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/openai")
		p.ServeHTTP(w, r)
	}))
}

// live runs programs and probes at an endpoint.
func live(t *testing.T, e endpoint) {
	t.Helper()
	k := newKernel(t, provider{}, "")
	k.env = append(k.env, "LIVE_KEY="+e.key)
	if err := os.WriteFile(filepath.Join(k.data(), "kern.yaml"), []byte(e.entry()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, notes, code := k.kern("account", "set", "live", "--money", liveLimit); code != 0 {
		t.Fatalf("%d %s%s", code, out, notes)
	}
	probe(t, k, e)
	programs := map[string][]client{
		"openai":    {{name: "openai", part: "py", file: "../frameworks/openai_chat.py"}, {name: "openai-node", part: "node", file: "live-openai.mjs"}},
		"anthropic": {{name: "anthropic", part: "py", file: "../frameworks/anthropic_messages.py"}, {name: "anthropic-node", part: "node", file: "live-anthropic.mjs"}},
	}
	for _, c := range programs[e.name] {
		if c.part != "node" && os.Getenv("KERN_LIVE") == "" { // Python takes seconds to start, and TestGateway has it
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			out, notes, code := k.kern(append([]string{"exec", "--account", "live", "--steps", "10", "--"}, c.argv(t, "")[:2]...)...)
			t.Logf("%s%s", out, notes)
			if code != 0 && !strings.Contains(notes, "LIMIT_") {
				t.Errorf("exit code %d", code)
			}
		})
	}
	out, notes, _ := k.kern("account", "show", "live")
	t.Logf("%s%s", out, notes)
}

// A drift compares what Kern said of a request with what the provider reported.
type drift struct {
	name                          string
	bound, counted, booked, input int64
	bookedOut, output             int64
}

// probe sends requests of several kinds, and compares.
func probe(t *testing.T, k *kernel, e endpoint) {
	t.Helper()
	i := k.key("--name", "probe", "--account", "live")
	var all []drift
	for _, q := range questions(t) {
		d := drift{name: q.name}
		path, body := "/chat/completions", map[string]any{"model": e.called(), "max_tokens": 60, "messages": q.openai}
		base := i.OpenAI
		if len(q.tools) > 0 {
			body["tools"] = q.tools
		}
		if e.name == "anthropic" {
			path, base, body = "/v1/messages", i.Anthropic, map[string]any{"model": e.called(), "max_tokens": 60, "messages": q.anthropic}
			if len(q.tools) > 0 {
				body["tools"] = q.claudeTools()
			}
			d.counted = post(t, i, base+"/v1/messages/count_tokens", body)["input_tokens"]
		}
		answer := post(t, i, base+path+e.query, body)
		d.input, d.output = answer["prompt_tokens"]+answer["input_tokens"]+answer["cache_read_input_tokens"]+answer["cache_creation_input_tokens"], answer["completion_tokens"]+answer["output_tokens"]
		d.bound, d.booked, d.bookedOut = k.lastModelCall(i.Pid)
		all = append(all, d)
	}
	var table strings.Builder
	for _, d := range all {
		fmt.Fprintf(&table, "%-28s %8d %8d %8d %8d   %+5.1f %%   %6d %6d\n", d.name, d.bound, d.counted, d.booked, d.input, 100*float64(d.bound-d.input)/float64(max(1, d.input)), d.bookedOut, d.output)
		if d.input == 0 || d.booked != d.input || d.bookedOut != d.output {
			t.Errorf("%s: kern booked %d in and %d out, and the provider reported %d and %d", d.name, d.booked, d.bookedOut, d.input, d.output)
		}
		if d.bound < d.input {
			t.Errorf("%s: the provider took %d tokens, and the bound is %d", d.name, d.input, d.bound)
		}
	}
	t.Logf("%s %s\n%-28s %8s %8s %8s %8s   %7s   %6s %6s\n%s", e.name, e.model, "input tokens of", "bound", "counted", "booked", "reported", "drift", "booked", "output", table.String())
}

// lastModelCall is what the newest model call of a process reserved and booked.
func (k *kernel) lastModelCall(pid abi.Pid) (bound, booked, bookedOut int64) {
	k.t.Helper()
	log, _, _ := k.kern("log", fmt.Sprint(pid), "--json")
	type amounts struct {
		In    int64 `json:"input_tokens"`
		Out   int64 `json:"output_tokens"`
		Calls int64 `json:"model_calls"`
	}
	for line := range strings.Lines(log) {
		var r struct {
			Intent *struct {
				Row     string
				Reserve amounts
			}
			Answer *struct{ Usage amounts }
		}
		if json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		if r.Intent != nil && r.Intent.Row == "model" {
			bound = r.Intent.Reserve.In
		}
		if r.Answer != nil && r.Answer.Usage.Calls > 0 {
			booked, bookedOut = r.Answer.Usage.In, r.Answer.Usage.Out
		}
	}
	return bound, booked, bookedOut
}

// A question is a request in both formats.
type question struct {
	name              string
	openai, anthropic []any
	tools             []any
}

// claudeTools are the tools in Anthropic's format.
func (q *question) claudeTools() (all []any) {
	for _, tool := range q.tools {
		f := tool.(map[string]any)["function"].(map[string]any)
		all = append(all, map[string]any{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]})
	}
	return all
}

// questions are of the kinds that agents send.
func questions(t *testing.T) []question {
	t.Helper()
	code, err := os.ReadFile("live_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 300, 200))); err != nil {
		t.Fatal(err)
	}
	picture := base64.StdEncoding.EncodeToString(file.Bytes())
	said := func(text string) []any { return []any{map[string]any{"role": "user", "content": text}} }
	tool := map[string]any{"type": "function", "function": map[string]any{"name": "get_weather", "description": "The weather of a city.",
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}}}
	long, again := said(story+" Answer with one word."), said(story+" Answer with one word.")
	again = append(again, map[string]any{"role": "assistant", "content": "once"}, map[string]any{"role": "user", "content": "And another one?"})
	return []question{
		{"a word", said("hi"), said("hi"), nil}, {"prose", long, long, nil}, {"the same and more", again, again, nil},
		{"code", said("Which language is this? " + string(code[:4000])), said("Which language is this? " + string(code[:4000])), nil},
		{"other scripts", said("Übersetze: 我能吞下玻璃而不伤身体。 Съешь же ещё этих мягких булок."), said("Übersetze: 我能吞下玻璃而不伤身体。 Съешь же ещё этих мягких булок."), nil},
		{"a tool", said("How is the weather in Paris?"), said("How is the weather in Paris?"), []any{tool}},
		{"a picture of 300 x 200", []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "Which colour?"}, map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," + picture}}}}},
			[]any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": "image/png", "data": picture}}, map[string]any{"type": "text", "text": "Which colour?"}}}}, nil},
	}
}

// post sends a request with a key of Kern, and returns the numbers of its usage.
func post(t *testing.T, i api.KeyInfo, url string, body any) map[string]int64 {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + i.Key, "Anthropic-Version": "2023-06-01"} {
		r.Header.Set(name, value)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	var answer struct {
		Usage  map[string]any `json:"usage"`
		Tokens int64          `json:"input_tokens"`
	}
	if bad := json.Unmarshal(text, &answer); err != nil || bad != nil || w.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v %v: %s", url, w.StatusCode, err, bad, text)
	}
	numbers := map[string]int64{"input_tokens": answer.Tokens}
	for name, v := range answer.Usage {
		if n, ok := v.(float64); ok {
			numbers[name] = int64(n)
		}
	}
	return numbers
}
