//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

// newGate is a world whose daemon has a provider, with a model m that costs 1
// and 2 dollars for a million tokens.
func newGate(t *testing.T, c mockprovider.Config, more string) (*world, *mockprovider.Mock) {
	t.Helper()
	c.Price = model.Price{Input: 1_000_000_000, Output: 2_000_000_000, CacheRead: 1_000_000_000, CacheWrite: 1_000_000_000}
	m := mockprovider.New(c)
	up := httptest.NewServer(m)
	t.Cleanup(up.Close)
	w := newWorld(t, map[string]string{"kern.yaml": fmt.Sprintf(`providers:
  openai: {base_url: %q, key_env: UP_KEY, concurrency: 100, models: {m: {input: 1, output: 2, max_output: 500}}}
  anthropic: {base_url: %q, key_env: UP_KEY, concurrency: 100, models: {m: {input: 1, output: 2, max_output: 500}}}
%s`, up.URL+"/v1", up.URL, more)})
	w.env = append(w.env, "UP_KEY="+secretOfTheProvider)
	if err := os.MkdirAll(w.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.file("kern.yaml"), filepath.Join(w.data(), "kern.yaml")); err != nil {
		t.Fatal(err)
	}
	return w, m
}

const secretOfTheProvider = "sk-secret-of-the-provider"

func (w *world) key(args ...string) (k api.KeyInfo) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.ok(append([]string{"key", "new", "--json"}, args...)...)), &k); err != nil {
		w.t.Fatal(err)
	}
	return k
}

// ask posts to the gateway; a status of 0 is a connection that broke.
func ask(ctx context.Context, k api.KeyInfo, body string) (int, string) {
	r, err := http.NewRequestWithContext(ctx, "POST", k.OpenAI+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+k.Key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// TestScenario23Gateway kills the daemon while requests are on their way, and
// starts it again, several times: the key is good at the same address, what was
// billed is booked or in doubt, and the cap holds.
func TestScenario23Gateway(t *testing.T) {
	t.Parallel()
	w, m := newGate(t, mockprovider.Config{Reply: strings.Repeat("word ", 60), TPS: 400}, "")
	const limit = 30_000_000
	k := w.key("--money", "0.03", "--name", "crew")
	for round := range 4 {
		before := m.Stats().Requests
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for {
					body := fmt.Sprintf(`{"model":"m","max_tokens":200,"stream":%v,"messages":[{"role":"user","content":"%d"}]}`, i%2 == 0, i)
					if status, _ := ask(t.Context(), k, body); status != http.StatusOK {
						return
					}
				}
			})
		}
		w.until("requests are on their way", func() bool { return m.Stats().Requests >= before+10 })
		w.crash()
		wg.Wait()
		w.ok("ps")
		w.until("the provider is left", func() bool { return m.Stats().InFlight == 0 })
		p, err := w.client().Show(t.Context(), k.Pid)
		if err != nil {
			t.Fatal(err)
		}
		used, err := abi.ParseMoney(p.Usage.Money)
		if err != nil {
			t.Fatal(err)
		}
		reserved, err := abi.ParseMoney(p.Reserved.Money)
		if err != nil {
			t.Fatal(err)
		}
		billed := m.Stats().Nano
		t.Logf("round %d: billed %d, booked %d, in doubt %d", round, billed, used, reserved)
		if billed > used+reserved || used+reserved > limit || p.State == abi.Exited {
			t.Errorf("round %d: billed %d, booked %d, in doubt %d, limit %d, %s", round, billed, used, reserved, limit, p.State)
		}
		if status, body := ask(t.Context(), k, `{"model":"m","max_tokens":20,"messages":[{"role":"user","content":"x"}]}`); status != http.StatusOK && status != http.StatusPaymentRequired {
			t.Errorf("round %d: after the restart %d %s", round, status, body)
		}
	}
	w.ok("log", fmt.Sprint(k.Pid), "--verify")
}

