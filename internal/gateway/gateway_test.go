package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

var price = model.Price{Input: 1_000_000_000, Output: 2_000_000_000, CacheRead: 1_000_000_000, CacheWrite: 1_000_000_000}

const longWords = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"

// faces are requests in each format, streamed or not.
var faces = []struct{ name, path, body, says string }{
	{"chat", "/v1/chat/completions", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`, "twenty"},
	{"chat without a maximum", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}],"unknown_field":1}`, "twenty"},
	{"chat streamed", "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`, "[DONE]"},
	{"chat streamed with usage", "/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}`, `"total_tokens"`},
	{"chat with choices", "/v1/chat/completions", `{"model":"m","n":3,"max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`, `"index":2`},
	{"responses", "/v1/responses", `{"model":"m","input":"hello"}`, "twenty"},
	{"responses streamed", "/v1/responses", `{"model":"m","stream":true,"input":[{"role":"user","content":"hello"}]}`, "response.completed"},
	{"messages", "/v1/messages", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`, "twenty"},
	{"messages streamed", "/v1/messages", `{"model":"m","max_tokens":100,"stream":true,"system":"be brief","messages":[{"role":"user","content":"hello"}]}`, "message_stop"},
	{"embeddings", "/v1/embeddings", `{"model":"m","input":["hello","` + longWords + longWords + longWords + longWords + `"]}`, `"embedding"`},
}

// TestFaces asks in every format until the money is gone: every answer is
// whole, what is booked is the provider's bill to the nano-dollar, the end is a
// refusal with a code and a status that no library tries again, and what is
// refused reaches nobody. Scenarios 4 and 5.
//
// Mutants that die here: usage taken from our own count, a refusal that is sent
// on all the same.
func TestFaces(t *testing.T) {
	t.Parallel()
	for _, f := range faces {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, mockprovider.Config{Reply: longWords, Price: price, Keys: []string{providerKey}}, "")
			k := r.key("money=0.004")
			n := 0
			for ; n < 1000; n++ {
				g := r.post(k.Key, f.path, f.body)
				if g.status != http.StatusOK {
					if g.code() != abi.LimitMoney || g.status != http.StatusPaymentRequired || g.header.Get("X-Should-Retry") != "false" {
						t.Errorf("the end is %d %s", g.status, g.body)
					}
					break
				}
				last := f.says
				if n > 0 && f.name != "embeddings" && !strings.Contains(g.body, f.says) { // the last may have been given less
					last = "length"
					if f.name == "messages" {
						last = "max_tokens"
					}
				}
				if !strings.Contains(g.body, last) || g.header.Get("X-Kern-Pid") != fmt.Sprint(k.Pid) || g.header.Get("X-Kern-Call") == "" {
					t.Fatalf("answer %d: %v %s", n, g.header, g.body)
				}
			}
			if n < 5 {
				t.Errorf("%d answers", n)
			}
			r.books(k.Pid)
			if i := r.info(k.Pid); i.Used[abi.Money] > 4_000_000 || i.Used[abi.Money] < 3_000_000 {
				t.Errorf("%d nano-dollars of 4000000", i.Used[abi.Money])
			}
		})
	}
}

// TestSteps holds the limits that count calls. Scenarios 1 and 2.
func TestSteps(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	for _, l := range []string{"steps=0", "model_calls=0", "money=0", "tokens=0", "input_tokens=0", "output_tokens=0"} {
		k := r.key(l)
		r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.Code("LIMIT_"+strings.ToUpper(strings.TrimSuffix(l, "=0"))), http.StatusPaymentRequired)
	}
	k := r.key("steps=2")
	for range 2 {
		r.ok(k.Key, "/v1/chat/completions", chat("x"))
	}
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.LimitSteps, http.StatusPaymentRequired)
	c := r.key("context=50")
	r.refused(c.Key, "/v1/chat/completions", chat(longWords+longWords+longWords), abi.LimitContext, http.StatusBadRequest)
	if n := r.mock.Stats().Requests; n != 2 {
		t.Errorf("%d requests reached the provider, want 2", n)
	}
}

// TestWallEndsTheKey ends the process of a key in the middle of a stream: the
// client is told, the provider is left, and the key opens nothing more.
// Scenario 11.
func TestWallEndsTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, mockprovider.Config{Reply: strings.Repeat(longWords+" ", 50), TPS: 50}, "")
	k := r.key("wall=2s")
	g := r.post(k.Key, "/v1/chat/completions", chat("x", `,"stream":true`))
	for wall := 4; wall < 100 && !strings.Contains(g.body, "three"); wall *= 2 { // on a busy machine it is over before the stream begins
		k = r.key(fmt.Sprintf("wall=%ds", wall))
		g = r.post(k.Key, "/v1/chat/completions", chat("x", `,"stream":true`))
	}
	if g.code() != abi.LimitWall || !strings.Contains(g.body, "three") {
		t.Errorf("%d %s", g.status, g.body)
	}
	eventually(t, "the process has exited", func() bool { return r.info(k.Pid).Exit != nil })
	if x := r.info(k.Pid).Exit; x.Exit != abi.ExitLimit || x.Code != abi.LimitWall {
		t.Errorf("%+v", x)
	}
	eventually(t, "the provider is left", func() bool { return r.mock.Stats().InFlight == 0 })
	before := r.mock.Stats().Requests
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.LimitWall, http.StatusPaymentRequired)
	if n := r.mock.Stats().Requests; n != before {
		t.Errorf("%d requests, and %d before the key was ended", n, before)
	}
}

// TestCut stops streams in the middle, by a kill and by a client that hangs up.
// What is settled is at least what the provider bills. Scenario 12.
//
// Mutants that die here: an upstream that is not told, a settlement of what was
// handed on and not of what came.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, f := range faces {
		if !strings.Contains(f.name, "streamed") {
			continue
		}
		for _, how := range []string{"kill", "hang up"} {
			t.Run(f.name+" "+how, func(t *testing.T) {
				r := newRig(t, mockprovider.Config{Reply: strings.Repeat(longWords+" ", 20), TPS: 200, Price: price}, "")
				k := r.key("money=1")
				s := r.stream(k.Key, f.path, strings.Replace(f.body, `"max_tokens":100`, `"max_tokens":900`, 1))
				if !s.until("twenty") {
					t.Fatal("no text")
				}
				if how == "kill" {
					if err := r.kernel.Signal(t.Context(), k.Pid, abi.Kill, "test"); err != nil {
						t.Fatal(err)
					}
					if !s.until("PROCESS_KILLED") || s.until("message_stop") {
						t.Error("the client was not told, or too much")
					}
				} else {
					s.stop()
				}
				eventually(t, "all is settled", func() bool { i := r.info(k.Pid); return i.Used[abi.ModelCalls] == 1 && i.Reserved == (abi.Usage{}) })
				eventually(t, "the provider is left", func() bool { return r.mock.Stats().InFlight == 0 })
				i, b := r.info(k.Pid), r.mock.Stats()
				if i.Used[abi.Money] < b.Nano || i.Used[abi.OutputTokens] > b.Output*5/4+132 || b.Aborted != 1 {
					t.Errorf("settled %d nano-dollars and %d tokens, billed %d and %d, %d aborted", i.Used[abi.Money], i.Used[abi.OutputTokens], b.Nano, b.Output, b.Aborted)
				}
			})
		}
	}
}

// TestHangUps lets many clients hang up at once, at any moment, on providers of
// different pace. What is settled of each call is never less than what the
// provider bills for it. Scenario 12.
//
// Mutants that die here: a provider that is cut off without a word, and what it
// had written is not read; what it says until it notices not booked.
func TestHangUps(t *testing.T) {
	t.Parallel()
	for _, c := range []mockprovider.Config{{}, {TPS: 200, Chunk: 8}, {TPS: 2000, Chunk: 8}} {
		c.Reply, c.Price, c.Latency = strings.Repeat(longWords+" ", 45), price, spread(t, "10ms±10ms")
		t.Run(fmt.Sprintf("%v tokens a second", c.TPS), func(t *testing.T) {
			r := newRig(t, c, `providers: {openai: {base_url: "$UP/v1", key_env: UP_KEY, concurrency: 2000}}`)
			k := r.key("")
			var clients sync.WaitGroup
			for i := range 80 {
				clients.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if i%8 == 0 { // before the first byte
						defer time.AfterFunc(time.Duration(rand.IntN(40))*time.Millisecond, cancel).Stop()
					}
					resp, err := r.request(ctx, k.Key, "/v1/chat/completions", fmt.Sprintf(`{"model":"m%d","stream":true,"max_tokens":900,"messages":[{"role":"user","content":"hello"}]}`, i))
					if err != nil {
						return
					}
					defer resp.Body.Close()
					_, _ = io.CopyN(io.Discard, resp.Body, []int64{1, 300, rand.Int64N(20_000), rand.Int64N(250_000)}[i%4])
				})
			}
			clients.Wait()
			began, ended := map[uint64]string{}, map[uint64]*abi.Answer{}
			eventually(t, "all is settled and written down", func() bool {
				for _, rec := range r.records(k.Pid) {
					var a struct{ Relay struct{ Model string } }
					if rec.Intent != nil && json.Unmarshal(rec.Intent.Args.Bytes, &a) == nil {
						began[rec.Call] = a.Relay.Model
					}
					if _, ok := began[rec.Call]; ok && rec.Answer != nil {
						ended[rec.Call] = rec.Answer
					}
				}
				i := r.info(k.Pid)
				return r.mock.Stats().InFlight == 0 && i.Reserved == i.Doubt && len(began) == len(ended) && int64(len(ended)) >= i.Used[abi.ModelCalls]
			})
			known := 0
			for call, name := range began {
				if a := ended[call]; a.Outcome != abi.Unknown && a.Usage[abi.ModelCalls] > 0 {
					known++
					if b := r.mock.Stats().Models[name]; a.Usage[abi.OutputTokens] < b.Output || a.Usage[abi.InputTokens] < b.Input {
						t.Errorf("%s took %d and %d tokens, and was billed %d and %d", name, a.Usage[abi.InputTokens], a.Usage[abi.OutputTokens], b.Input, b.Output)
					}
				}
			}
			if known < 20 {
				t.Errorf("of %d calls, of %d is known what they took", len(began), known)
			}
		})
	}
}

// TestOneCap sends many requests at once against one cap, of which some hang
// up: the provider never bills more than the cap, and all that it bills is
// booked. Scenarios 5, 6, 25.
func TestOneCap(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: longWords, Price: price, Chunk: 4, Latency: spread(t, "2ms±2ms")}, "")
	const cap = 20_000_000
	k := r.key("money=0.02")
	var answered, refused, other atomic.Int64
	var wg sync.WaitGroup
	slots := make(chan struct{}, 100)
	for n := range 1000 {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f := faces[n%len(faces)]
			if n%7 == 0 {
				s := r.stream(k.Key, f.path, f.body)
				s.lines.Scan()
				s.stop()
				return
			}
			switch g := r.post(k.Key, f.path, f.body, "X-Kern-Child", fmt.Sprint("c", rand.IntN(3))); g.status {
			case http.StatusOK:
				answered.Add(1)
			case http.StatusPaymentRequired:
				refused.Add(1)
			default:
				t.Log(g.status, g.body)
				other.Add(1)
			}
		})
	}
	wg.Wait()
	eventually(t, "nothing is under way", func() bool {
		i := r.info(k.Pid)
		return r.mock.Stats().InFlight == 0 && i.Reserved == i.Doubt
	})
	i, b := r.info(k.Pid), r.mock.Stats()
	t.Logf("%d answered, %d refused; booked %d, in doubt %d, billed %d", answered.Load(), refused.Load(), i.Used[abi.Money], i.Doubt[abi.Money], b.Nano)
	if b.Nano > cap || i.Used[abi.Money]+i.Doubt[abi.Money] > cap || i.Used[abi.Money]+i.Doubt[abi.Money] < b.Nano {
		t.Errorf("the cap is %d; billed %d, booked %d, in doubt %d", cap, b.Nano, i.Used[abi.Money], i.Doubt[abi.Money])
	}
	if other.Load() > 0 || refused.Load() == 0 || answered.Load() < 50 || len(i.Children) != 3 {
		t.Errorf("%d answered, %d refused, %d otherwise, %d children", answered.Load(), refused.Load(), other.Load(), len(i.Children))
	}
}

func spread(t *testing.T, s string) mockprovider.Spread {
	t.Helper()
	d, err := mockprovider.ParseSpread(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSameKeyAfterARestart opens the data directory again: the key is good, the
// money that was taken is taken, and a child is the same child. What the
// journal and the disk hold says nothing of the key. Scenario 23.
func TestSameKeyAfterARestart(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: longWords, Price: price}, "")
	k := r.key("money=0.01")
	r.ok(k.Key, "/v1/chat/completions", chat("x"))
	child := r.ok(k.Key, "/v1/chat/completions", chat("x"), "X-Kern-Child", "kid").header.Get("X-Kern-Pid")
	used := r.info(k.Pid).Used
	r.stop()
	r.start()
	if r.info(k.Pid).Used != used {
		t.Errorf("then %v, now %v", used, r.info(k.Pid).Used)
	}
	r.ok(k.Key, "/v1/chat/completions", chat("x"))
	if again := r.ok(k.Key, "/v1/chat/completions", chat("x"), "X-Kern-Child", "kid").header.Get("X-Kern-Pid"); again != child {
		t.Errorf("child %s, and after the restart %s", child, again)
	}
	r.books(k.Pid)
	if _, err := r.kernel.Verify(t.Context(), k.Pid); err != nil {
		t.Error(err)
	}
}

// TestChildren narrows: a child has what its parent has left at most, of each
// kind there is. Scenarios 24 and 25.
//
// Mutant that dies here: a derived key without the limits that were asked for.
func TestChildren(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: longWords, Price: price}, "")
	k := r.key("money=0.01,children=3")
	r.ok(k.Key, "/v1/chat/completions", chat("x"), "X-Kern-Child", "small", "X-Kern-Limits", "steps=1, money=5")
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.LimitSteps, http.StatusPaymentRequired, "X-Kern-Child", "small", "X-Kern-Limits", "steps=100")
	var derived struct {
		Pid abi.Pid
		Key string
	}
	g := r.ok(k.Key, "/kern/v1/keys", `{"name":"derived","limits":{"money":"7","steps":2}}`)
	if err := json.Unmarshal([]byte(g.body), &derived); err != nil {
		t.Fatal(err)
	}
	i, err := r.kernel.Info(derived.Pid)
	if n, _ := i.Limits.Get(abi.Money); err != nil || n >= 10_000_000 || i.Parent != k.Pid {
		t.Errorf("%+v %v", i, err)
	}
	for range 2 {
		r.ok(derived.Key, "/v1/chat/completions", chat("x"))
	}
	r.refused(derived.Key, "/v1/chat/completions", chat("x"), abi.LimitSteps, http.StatusPaymentRequired)
	r.refused(k.Key, "/kern/v1/keys", `{"name":"derived","limit":{}}`, abi.InvalidArguments, http.StatusBadRequest)
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.InvalidArguments, http.StatusBadRequest, "X-Kern-Child", "y", "X-Kern-Limits", "gold=1")
	for _, h := range [][]string{{"X-Kern-Limits", "money=0.001"}, {"X-Kern-Chlid", "z", "X-Kern-Limits", "steps=1"}, {"X-Kern-Child", "", "X-Kern-Limits", "steps=1"}, {"X-Kern-Child", ""}} {
		r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.InvalidArguments, http.StatusBadRequest, h...) // limits that would hold nobody
	}
	r.ok(k.Key, "/v1/chat/completions", chat("x"), "X-Kern-Child", "third")
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.LimitChildren, http.StatusPaymentRequired, "X-Kern-Child", "fourth")
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Kill, "test"); err != nil {
		t.Fatal(err)
	}
	r.refused(derived.Key, "/v1/chat/completions", chat("x"), abi.BadKey, http.StatusUnauthorized)
	r.books(k.Pid)
}

// TestRevoked gives whoever has a key that was revoked what one gets who never
// had one, at every path; and nothing but the reason to one whose key came to
// its limit.
//
// Mutants that die here: models listed for a key that has ended, another answer
// to a revoked key than to an unknown one.
func TestRevoked(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k, over := r.key(""), r.key("wall=1ms")
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Kill, "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both have ended", func() bool { return r.info(k.Pid).Exit != nil && r.info(over.Pid).Exit != nil })
	ask := func(method, path, key string) (int, string, http.Header) {
		q, err := http.NewRequestWithContext(t.Context(), method, r.front.URL+path, strings.NewReader(chat("x", `,"max_tokens":9,"input":"x"`)))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("X-Api-Key", key)
		resp, err := r.front.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Header.Del("Date")
		return resp.StatusCode, string(b), resp.Header
	}
	unknown := "sk-kern-" + strings.Repeat("A", 43)
	for _, q := range []string{"GET /v1/models", "GET /v1/models/m", "GET /kern/v1/self", "POST /kern/v1/keys", "POST /v1/messages/count_tokens", "POST /v1/messages",
		"POST /v1/chat/completions", "POST /v1/responses", "POST /v1/embeddings", "GET /v1/nothing", "DELETE /v1/models"} {
		method, path, _ := strings.Cut(q, " ")
		s1, b1, h1 := ask(method, path, k.Key)
		s2, b2, h2 := ask(method, path, unknown)
		if s1 != http.StatusUnauthorized || s1 != s2 || b1 != b2 || !reflect.DeepEqual(h1, h2) {
			t.Errorf("%s: a revoked key gets %d %v %s, an unknown one %d %v %s", q, s1, h1, b1, s2, h2, b2)
		}
		if s, b, _ := ask(method, path, over.Key); s != http.StatusPaymentRequired || !strings.Contains(b, string(abi.LimitWall)) {
			t.Errorf("%s: a key that came to its limit gets %d %s", q, s, b)
		}
	}
	if n := r.mock.Stats().Requests; n != 0 {
		t.Errorf("%d requests reached the provider", n)
	}
}

// TestStanding says with every answer, and every error, whose it is and how
// that stands.
func TestStanding(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: longWords, Price: price}, "")
	k := r.key("money=1,steps=7")
	says := func(what string, h http.Header, call bool) {
		t.Helper()
		if h.Get("X-Kern-Pid") != fmt.Sprint(k.Pid) || !strings.HasPrefix(h.Get("X-Kern-Spent"), "money=") || !strings.Contains(h.Get("X-Kern-Left"), "steps=") || (h.Get("X-Kern-Call") != "") != call {
			t.Errorf("%s: %v", what, h)
		}
	}
	for _, f := range faces {
		says(f.name+" garbled", r.refused(k.Key, f.path, "{", abi.InvalidArguments, http.StatusBadRequest).header, false)
	}
	for _, f := range faces[:7] {
		says(f.name, r.ok(k.Key, f.path, f.body).header, true)
	}
	for _, f := range faces {
		says(f.name+" refused", r.refused(k.Key, f.path, f.body, abi.LimitSteps, http.StatusPaymentRequired).header, true)
	}
	says("count", r.ok(k.Key, "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"x"}]}`).header, false)
	says("child", r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.InvalidArguments, http.StatusBadRequest, "X-Kern-Child", "y", "X-Kern-Limits", "gold=1").header, false)
	if h := r.ok(r.key("").Key, "/v1/chat/completions", chat("x")).header; len(h["X-Kern-Left"]) != 0 {
		t.Errorf("nothing is limited, and left is %q", h["X-Kern-Left"])
	}
}

