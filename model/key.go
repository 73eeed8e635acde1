package model

import "strings"

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
func (k Key) GoString() string { return "model.Key(" + k.String() + ")" }

// MarshalText writes that there is a key, and not which.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a key from a configuration.
func (k *Key) UnmarshalText(b []byte) error {
	*k = NewKey(string(b))
	return nil
}

// redact takes a key out of s, as it is and as it stands within a JSON string.
func redact(s, key string) string {
	if key == "" {
		return s
	}
	quoted := string(appendString(nil, key))
	return strings.NewReplacer(key, redacted, quoted[1:len(quoted)-1], redacted).Replace(s)
}
