package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const canary = `sk-canary/"9f8e7d6c5b4a`

// TestKeyDoesNotPrint: in no way that a value is printed, alone or within others.
func TestKeyDoesNotPrint(t *testing.T) {
	k := NewKey(canary)
	type hidden struct{ key Key }
	for what, v := range map[string]any{"a key": k, "a pointer": &k, "an unexported field": hidden{k}, "a source": Source{Key: k}, "a line": Line{Key: k}} {
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v)
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v)
		for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&log, f, v)
		}
		b, _ := json.Marshal(v)
		if all := log.String() + string(b); strings.Contains(all, "9f8e7d") || strings.Contains(all, fmt.Sprintf("%x", "9f8e7d")) {
			t.Errorf("%s shows the key: %s", what, all)
		}
	}
	if got, want := fmt.Sprintf("%#v", k), fmt.Sprintf("%T(%v)", k, k); got != want {
		t.Errorf("want %s, got %s", want, got)
	}
	if k.reveal() != canary || !k.Given() || NewKey("").Given() {
		t.Fatal("the key is lost")
	}
	var back Key
	if err := json.Unmarshal([]byte(`"secret"`), &back); err != nil || back.reveal() != "secret" {
		t.Errorf("a key is not read: %v", err)
	}
}

// TestRedact takes a key out as it is, and as it stands within JSON.
func TestRedact(t *testing.T) {
	quoted, _ := json.Marshal(canary)
	l := Line{Key: NewKey(canary)}
	if got := l.Redact("a " + canary + " b " + string(quoted)); got != `a [key] b "[key]"` {
		t.Errorf("%s", got)
	}
	if got := new(Line).Redact("as it is"); got != "as it is" {
		t.Errorf("%s", got)
	}
}

// TestSource reads a secret from each place.
func TestSource(t *testing.T) {
	getenv := func(name string) string { return map[string]string{"V": " of the variable\n", "K": " k\n"}[name] }
	readFile := func(name string) ([]byte, error) {
		if name != "f" {
			return nil, errors.New("no such file")
		}
		return []byte("of-the-file\n"), nil
	}
	for _, c := range []struct {
		s         Source
		key, fail string
	}{
		{Source{}, "", ""}, {Source{Key: NewKey("given")}, "given", ""}, {Source{Env: "K"}, "k", ""}, {Source{Env: "NONE"}, "", ""},
		{Source{File: "f"}, "of-the-file", ""}, {Source{File: "g"}, "", "no such file"}, {Source{Env: "V"}, "", "the variable V has characters that no key has"},
	} {
		k, err := c.s.Read(getenv, readFile)
		if k.reveal() != c.key || (err == nil) != (c.fail == "") || err != nil && err.Error() != c.fail {
			t.Errorf("%s: %q %v", c.s, k.reveal(), err)
		}
	}
}