// TestKeys lets nobody in without a good one.
func TestKeys(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	for name, key := range map[string]string{"none": "", "another": "sk-kern-nonsense", "the provider's": providerKey, "half": k.Key[:20], "longer": k.Key + "x"} {
		for _, path := range []string{"/v1/chat/completions", "/v1/nothing", "/kern/v1/keys", "/k/" + key + "/v1/chat/completions"} {
			if g := r.post(key, path, chat("x")); g.status != http.StatusUnauthorized || g.code() != abi.BadKey {
				t.Errorf("%s at %s: %d %s", name, path, g.status, g.body)
			}
		}
	}
	r.ok("", "/v1/chat/completions", chat("x"), "X-Api-Key", k.Key)
	r.ok("", "/k/"+k.Key+"/v1/chat/completions", chat("x"))
	r.ok("", "/k/"+k.Key+"/chat/completions", chat("x"))
	r.refused(k.Key, "/v1/nothing", chat("x"), abi.UnknownRow, http.StatusNotFound)
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.BadKey, http.StatusUnauthorized, "Origin", "https://evil.example")
	r.ok(k.Key, "/v1/chat/completions", chat("x"), "Origin", "http://localhost:3000")
	if n := r.mock.Stats().Requests; n != 4 {
		t.Errorf("%d requests reached the provider, want 4", n)
	}
}

