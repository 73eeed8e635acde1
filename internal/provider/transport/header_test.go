package transport

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// TestHeaders: what is a secret, or the request's own, is not among them.
func TestHeaders(t *testing.T) {
	var h Headers
	for _, c := range []struct{ name, value, want string }{
		{"OpenAI-Organization", "org-1", ""}, {"x-title", "an application", ""},
		{"openai-organization", "org-2", "stands twice"},
		{"Authorization", "Bearer x", "for a secret"}, {"x-goog-api-key", "x", "for a secret"}, {"Cookie", "a=b", "for a secret"}, {"X-Auth-Token", "x", "for a secret"},
		{"Host", "elsewhere", "belongs to the request"}, {"content-length", "5", "belongs to the request"}, {"Transfer-Encoding", "chunked", "belongs to the request"}, {"X-Kern-Child", "kid", "belongs to the request"},
		{"", "x", "expected the name"}, {"a b", "x", "expected the name"}, {"a:b", "x", "expected the name"}, {strings.Repeat("a", 65), "x", "expected the name"},
		{"X-A", "", "plain characters"}, {"X-A", "a\r\nb: c", "plain characters"}, {"X-A", strings.Repeat("a", 513), "plain characters"}, {"X-A", "é", "plain characters"},
	} {
		if err := h.Set(c.name, c.value); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q: %v, want %q", c.name, c.value, err, c.want)
		}
	}
	for _, c := range []struct {
		name string
		from Source
		want string
	}{
		{"cf-access-client-secret", Source{Env: "V"}, ""}, {"Authorization", Source{File: "f"}, ""},
		{"Cf-Access-Client-Secret", Source{Env: "W"}, "stands twice"}, {"openai-ORGANIZATION", Source{Env: "W"}, "stands twice"},
		{"X-A", Source{}, "one place"}, {"X-A", Source{Env: "V", File: "f"}, "one place"},
		{"Host", Source{Env: "V"}, "belongs to the request"}, {"a b", Source{Env: "V"}, "expected the name"},
	} {
		if err := h.SetSecret(c.name, c.from); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: %v, want %q", c.name, c.from, err, c.want)
		}
	}
	if s := h.Secrets(); len(s) != 2 || s["Cf-Access-Client-Secret"].Env != "V" || s["Authorization"].File != "f" {
		t.Errorf("%v", s)
	}
	var err error
	for i := range maxHeaders {
		err = h.Set("X-"+strings.Repeat("a", i+1), "x")
	}
	if err == nil || !strings.Contains(err.Error(), "at most 16") {
		t.Errorf("%v", err)
	}
}

// TestSecretHeaders: what is secret goes along, and shows nowhere; and where there
// is none, or none that can be sent, nothing is.
func TestSecretHeaders(t *testing.T) {
	const token = "0123456789abcdef"
	getenv := func(name string) string {
		return map[string]string{"V": " Basic " + token + "\n", "BLANK": " ", "LINES": "a\nb", "LONG": strings.Repeat("a", maxSecretValue+1), "SHORT": "ab c"}[name]
	}
	readFile := func(name string) ([]byte, error) {
		if name != "f" {
			return nil, errors.New("no such file")
		}
		return []byte("of-the-file\n"), nil
	}
	var h Headers
	for _, err := range []error{h.Set("OpenAI-Project", "plain"), h.SetSecret("X-A", Source{Env: "V"}), h.SetSecret("X-B", Source{File: "f"}), h.SetSecret("X-C", Source{Env: "SHORT"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	list, err := h.Read(getenv, readFile)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(http.Header)
	for _, x := range list {
		x.set(sent)
	}
	if want := (http.Header{"Openai-Project": {"plain"}, "X-A": {"Basic " + token}, "X-B": {"of-the-file"}, "X-C": {"ab c"}}); !reflect.DeepEqual(sent, want) {
		t.Errorf("%v, want %v", sent, want)
	}
	l := Line{Headers: list}
	if s := fmt.Sprintf("%v %+v %#v %v %+v %#v", l, l, l, h, h, h); strings.Contains(s, token) || strings.Contains(s, "of-the-file") || strings.Contains(s, "ab c") {
		t.Errorf("%s", s)
	}
	if got := l.Redact("plain, Basic " + token + ", " + token + ", of-the-file, ab c, c"); got != "plain, [key], [key], [key], [key], c" {
		t.Errorf("%s", got)
	}
	for _, c := range []struct {
		from  Source
		want  string
		unset bool
	}{
		{Source{Env: "NONE"}, "the header X-A: there is nothing in the variable NONE", true}, {Source{Env: "BLANK"}, "there is nothing in the variable BLANK", true},
		{Source{Env: "LINES"}, "the variable LINES does not hold 1 to 8192 plain characters", false}, {Source{Env: "LONG"}, "does not hold 1 to 8192", false},
		{Source{File: "g"}, "the header X-A: no such file", false},
	} {
		var h Headers
		if err := h.SetSecret("X-A", c.from); err != nil {
			t.Fatal(err)
		}
		if list, err := h.Read(getenv, readFile); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnset) != c.unset || len(list) > 0 {
			t.Errorf("%s: %v %v", c.from, list, err)
		}
	}
}