// TestKeyVerbs is what a user sees of keys.
func TestKeyVerbs(t *testing.T) {
	t.Parallel()
	w, _ := newGate(t, mockprovider.Config{Reply: "yes"}, "")
	out := w.ok("key", "new", "--money", "5", "--wall", "1h", "--name", "crew")
	for _, want := range []string{"process ", "sk-kern-", "OPENAI_BASE_URL ", "/v1\n", "ANTHROPIC_BASE_URL "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	k := w.key("--parent", "1", "--name", "kid", "--steps", "1")
	if status, body := ask(t.Context(), k, `{"model":"m","messages":[{"role":"user","content":"x"}]}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	if status, body := ask(t.Context(), k, `{"model":"m","messages":[{"role":"user","content":"x"}]}`); status != http.StatusPaymentRequired || !strings.Contains(body, "LIMIT_STEPS") {
		t.Error(status, body)
	}
	if out := w.ok("key", "list"); !strings.Contains(out, "crew") || !strings.Contains(out, "kid") {
		t.Error(out)
	}
	if out := w.ok("key", "narrow", "crew", "--money", "1"); !strings.Contains(out, "money $1,") {
		t.Error(out)
	}
	if _, errs, code := w.kern("key", "narrow", "crew", "--money", "2"); code != exitUsage || !strings.Contains(errs, "more than the 1 it has") {
		t.Error(code, errs)
	}
	if out := w.ok("key", "show", "kid"); !strings.Contains(out, "1 model call") {
		t.Error(out)
	}
	if out := w.ok("log", fmt.Sprint(k.Pid)); !strings.Contains(out, "openai.chat asked for m, 1 message") || !strings.Contains(out, "first token after") {
		t.Error(out)
	}
	if out := w.ok("log", fmt.Sprint(k.Pid), "--request", "1"); out != `{"model":"m","messages":[{"role":"user","content":"x"}]}`+"\n" {
		t.Error(out)
	}
	if _, errs, code := w.kern("log", "1", "--request", "1"); code != exitFailed || !strings.Contains(errs, "has no stored request") {
		t.Error(code, errs)
	}
	w.ok("key", "revoke", "crew")
	if status, body := ask(t.Context(), k, `{"model":"m","messages":[{"role":"user","content":"x"}]}`); status != http.StatusUnauthorized || !strings.Contains(body, "BAD_KEY") {
		t.Error(status, body)
	}
	if out := w.ok("key", "show", fmt.Sprint(k.Pid)); !strings.Contains(out, "killed") || !strings.Contains(out, "kid") { // one that has ended is known by its pid
		t.Error(out)
	}
	if _, errs, code := w.kern("key", "show", "99"); code != exitFailed || !strings.Contains(errs, "no process 99") {
		t.Error(code, errs)
	}
	if _, errs, code := w.kern("key", "show", "nobody"); code != exitUsage || !strings.Contains(errs, `no key "nobody"`) {
		t.Error(code, errs)
	}
	if err := w.client().Keys.End(t.Context(), k.Pid, api.KeyEnd{}); err == nil {
		t.Error("a key that has ended was ended")
	}
	for name := range map[string]bool{k.Key: true, secretOfTheProvider: true} {
		if hit := w.find(name); hit != "" {
			t.Errorf("a secret is in %s", hit)
		}
	}
}

// find looks for a text in every file of the data directory.
func (w *world) find(s string) (hit string) {
	w.t.Helper()
	err := filepath.WalkDir(w.data(), func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if bytes.Contains(b, []byte(s)) {
			hit = name
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return hit
}

// TestGatewaySocket asks over the socket of the data directory, for programs
// that have no network.
func TestGatewaySocket(t *testing.T) {
	t.Parallel()
	w, _ := newGate(t, mockprovider.Config{Reply: "over the socket"}, "")
	k := w.key()
	if i, err := os.Stat(k.Socket); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", i, err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", k.Socket)
	}}}
	resp, err := c.Post("http://anything/k/"+k.Key+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), "over the socket") {
		t.Errorf("%s %v", b, err)
	}
}

// TestGatewayAddress is refused where it could be reached from elsewhere and
// nobody said that it may. Scenario 33.
func TestGatewayAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`gateway: {listen: "0.0.0.0:8100"}`:                       "kern.yaml:1:10: gateway: listen is \"0.0.0.0:8100\", which others can reach: expected tls_cert and tls_key, or insecure_public: true",
		`gateway: {listen: ":8100"}`:                              "expected an address and a port such as 127.0.0.1:8100",
		`gateway: {listen: "127.0.0.1"}`:                          "expected an address and a port",
		`gateway: {port: 1}`:                                      "unknown key \"port\"",
		`gateway: {tls_cert: x}`:                                  "one of tls_cert and tls_key",
		`providers: {local: {base_url: "http://127.0.0.1:1/v1"}}`: "has the format \"\", expected openai or anthropic",
		`providers: {local: {format: openai}}`:                    "has no base_url",
		`providers: {openai: {fallback: [nobody]}}`:               "there is no such provider",
		`providers: {openai: {fallback: [anthropic/x]}}`:          "requests are not translated",
		`providers: {openai: {models: {m: {input: 1}}}}`:          "expected input and output",
	} {
		w := newWorld(t, map[string]string{"kern.yaml": text + "\n"})
		if _, errs, code := w.kern("--config", w.file("kern.yaml"), "ps"); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", text, code, errs)
		}
	}
}