// TestWhoseCredential sends the daemon's key where there is one, and else the
// program's own, untouched, and never Kern's; and writes none of them down.
// Scenario 34.
func TestWhoseCredential(t *testing.T) {
	const own = "sk-ant-the-programs-own"
	r := newRig(t, mockprovider.Config{}, "providers: {anthropic: {base_url: \"$UP\"}, openai: {base_url: \"$UP/v1\", key_env: UP_KEY}}\n")
	k := r.key("")
	body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`
	seen := func(key string) int64 { return int64(r.mock.Stats().Keys[mockprovider.HashKey(key)].Requests) }
	r.ok("", "/k/"+k.Key+"/v1/messages", body, "X-Api-Key", own)
	if seen(own) != 1 {
		t.Errorf("%+v", r.mock.Stats().Keys)
	}
	r.ok("", "/k/"+k.Key+"/v1/chat/completions", chat("x"), "Authorization", "Bearer "+own)
	r.ok("", "/k/"+k.Key+"/v1/chat/completions", chat("x"), "X-Api-Key", own, "Cookie", own)
	if seen(own) != 1 || seen(providerKey) != 2 {
		t.Errorf("%+v", r.mock.Stats().Keys)
	}
	r.ok("", "/k/"+k.Key+"/v1/messages", body, "X-Api-Key", k.Key, "Authorization", "Bearer "+own)
	if seen(own) != 2 || seen(k.Key) != 0 {
		t.Errorf("%+v", r.mock.Stats().Keys)
	}
	r.ok("", "/k/"+k.Key+"/v1/messages", body, "X-Api-Key", k.Key) // this server wants none
	if seen(k.Key) != 0 || seen("") != 1 {
		t.Errorf("%+v", r.mock.Stats().Keys)
	}
	for _, rec := range r.records(k.Pid) {
		b, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{own, providerKey, k.Key} {
			if strings.Contains(string(b), secret) {
				t.Errorf("a secret is in %s", b)
			}
		}
	}
}

// TestFallback goes to the next provider when the first is not there.
func TestFallback(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "from the second"}, `providers:
  openai: {base_url: "http://127.0.0.1:1/v1", key_env: UP_KEY, fallback: [second/m2]}
  second: {format: openai, base_url: "$UP/v1", models: {m2: {alias: "its own name", input: 1, output: 2}}}
`)
	k := r.key("")
	if g := r.ok(k.Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the second") || !strings.Contains(g.body, "its own name") {
		t.Errorf("%s", g.body)
	}
	r.ok(k.Key, "/v1/chat/completions", strings.Replace(chat("x"), `"m"`, `"second/m2"`, 1))
	if i, b := r.info(k.Pid), r.mock.Stats(); i.Used[abi.InputTokens] != b.Input || b.Requests != 2 {
		t.Errorf("booked %v, billed %+v", i.Used, b)
	}
	var by []string // in the place of the one that was asked for
	for _, rec := range r.records(k.Pid) {
		var a syscalls.Reply
		if rec.Answer != nil && json.Unmarshal(rec.Answer.Value.Bytes, &a) == nil {
			by = append(by, a.Model)
		}
	}
	if !slices.Equal(by, []string{"second:m2", ""}) {
		t.Errorf("the answers are by %q", by)
	}
}

// TestFallbackAtOnce: nobody waits for the first provider while it is overloaded,
// or when it asks for an hour, if there is another.
func TestFallbackAtOnce(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		var asked atomic.Int64
		first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(status)
		}))
		defer first.Close()
		r := newRig(t, mockprovider.Config{Reply: "from the second"}, "providers:\n  openai: {base_url: \""+first.URL+"/v1\", key_env: UP_KEY, concurrency: 2, fallback: [second]}\n"+
			"  second: {format: openai, base_url: \"$UP/v1\"}\n")
		k := r.key("")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if g := r.ok(k.Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the second") {
					t.Errorf("%d: %s", status, g.body)
				}
			})
		}
		wg.Wait()
		if n := asked.Load(); n == 0 || n > 2 {
			t.Errorf("%d: the first was asked %d times, at 2 at a time", status, n)
		}
	}
}

// TestLargerThanTheMinute: a request for which no minute is large enough is
// answered, and not tried for ever; one that fits is not kept from its turn.
func TestLargerThanTheMinute(t *testing.T) {
	r := newRig(t, mockprovider.Config{Limits: mockprovider.Limits{Output: 1000}}, "providers: {anthropic: {base_url: \"$UP\", key_env: UP_KEY}, openai: {base_url: \"$UP/v1\", key_env: UP_KEY}}\n")
	k := r.key("")
	for _, path := range []string{"/v1/messages", "/v1/chat/completions"} {
		body := func(n int) string {
			return fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"x"}]}`, n)
		}
		g := r.post(k.Key, path, body(1001))
		if g.status != http.StatusBadRequest || !strings.Contains(g.body, "MODEL_BAD_REQUEST") || !strings.Contains(g.body, "1000") || g.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s %v", path, g.status, g.body, g.header)
		}
		r.ok(k.Key, path, body(900))
	}
}

