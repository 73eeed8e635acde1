package line

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Bounds of the headers that a configuration sets for a provider.
const (
	maxHeaders     = 16
	maxHeaderValue = 512
)

var (
	headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	ofAMessage = []string{"Accept", "Accept-Encoding", "Anthropic-Version", "Connection", "Expect", "Host", "Keep-Alive", "Origin", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
	ofASecret  = []string{"auth", "key", "token", "secret", "cookie", "password", "credential"}
)

// Headers are those that go with every request to a provider: which
// organization or project is billed, which application asks. It is no place for
// a secret. The zero Headers are none.
type Headers struct{ set http.Header }

// Set adds a header.
func (h *Headers) Set(name, value string) error {
	canon := http.CanonicalHeaderKey(name)
	switch lower := strings.ToLower(name); {
	case !headerName.MatchString(name):
		return errors.New("expected the name of a header, of letters, digits, - and _")
	case slices.ContainsFunc(ofASecret, func(s string) bool { return strings.Contains(lower, s) }):
		return fmt.Errorf("%s is for a secret, and these are shown: expected key_env or key_file", canon)
	case slices.Contains(ofAMessage, canon), strings.HasPrefix(canon, "Content-"), strings.HasPrefix(canon, "Proxy-"), strings.HasPrefix(canon, "X-Kern-"):
		return fmt.Errorf("%s belongs to the request itself, and is not set here", canon)
	case value == "" || len(value) > maxHeaderValue || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("the value of %s: expected 1 to %d plain characters", canon, maxHeaderValue)
	case h.set.Get(canon) != "":
		return fmt.Errorf("%s stands twice", canon)
	case len(h.set) >= maxHeaders:
		return fmt.Errorf("expected at most %d headers", maxHeaders)
	}
	if h.set == nil {
		h.set = make(http.Header)
	}
	h.set.Set(canon, value)
	return nil
}
