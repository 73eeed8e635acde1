package transport

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Bounds of the headers that a configuration sets for a provider: their number
// and the bytes of a value. A secret value may be a signed token, which is long.
const (
	maxHeaders     = 16
	maxHeaderValue = 512
	maxSecretValue = 8 << 10
)

var (
	headerName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	messageHeaders = []string{"Accept", "Accept-Encoding", "Anthropic-Version", "Connection", "Expect", "Host", "Keep-Alive", "Origin", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
	secretWords    = []string{"auth", "key", "token", "secret", "cookie", "password", "credential"}
)

// Headers are the configured headers of every request to a provider. They name
// the organization or project to bill or the application that asks, or they open
// a gateway in front of the provider. The zero Headers are empty.
type Headers struct{ all []configured }

// configured is one configured header. Its value is either plain text or a secret
// that is read from a [Source].
type configured struct {
	name, plain string
	from        Source
}

// ForSecret reports whether the name of a header suggests that its value is a
// secret.
func ForSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(s string) bool { return strings.Contains(name, s) })
}

// Set adds a header with a public value. It refuses the name of a secret header.
func (h *Headers) Set(name, value string) error {
	canon := http.CanonicalHeaderKey(name)
	switch {
	// kern.yaml is no secret file, so a secret in it would be read by anybody.
	case ForSecret(name):
		return fmt.Errorf("%s is for a secret, and the secret itself has no place here: expected {key_env: VARIABLE} or {key_file: FILE}", canon)
	case !sendable(value, maxHeaderValue):
		return fmt.Errorf("the value of %s: expected 1 to %d plain characters", canon, maxHeaderValue)
	}
	return h.add(configured{name: name, plain: value})
}

// SetSecret adds a header with a secret value. [Headers.Read] reads the value
// from its [Source], and no output shows it.
func (h *Headers) SetSecret(name string, from Source) error {
	if from.Count() != 1 {
		return fmt.Errorf("%s: expected its value in one place, a variable or a file", http.CanonicalHeaderKey(name))
	}
	return h.add(configured{name: name, from: from})
}

func (h *Headers) add(c configured) error {
	canon := http.CanonicalHeaderKey(c.name)
	switch {
	case !headerName.MatchString(c.name):
		return errors.New("expected the name of a header, of letters, digits, - and _")
	case slices.Contains(messageHeaders, canon), strings.HasPrefix(canon, "Content-"), strings.HasPrefix(canon, "Proxy-"), strings.HasPrefix(canon, "X-Kern-"):
		return fmt.Errorf("%s belongs to the request itself, and is not set here", canon)
	case slices.ContainsFunc(h.all, func(o configured) bool { return o.name == canon }):
		return fmt.Errorf("%s stands twice", canon)
	case len(h.all) >= maxHeaders:
		return fmt.Errorf("expected at most %d headers", maxHeaders)
	}
	// The canonical form makes "x-key" and "X-Key" the same header, so neither is sent twice.
	c.name = canon
	h.all = append(h.all, c)
	return nil
}

// sendable reports whether value is a valid header value of at most most bytes.
func sendable(value string, most int) bool {
	return value != "" && len(value) <= most && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// Secrets returns the sources of the secret values, by the names of the headers.
func (h Headers) Secrets() map[string]Source {
	m := make(map[string]Source)
	for _, c := range h.all {
		if c.from.Count() > 0 {
			m[c.name] = c.from
		}
	}
	return m
}

// A Header is a header with its value, ready to send. A secret value does not
// print.
type Header struct {
	Name  string
	value string
	key   Key // set for a secret header, instead of value
}

// ErrUnset reports that the source of a secret is empty.
var ErrUnset = errors.New("there is nothing")

// Read reads the values of all headers from the environment and the disk. It
// fails with [ErrUnset] if the source of a secret is empty.
func (h Headers) Read(getenv func(string) string, readFile func(string) ([]byte, error)) (list []Header, err error) {
	for _, c := range h.all {
		x := Header{Name: c.name, value: c.plain}
		if c.from.Count() > 0 {
			secret, err := c.from.text(getenv, readFile)
			switch {
			case err != nil:
				return nil, fmt.Errorf("the header %s: %w", c.name, err)
			// The gateway would refuse an empty header with an error that does not name the cause.
			case secret == "":
				return nil, fmt.Errorf("the header %s: %w in %s", c.name, ErrUnset, c.from)
			case !sendable(secret, maxSecretValue):
				return nil, fmt.Errorf("the header %s: %s does not hold 1 to %d plain characters", c.name, c.from, maxSecretValue)
			}
			x.key = NewKey(secret)
		}
		list = append(list, x)
	}
	return list, nil
}

// set writes the header into a request.
func (x Header) set(h http.Header) {
	if x.key.Given() {
		h.Set(x.Name, x.key.reveal())
		return
	}
	h.Set(x.Name, x.value)
}