// TestProvidersError passes a provider's own error on, as it came.
func TestProvidersError(t *testing.T) {
	r := newRig(t, mockprovider.Config{Models: []string{"other"}}, "")
	k := r.key("money=1")
	g := r.post(k.Key, "/v1/chat/completions", chat("x"))
	if g.status != http.StatusNotFound || !strings.Contains(g.body, "model_not_found") {
		t.Errorf("%d %s", g.status, g.body)
	}
	if i := r.info(k.Pid); i.Used[abi.Money] != 0 || i.Reserved != (abi.Usage{}) {
		t.Errorf("%+v", i)
	}
}

// TestConversationIsStoredOnce lets a conversation grow to many messages: what
// the journal stores for it is about what is new in each request.
func TestConversationIsStoredOnce(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	k := r.key("")
	const turns = 60
	line := strings.Repeat("words of a message ", 20)
	tools := `,"tools":[{"type":"function","function":{"name":"look","description":"` + line + `","parameters":{"type":"object"}}}]`
	var msgs []string
	sent := 0
	for n := range turns {
		msgs = append(msgs, fmt.Sprintf(`{"role":"user","content":"%d %s"}`, n, line))
		body := `{"model":"m","messages":[` + strings.Join(msgs, ",") + `]` + tools + `}`
		r.ok(k.Key, "/v1/chat/completions", body)
		sent += len(body)
		msgs = append(msgs, `{"role":"assistant","content":"yes"}`)
	}
	stored, unique := 0, len(strings.Join(msgs, ""))+len(tools)
	for _, rec := range r.records(k.Pid) {
		if rec.Intent == nil {
			continue
		}
		fresh := rec.Intent.Parts
		if len(fresh) > 3 {
			for _, h := range fresh[3:] {
				b, err := r.kernel.Bytes(abi.Data{Hash: h})
				if err != nil {
					t.Fatal(err)
				}
				stored += len(b)
			}
		}
	}
	t.Logf("%d bytes were sent, %d are new, %d are stored", sent, unique, stored)
	if stored > unique*13/10 { // a link is 32 bytes, and messages here are short
		t.Errorf("%d bytes are stored for %d", stored, unique)
	}
	last := r.records(k.Pid)[2*turns-1]
	body, err := gateway.Stored("openai.chat", last.Intent.Parts, func(h abi.Hash) ([]byte, error) { return r.kernel.Bytes(abi.Data{Hash: h}) })
	if want := `{"model":"m","messages":[` + strings.Join(msgs[:2*turns-1], ",") + `]` + tools + `}`; err != nil || string(body) != want {
		t.Errorf("%v: stored is\n%s\nwant\n%s", err, body, want)
	}
	if n, err := r.kernel.Verify(t.Context(), k.Pid); err != nil || n < 2*turns {
		t.Errorf("%d %v", n, err)
	}
}

