package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/model"
)

// The key is in nothing that can be printed: not in the configuration, not in
// the model, and not in an error, also where the provider sends it back.
func TestKeyShowsNowhere(t *testing.T) {
	check := func(what, s string) {
		t.Helper()
		if strings.Contains(s, "9f8e7d") {
			t.Errorf("%s shows the key: %s", what, s)
		}
	}
	printed := func(what string, v any) {
		t.Helper()
		for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			check(what+" "+f, fmt.Sprintf(f, v))
		}
		b, _ := json.Marshal(v)
		check(what+" as JSON", string(b))
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v)
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v)
		check(what+" in a log", log.String())
	}
	p := Provider{Key: transport.NewKey(canary)}
	printed("a provider", p)
	printed("providers", map[string]Provider{"openai": p})

	quoted, _ := json.Marshal(canary)
	inner := string(quoted[1 : len(quoted)-1])
	for ref := range map[string]bool{"openai:m": true, "anthropic:m": true} {
		for name, rt := range map[string]*tape{
			"in the message":  {status: 401, pieces: []string{`{"error":{"message":"bad key ` + inner + `","type":"x"}}`}},
			"as text":         {status: 401, pieces: []string{"you sent " + canary}},
			"as broken JSON":  {status: 500, pieces: []string{`{"error": "` + inner + `", `}},
			"at the cut":      {status: 400, pieces: []string{strings.Repeat("x", 600-8) + canary}},
			"in the stream":   {pieces: []string{`data: {"type":"error","error":{"message":"` + inner + `"}}` + "\n\n"}},
			"in garbage":      {pieces: []string{"data: " + canary + "\n\n"}},
			"near the end":    {pieces: []string{"data: " + strings.Repeat("y", 50) + canary + "\n\n"}},
			"in the end":      {end: fmt.Errorf("broken by %s", canary)},
			"in a JSON error": {header: http.Header{"Content-Type": {"application/json"}}, pieces: []string{canary}},
		} {
			m := over(t, ref, rt)
			printed(ref, m)
			o := run(t, m, hello)
			if o.Err == nil {
				t.Errorf("%s: no error", name)
				continue
			}
			check(name, o.Err.Error())
			if strings.Contains(o.Err.Message, "sk-can") {
				t.Errorf("%s shows half of the key: %s", name, o.Err.Message)
			}
			printed(name, o.Err)
		}
	}
}

// A redirect would carry X-Api-Key to another host; it is refused.
func TestRedirectDoesNotCarryTheKey(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect was followed, with %v", r.Header)
	}))
	defer thief.Close()
	for _, ref := range []string{"openai:m", "anthropic:m"} {
		m := serve(t, ref, Config{}, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		})
		if o := run(t, m, hello); o.Err == nil || o.Err.Kind != model.BadRequest {
			t.Errorf("got %s", o)
		}
	}
}
