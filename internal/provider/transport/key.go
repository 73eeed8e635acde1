package transport

import (
	"encoding/json"
	"fmt"
	"strings"
)

const redacted = "[key]"

// A Key is a secret that does not print. A function holds the secret, because
// fmt, json and reflect cannot look into a function. That works even in an
// unexported field, where fmt does not call String. The zero Key is no key.
type Key struct{ secret func() string }

// NewKey returns a Key that holds secret. An empty secret gives the zero Key.
func NewKey(secret string) Key {
	if secret == "" {
		return Key{}
	}
	return Key{func() string { return secret }}
}

// Given reports whether k holds a secret.
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
func (k Key) GoString() string { return "transport.Key(" + k.String() + ")" }

// MarshalText writes whether there is a key, and never the secret.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a key from a configuration.
func (k *Key) UnmarshalText(b []byte) error {
	*k = NewKey(string(b))
	return nil
}

// A Source says where to find a secret. At most one of its fields is set.
type Source struct {
	Key  Key
	Env  string // the variable that holds it
	File string // the file that holds it
}

// String describes the place of the secret, and never the secret.
func (s Source) String() string {
	switch {
	case s.Env != "":
		return "the variable " + s.Env
	case s.File != "":
		return "the file " + s.File
	}
	return "what was given"
}

// Count returns how many fields are set.
func (s Source) Count() (n int) {
	for _, is := range []bool{s.Key.Given(), s.Env != "", s.File != ""} {
		if is {
			n++
		}
	}
	return n
}

// Read reads the key and drops the white space around it. An unset variable or
// an empty file gives the zero Key.
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

// text reads the secret as plain text.
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

// Words returns the parts of a secret that no output may show: the whole secret
// and the token behind the name of a scheme such as "Bearer".
func Words(secret string) []string {
	if _, token, ok := strings.Cut(secret, " "); ok && len(token) >= 8 {
		return []string{secret, token}
	}
	return []string{secret}
}

// redact replaces key in s, both in plain form and as written in a JSON string.
func redact(s, key string) string {
	if key == "" {
		return s
	}
	return strings.NewReplacer(key, redacted, inJSON(key), redacted).Replace(s)
}

// inJSON returns s as written in a JSON string, without quotes and without the
// escapes for HTML.
func inJSON(s string) string {
	var w strings.Builder
	enc := json.NewEncoder(&w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes, and a Builder always writes
	quoted := strings.TrimSuffix(w.String(), "\n")
	return quoted[1 : len(quoted)-1]
}