// TestTerm gives a process that is to finish one more word, without tools.
func TestTerm(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "the last word"}, "")
	k := r.key("")
	r.ok(k.Key, "/v1/chat/completions", chat("x"))
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Term, "test"); err != nil {
		t.Fatal(err)
	}
	r.refused(k.Key, "/v1/chat/completions", chat("x", `,"tools":[{"type":"function","function":{"name":"look"}}]`), abi.ProcessEnding, http.StatusForbidden)
	r.ok(k.Key, "/v1/chat/completions", chat("x"))
	r.refused(k.Key, "/v1/chat/completions", chat("x"), abi.ProcessEnding, http.StatusForbidden)
	if err := r.kernel.Gateway.End(t.Context(), k.Pid, syscalls.ExitArgs{Output: json.RawMessage(`"done"`)}); err != nil {
		t.Fatal(err)
	}
	if x := r.info(k.Pid).Exit; x == nil || x.Exit != abi.ExitKilled {
		t.Errorf("%+v", x)
	}
}

// TestPaused holds requests back until the process goes on.
func TestPaused(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Stop, "test"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan got, 1)
	go func() { answer <- r.post(k.Key, "/v1/chat/completions", chat("x")) }()
	eventually(t, "it waits", func() bool {
		i, err := r.kernel.Info(k.Pid)
		return err == nil && len(i.Waits) == 1
	})
	if n := r.mock.Stats().Requests; n != 0 {
		t.Errorf("%d requests", n)
	}
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Cont, "test"); err != nil {
		t.Fatal(err)
	}
	select {
	case g := <-answer:
		if g.status != http.StatusOK {
			t.Errorf("%d %s", g.status, g.body)
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not go on")
	}
}

