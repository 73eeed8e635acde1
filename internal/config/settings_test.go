package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/config"
)

// readSettings reads a kern.yaml with these providers, in the lines behind the first.
func readSettings(t *testing.T, providers string) (config.Settings, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kern.yaml")
	if err := os.WriteFile(file, []byte("providers:\n"+providers+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.ReadSettings(file)
}

// TestProviderMistakes are told where they stand, with what was expected; a
// secret that stands in the wrong place is not repeated.
func TestProviderMistakes(t *testing.T) {
	const local = "  local: {format: openai, base_url: \"http://h:1/v1\"}\n"
	for text, want := range map[string]string{
		`  openai: {base_url: "api.example.com/v1"}`:                                                   `:2:22: base_url of the provider openai is not an address, expected something like https://api.openai.com/v1`,
		`  openai: {base_url: "localhost:8080"}`:                                                       "is not an address",
		`  openai: {base_url: "ftp://h/v1"}`:                                                           "is not an address",
		`  openai: {base_url: "http:///v1"}`:                                                           "is not an address",
		`  openai: {base_url: "http://:8080/v1"}`:                                                      "is not an address",
		`  openai: {base_url: "http://h/v 1"}`:                                                         "is not an address",
		`  openai: {base_url: " http://h/v1"}`:                                                         "is not an address",
		`  openai: {base_url: "http://h:99999/v1"}`:                                                    "has a port that is none",
		`  openai: {base_url: "http://h:0/v1"}`:                                                        "has a port that is none",
		`  openai: {base_url: ""}`:                                                                     "is not an address",
		`  openai: {base_url: "http://h/v1?key=hidden"}`:                                               "has a user, a query or a fragment",
		`  openai: {base_url: "http://h/v1?"}`:                                                         "has a user, a query or a fragment",
		`  openai: {base_url: "http://me:hidden@h/v1"}`:                                                "has a user, a query or a fragment",
		`  openai: {base_url: "http://h/v1/chat/completions"}`:                                         "ends with /chat/completions",
		`  anthropic: {base_url: "http://h/v1/messages/"}`:                                             "ends with /messages",
		`  openai: {key_env: sk-hidden}`:                                                               ":2:21: key_env of the provider openai is not the name of a variable",
		`  openai: {key_env: ""}`:                                                                      "is not the name of a variable",
		`  openai: {key: sk-hidden}`:                                                                   ":2:17: key of the provider openai, expected program",
		`  openai: {key_env: A, key_file: b}`:                                                          "more than one key",
		`  openai: {key: program, key_env: A}`:                                                         "more than one key",
		`  openai: {headers: {Authorization: Bearer hidden}}`:                                          ":2:22: headers of the provider openai: Authorization is for a secret, and the secret itself has no place here: expected {key_env: VARIABLE} or {key_file: FILE}",
		`  openai: {headers: {X-Token: 5}}`:                                                            "is for a secret",
		`  openai: {headers: {X-Token: {key_env: sk-hidden}}}`:                                         ":2:41: key_env of the header X-Token is not the name of a variable, expected one such as MY_KEY",
		`  openai: {headers: {X-Token: {value: hidden}}}`:                                              `unknown key "value" in the header X-Token, expected key_env, key_file`,
		`  openai: {headers: {X-Token: {}}}`:                                                           "the header X-Token has 0 places for its value, expected one of key_env and key_file",
		`  openai: {headers: {X-Token: {key_env: A, key_file: b}}}`:                                    ":2:31: the header X-Token has 2 places for its value, expected one of key_env and key_file",
		`  openai: {headers: {X-A: {key_env: A}, x-a: b}}`:                                             "X-A stands twice",
		`  openai: {headers: {Host: {key_env: A}}}`:                                                    "Host belongs to the request itself",
		`  openai: {headers: {Authorization: {key_env: A}}}`:                                           ":2:22: headers of the provider openai: Authorization is where the key goes, expected key_env or key_file of the provider itself",
		`  corp: {headers: {x-api-key: {key_env: A}}, format: anthropic, base_url: "http://h"}`:        ":2:20: headers of the provider corp: X-Api-Key is where the key goes",
		`  openai: {headers: {X-A: 5}}`:                                                                ":2:27: X-A is \"5\", expected text",
		`  openai: {concurrency: 5, limits: {concurrency: 6}}`:                                         "concurrency twice",
		`  openai: {limits: {tpm: 100, itpm: 101}}`:                                                    "101 input tokens a minute, expected no more than the 100 in all (tpm)",
		`  openai: {limits: {tpm: 100, otpm: 101}}`:                                                    "101 output tokens a minute",
		`  openai: {limits: {rpm: 10}, models: {m: {limits: {rpm: 11}}}}`:                              "the model m of the provider openai grants 11 requests a minute, expected no more than the 10 of the provider",
		`  openai: {concurrency: 2, models: {m: {limits: {concurrency: 3}}}}`:                          "3 calls at one time, expected no more than the 2",
		`  openai: {models: {m: {input: 1, output: 1, window: 5, max_output: 6}}}`:                     ":2:24: the model m gives 6 tokens at most in a window of 5",
		"  openai:\n    fallback:\n      - nobody":                                                     `:4:9: the provider openai falls back to "nobody", and there is no such provider`,
		local + "  openai: {fallback: [\"nosuch:m\"]}":                                                 `:3:23: the provider openai falls back to "nosuch:m", and there is no such provider: expected PROVIDER or PROVIDER/MODEL`,
		local + "  openai: {fallback: [local/]}":                                                       "expected another provider or model",
		local + "  openai: {fallback: [local, local]}":                                                 `:3:30: the provider openai falls back to "local", expected another`,
		"  openai: {fallback: [openai]}":                                                               "expected another provider or model",
		"  openai: {fallback: [anthropic]}":                                                            "speaks like anthropic, and itself like openai: requests are not translated",
		"  lent: {format: openai, base_url: \"http://h\", key: program}\n  openai: {fallback: [lent]}": "which takes each program's own key",
	} {
		_, err := readSettings(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "kern.yaml:") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s:\n%v, want %s", text, err, want)
		}
	}
}

// TestProviderWarnings: what may not be meant, though it can be, is told, and
// read all the same.
func TestProviderWarnings(t *testing.T) {
	s, err := readSettings(t, `  openai: {models: {m: {}, n: {}}, fallback: [second, second/x, third]}
  second: {format: openai, base_url: "http://h:1/v1", key_env: NOT_SET, models: {m: {}, x: {}}}
  third: {format: openai, base_url: "http://h:2/v1", key_file: keys/third}
  fourth: {format: openai, base_url: "http://h:3/v1", key_env: SET}
  fifth: {format: openai, base_url: "http://h:4/v1", headers: {OpenAI-Project: p}}`)
	if err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string { return map[string]string{"SET": "a key"}[name] }
	got := strings.Join(s.Warnings(getenv), "\n")
	want := []string{
		"the key of the provider second is not there: the variable NOT_SET is not set; what is asked of it is refused",
		fmt.Sprintf("the key of the provider third is not there: the file %s cannot be read", filepath.Join(filepath.Dir(s.File), "keys", "third")),
		`kern.yaml:2:47: the provider openai falls back to "second", and no model n is listed there`,
	}
	for _, w := range want {
		if strings.Count(got, w) != 1 {
			t.Errorf("%q is told %d times in\n%s", w, strings.Count(got, w), got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != len(want) {
		t.Errorf("%d are told, want %d:\n%s", n, len(want), got)
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(s.File), "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.File), "keys", "third"), []byte("key-of-the-third\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.Warnings(func(string) string { return "x" }); len(got) != 1 {
		t.Errorf("all keys are there, and %q is told", got)
	}
	if keys := s.Keys(getenv); len(keys) != 2 { // as it stands there, and without what surrounds it
		t.Errorf("beside the file %q is found, wherever the daemon stands", keys)
	}
}

// TestBeside holds that the files that settings name begin where these stand,
// wherever the command stands that starts the daemon.
func TestBeside(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := readSettings(t, "  openai: {key_file: key}\ngateway: {listen: \"127.0.0.1:1\", tls_cert: tls/cert.pem, tls_key: /tls/key.pem}")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(s.File)
	for got, want := range map[string]string{
		s.Providers["openai"].KeyFile: filepath.Join(dir, "key"),
		s.Gateway.TLSCert:             filepath.Join(dir, "tls", "cert.pem"),
		s.Gateway.TLSKey:              "/tls/key.pem",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestSecretHeaders: a header's value may stand where a key may, goes to no
// listing and is kept from tools and programs as a key is; one that is not there
// is told.
func TestSecretHeaders(t *testing.T) {
	const token = "0123456789abcdef"
	s, err := readSettings(t, `  corp:
    format: openai
    base_url: "http://h:1/v1"
    key_env: SET
    headers: {OpenAI-Project: p, Cf-Access-Secret: {key_env: CF}, Proxied: {key_file: keys/proxy}, X-Basic: {key_env: BASIC}}
  dir: {format: anthropic, base_url: "http://h:2", headers: {Authorization: {key_env: CF}}}`)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(s.File)
	file := filepath.Join(dir, "keys", "proxy")
	vars := map[string]string{"SET": "the key itself", "CF": token}
	getenv := func(name string) string { return vars[name] }
	want := []string{
		"the header Proxied of the provider corp is not there: the file " + file + " cannot be read; what is asked of it is refused",
		"the header X-Basic of the provider corp is not there: the variable BASIC is not set; what is asked of it is refused",
	}
	if got := s.Warnings(getenv); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("secret-of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars["BASIC"] = "Basic YTpiYTpiYTpi"
	if got := s.Warnings(getenv); len(got) > 0 {
		t.Errorf("all are there, and %q is told", got)
	}
	keys := []string{token, "Basic YTpiYTpiYTpi", "YTpiYTpiYTpi", "key itself", "secret-of-the-file", "secret-of-the-file\n", "the key itself"}
	if got := s.Keys(getenv); !slices.Equal(got, keys) {
		t.Errorf("%q is kept from tools, want %q", got, keys)
	}
	if got := s.KeyFiles(); !slices.Equal(got, []string{file}) {
		t.Errorf("%q is kept from programs", got)
	}
	v := s.View(getenv)
	if got, want := v.Providers["corp"].Headers, map[string]string{"Cf-Access-Secret": "from the variable CF", "Proxied": "from the file " + file, "X-Basic": "from the variable BASIC"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	shown, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range []string{string(shown), fmt.Sprintf("%+v %#v", v, v), fmt.Sprintf("%+v %#v", s, s)} {
		for _, key := range keys {
			if strings.Contains(all, key) {
				t.Errorf("%q is shown: %s", key, all)
			}
		}
	}
}

func TestJournalRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kern.yaml")
	for text, want := range map[string]string{
		"{age: 90d, bytes: 2GiB}": "",
		"{age: 12h}":              "",
		"{bytes: 1MiB}":           "",
		"{age: 5s}":               `age is "5s", expected a time of a minute or more, such as 90d or 12h`,
		"{age: -3d}":              "expected a time of a minute or more",
		"{age: soon}":             "expected a time of a minute or more",
		"{bytes: 100}":            `bytes is "100", expected a size of 1MiB or more, such as 2GiB`,
		"{size: 2GiB}":            `unknown key "size"`,
	} {
		if err := os.WriteFile(file, []byte("journal: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := config.ReadSettings(file)
		if want == "" && (err != nil || s.Journal == (config.JournalRules{})) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v", text, s.Journal, err)
		}
		if text == "{age: 90d, bytes: 2GiB}" && s.Journal != (config.JournalRules{Age: 90 * 24 * time.Hour, Bytes: 2 << 30}) {
			t.Errorf("%s is %+v", text, s.Journal)
		}
	}
}
