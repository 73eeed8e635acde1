package transport

import (
	"encoding/json"
	"fmt"
	"strings"
)

const redacted = "[key]"

// A Key is a secret that does not print. The secret is held by a function, for
// a function shows nothing of itself to fmt, json or reflect, not even within
// a field that they cannot ask for its String. The zero Key is no key.
type Key struct{ secret func() string }

// NewKey hides a secret.
func NewKey(secret string) Key {
	if secret == "" {
		return Key{}
	}
	return Key{func() string { return secret }}
}

// Given says whether there is one.
func (k Key) Given() bool { return k.secret != nil }

func (k Key) reveal() string {
	if k.secret == nil {
		return ""
	}
	return k.secret()
}

// String implements [fmt.Stringer].
func (k Key) String() string {
	if k.secret == nil {
		return ""
	}
	return redacted
}

// GoString implements [fmt.GoStringer].
func (k Key) GoString() string { return "line.Key(" + k.String() + ")" }

// MarshalText writes that there is a key, and not which.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a key from a configuration.
func (k *Key) UnmarshalText(b []byte) error {
	*k = NewKey(string(b))
	return nil
}

// A Source is where a secret is: at most one of its fields is set.
type Source struct {
	Key  Key
	Env  string // the variable that holds it
	File string // the file that holds it
}

// String says where, and not what.
func (s Source) String() string {
	switch {
	case s.Env != "":
		return "the variable " + s.Env
	case s.File != "":
		return "the file " + s.File
	}
	return "what was given"
}

// Count is how many places are given.
func (s Source) Count() (n int) {
	for _, is := range []bool{s.Key.Given(), s.Env != "", s.File != ""} {
		if is {
			n++
		}
	}
	return n
}

// Read finds a key, without the white space around it. A variable that is not
// set holds none, nor does an empty file.
func (s Source) Read(getenv func(string) string, readFile func(string) ([]byte, error)) (Key, error) {
	secret, err := s.text(getenv, readFile)
	if err != nil {
		return Key{}, err
	}
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return Key{}, fmt.Errorf("%s has characters that no key has", s)
	}
	return NewKey(secret), nil
}

// text is the secret itself.
func (s Source) text(getenv func(string) string, readFile func(string) ([]byte, error)) (string, error) {
	secret := s.Key.reveal()
	if s.Env != "" {
		secret = getenv(s.Env)
	} else if s.File != "" {
		b, err := readFile(s.File)
		if err != nil {
			return "", err
		}
		secret = string(b)
	}
	return strings.TrimSpace(secret), nil
}

// Words are what must not be shown of a secret: all of it, and what stands behind
// the name of a scheme, as in "Bearer" and a token.
func Words(secret string) []string {
	if _, token, ok := strings.Cut(secret, " "); ok && len(token) >= 8 {
		return []string{secret, token}
	}
	return []string{secret}
}

// redact takes a key out of s, as it is and as it stands within a JSON string.
func redact(s, key string) string {
	if key == "" {
		return s
	}
	return strings.NewReplacer(key, redacted, inJSON(key), redacted).Replace(s)
}

// inJSON is s as it stands within a JSON string, without the escapes that are
// meant for HTML.
func inJSON(s string) string {
	var w strings.Builder
	enc := json.NewEncoder(&w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes, and a Builder always writes
	quoted := strings.TrimSuffix(w.String(), "\n")
	return quoted[1 : len(quoted)-1]
}