// TestModels lists what is configured, as the clients of both formats read it.
func TestModels(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	get := func(path string, h ...string) got {
		q, err := http.NewRequestWithContext(t.Context(), "GET", r.front.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+k.Key)
		for i := 0; i+1 < len(h); i += 2 {
			q.Header.Set(h[i], h[i+1])
		}
		resp, err := r.front.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return got{resp.StatusCode, resp.Header, string(b)}
	}
	if g := get("/v1/models"); g.body != `{"data":[{"created":0,"id":"m","object":"model","owned_by":"kern"}],"object":"list"}`+"\n" {
		t.Error(g.body)
	}
	if g := get("/v1/models/m", "Anthropic-Version", "2023-06-01"); !strings.Contains(g.body, `"display_name":"m"`) {
		t.Error(g.body)
	}
	if g := get("/v1/models/other"); g.status != http.StatusNotFound || g.code() != abi.UnknownModel {
		t.Error(g.status, g.body)
	}
	if g := get("/kern/v1/self"); !strings.Contains(g.body, fmt.Sprintf(`"pid":%d`, k.Pid)) {
		t.Error(g.body)
	}
	if g := r.ok(k.Key, "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`); !strings.Contains(g.body, `"input_tokens":`) {
		t.Error(g.body)
	}
	r.refused(k.Key, "/v1/models", "{}", abi.InvalidCall, http.StatusBadRequest)
	if n := r.mock.Stats().Requests; n != 0 {
		t.Errorf("%d requests", n)
	}
}

// TestFaults lets the provider break in every way: what is booked is never less
// than the bill, but for a lie about usage, and nothing stays open.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"cut@3", "malformed@3", "nousage", "wrongusage@50", "hang@3"} {
		fault, err := mockprovider.ParseFault(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, face := range faces {
			if face.name == "embeddings" {
				continue
			}
			t.Run(f+" "+face.name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, mockprovider.Config{Reply: longWords, Price: price, Faults: []mockprovider.Fault{fault}}, "")
				k := r.key("money=1,wall=1s")
				g := r.post(k.Key, face.path, face.body)
				if strings.HasPrefix(f, "hang") && g.code() != abi.LimitWall {
					t.Errorf("%d %s", g.status, g.body)
				}
				eventually(t, "all is settled", func() bool { i := r.info(k.Pid); return i.Reserved == i.Doubt && r.mock.Stats().InFlight == 0 })
				i, b := r.info(k.Pid), r.mock.Stats()
				if i.Used[abi.Money]+i.Doubt[abi.Money] < b.Nano {
					t.Errorf("booked %d, in doubt %d, billed %d: %s", i.Used[abi.Money], i.Doubt[abi.Money], b.Nano, g.body)
				}
			})
		}
	}
}

// TestEditedConversation stores words once, also where a program changes the
// beginning of its conversation with every request, drops what is old, or edits
// in the middle: what is new then are links of some bytes.
//
// Mutants that die here: an element that is stored with its link.
func TestEditedConversation(t *testing.T) {
	const turns = 40
	line := strings.Repeat("words of a message ", 60)
	say := func(n int) string { return fmt.Sprintf(`{"role":"user","content":"%d %s"}`, n, line) }
	for name, edit := range map[string]func(n int, msgs []string) []string{
		"the time at the beginning": func(n int, msgs []string) []string {
			return append([]string{fmt.Sprintf(`{"role":"system","content":"it is %d o'clock"}`, n)}, msgs...)
		},
		"a window that moves": func(_ int, msgs []string) []string { return msgs[max(0, len(msgs)-10):] },
		"an edit in the middle": func(n int, msgs []string) []string {
			msgs = slices.Clone(msgs)
			msgs[n/2] = fmt.Sprintf(`{"role":"user","content":"at %d"}`, n)
			return msgs
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
			k := r.key("")
			var msgs []string
			var body string
			for n := range turns {
				msgs = append(msgs, say(n))
				body = `{"model":"m","messages":[` + strings.Join(edit(n, msgs), ",") + `]}`
				r.ok(k.Key, "/v1/chat/completions", body)
			}
			stored := make(map[abi.Hash]int)
			var last []abi.Hash
			blob := func(h abi.Hash) ([]byte, error) { return r.kernel.Bytes(abi.Data{Hash: h}) }
			for _, rec := range r.records(k.Pid) {
				if rec.Intent == nil {
					continue
				}
				last = rec.Intent.Parts
				for _, h := range last {
					b, err := blob(h)
					if err != nil {
						t.Fatal(err)
					}
					stored[h] = len(b)
				}
			}
			all := 0
			for _, n := range stored {
				all += n
			}
			if most := turns*(len(say(0))+200) + turns*turns/2*80; all > most {
				t.Errorf("%d bytes are stored, want up to %d", all, most)
			}
			if got, err := gateway.Stored("openai.chat", last, blob); err != nil || string(got) != body {
				t.Errorf("%v: stored is\n%s\nwant\n%s", err, got, body)
			}
		})
	}
}

// TestStored reads requests of every face back from the journal, to the byte.
func TestStored(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "")
	k := r.key("")
	bodies := []string{`{"model":"m","messages":[],"tools":[]}`, `{"model":"m","input":[],"instructions":"x"}`}
	for _, f := range faces {
		bodies = append(bodies, f.body)
	}
	long := strings.Repeat("word ", 100)
	bodies = append(bodies, `{"tools":[{"name":"a","input_schema":{}},{"name":"b","input_schema":{}}],"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"`+long+`"}]},{"role":"assistant","content":"a"},{"role":"user","content":"b"}],"metadata":{"messages":7}}`,
		`{"model":"m","max_tokens":9,"system":"`+long+`","messages":[{"role":"user","content":"b"}]}`)
	seen := 0
	for _, body := range bodies {
		path := "/v1/messages"
		switch {
		case strings.Contains(body, `"input":["`):
			path = "/v1/embeddings"
		case strings.Contains(body, `"input"`) && !strings.Contains(body, "_schema"):
			path = "/v1/responses"
		case !strings.Contains(body, `"max_tokens"`):
			path = "/v1/chat/completions"
		}
		r.post(k.Key, path, body) // the provider may not like it
		seen = r.stored(k.Pid, seen, body)
	}
}

// TestOverloadedFallsBack asks the next provider when the first is overloaded.
func TestOverloadedFallsBack(t *testing.T) {
	first := httptest.NewServer(mockprovider.New(mockprovider.Config{Overload: 1}))
	defer first.Close()
	r := newRig(t, mockprovider.Config{Reply: "from the second"}, "providers:\n  openai: {base_url: \""+first.URL+"/v1\", fallback: [second]}\n"+
		"  second: {format: openai, base_url: \"$UP/v1\"}\n")
	if g := r.ok(r.key("").Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the second") {
		t.Errorf("%s", g.body)
	}
}

// TestLowered sets the output maximum to what is left, in the words of every
// format: the provider gives no more, and the program is told that it was cut.
func TestLowered(t *testing.T) {
	for _, f := range faces {
		if f.name == "embeddings" {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, mockprovider.Config{Reply: strings.Repeat(longWords+" ", 10), Price: price}, "")
			k := r.key("output_tokens=69")
			g := r.ok(k.Key, f.path, f.body)
			if !strings.Contains(g.body, "length") && !strings.Contains(g.body, "max_tokens") && !strings.Contains(g.body, "incomplete") {
				t.Errorf("%s", g.body)
			}
			if i := r.info(k.Pid); i.Used[abi.OutputTokens] != 69 {
				t.Errorf("%v", i.Used)
			}
			r.books(k.Pid)
			asked := int64(1000) // the model's maximum
			if strings.Contains(f.body, `"max_tokens":100`) {
				asked = 100
			}
			if strings.Contains(f.body, `"n":3`) {
				asked *= 3
			}
			r.cut(k.Pid, g, abi.Ceiling{Limit: "output_tokens", Granted: 69, Asked: asked})
			r.refused(k.Key, f.path, f.body, abi.LimitOutputTokens, http.StatusPaymentRequired)
		})
	}
}

// A model without a price is refused under a money limit, and the line that is
// given makes it known, at what its nearest relative costs.
func TestTheLineThatPricesAModel(t *testing.T) {
	const config = "providers: {anthropic: {base_url: \"$UP\", key_env: UP_KEY}, openai: {base_url: \"$UP/v1\", key_env: UP_KEY}}\n"
	r := newRig(t, mockprovider.Config{Reply: "yes"}, config)
	k := r.key("money=1")
	g := r.refused(k.Key, "/v1/messages", `{"model":"claude-opus-99","max_tokens":9,"messages":[{"role":"user","content":"q"}]}`, abi.UnknownPrice, http.StatusBadRequest)
	_, line, ok := strings.Cut(g.body, "(kern stop-daemon): ")
	line, _, _ = strings.Cut(line, "}}}}")
	line = strings.ReplaceAll(line, `\"`, `"`) + "}}}}"
	if !ok || line != `providers: {anthropic: {models: {"claude-opus-99": {input: 4, output: 20, cache_read: 0.2, cache_write: 5, window: 1000000, max_output: 128000}}}}` {
		t.Fatalf("%s\n%s", g.body, line)
	}
	g = r.refused(k.Key, "/v1/chat/completions", `{"model":"llama3:8b","messages":[{"role":"user","content":"q"}]}`, abi.UnknownPrice, http.StatusBadRequest)
	if !strings.Contains(g.body, `providers: {openai: {models: {\"llama3:8b\": {input: DOLLARS, output: DOLLARS}}}}`) {
		t.Fatal(g.body)
	}
	r.ok(r.key("steps=5").Key, "/v1/chat/completions", `{"model":"llama3:8b","messages":[{"role":"user","content":"q"}]}`)
	r.stop()
	r.config = strings.Replace(line, "models:", `base_url: "$UP", key_env: UP_KEY, models:`, 1)
	r.start()
	r.ok(k.Key, "/v1/messages", `{"model":"claude-opus-99","max_tokens":9,"messages":[{"role":"user","content":"q"}]}`)
}

// A request with much input costs more in all of it: what is reserved is that
// by the bound, and what is booked is that by what it took.
func TestMuchInputCostsMore(t *testing.T) {
	var cached atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn",
			"usage":{"input_tokens":60000,"cache_read_input_tokens":%d,"output_tokens":10}}`, cached.Load())
	}))
	defer up.Close()
	r := newRig(t, mockprovider.Config{}, "providers: {anthropic: {base_url: \""+up.URL+"\", key_env: UP_KEY}}\n")
	pictures := strings.Repeat(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},`, 21)
	ask := `{"model":"claude-haiku-5-5","max_tokens":100,"messages":[{"role":"user","content":[` + pictures + `{"type":"text","text":"q"}]}]}`
	k := r.key("money=0.05")
	r.refused(k.Key, "/v1/messages", ask, abi.LimitMoney, http.StatusPaymentRequired) // 105,000 at 0.50 are more; at 0.10 they are not
	k = r.key("money=1")
	cached.Store(40_001)
	r.ok(k.Key, "/v1/messages", ask)
	want := int64(60_000*500 + 40_001*50 + 10*2_500)
	if used := r.info(k.Pid).Used[abi.Money]; used != want {
		t.Errorf("booked %d, want %d", used, want)
	}
	cached.Store(40_000)
	r.ok(k.Key, "/v1/messages", ask)
	want += 60_000*100 + 40_000*10 + 10*500
	if used := r.info(k.Pid).Used[abi.Money]; used != want {
		t.Errorf("booked %d, want %d", used, want)
	}
}

// OpenAI writes to its cache unasked, which costs more than input.
func TestAWriteToTheCacheIsReservedUnasked(t *testing.T) {
	r := newRig(t, mockprovider.Config{Reply: "yes"}, "providers: {openai: {base_url: \"$UP/v1\", key_env: UP_KEY}}\n")
	k := r.key("money=1")
	r.ok(k.Key, "/v1/chat/completions", `{"model":"gpt-6.2-sol","max_completion_tokens":1,"messages":[{"role":"user","content":"q"}]}`)
	for _, rec := range r.records(k.Pid) {
		if rec.Intent != nil {
			in := rec.Intent.Reserve[abi.InputTokens]
			if got, want := rec.Intent.Reserve[abi.Money], in*2500; got < want {
				t.Errorf("%d reserved for %d tokens, want at least %d", got, in, want)
			}
			return
		}
	}
	t.Error("no intent")
}

// TestClosing: a request that waits when the daemon ends was not sent, and is
// told to come again, as it is when nobody is there at all.
//
// Mutant that dies here: it is told that it was stopped, which SDKs do not try
// again.
func TestClosing(t *testing.T) {
	r := newRig(t, mockprovider.Config{}, "")
	k := r.key("")
	ctx, end := context.WithCancel(t.Context())
	front := httptest.NewUnstartedServer(r.kernel.Gateway)
	front.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	front.Start()
	defer front.Close()
	if err := r.kernel.Signal(ctx, k.Pid, abi.Stop, "test"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan got, 1)
	go func() {
		q, err := http.NewRequestWithContext(t.Context(), "POST", front.URL+"/v1/chat/completions", strings.NewReader(chat("hello")))
		if err != nil {
			answer <- got{body: err.Error()}
			return
		}
		q.Header.Set("Authorization", "Bearer "+k.Key)
		resp, err := front.Client().Do(q)
		if err != nil {
			answer <- got{body: err.Error()}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		answer <- got{resp.StatusCode, resp.Header, string(b) + fmt.Sprint(err)}
	}()
	eventually(t, "it waits", func() bool { i, err := r.kernel.Info(k.Pid); return err == nil && len(i.Waits) > 0 })
	end()
	if a := <-answer; a.status != http.StatusServiceUnavailable || a.header.Get("X-Should-Retry") == "false" || !strings.Contains(a.body, "DAEMON_GONE") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if n := r.mock.Stats().Requests; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}
