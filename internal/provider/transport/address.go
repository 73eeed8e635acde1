package transport

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// Address parses and checks the base URL of a provider. The error shows like as
// an example. The error does not repeat base, because some addresses hold a
// password.
func Address(base, like string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsFunc(base, unicode.IsSpace) {
		return nil, fmt.Errorf("is not an address, expected something like %s", like)
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return nil, errors.New("has a port that is none, expected 1 to 65535")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, errors.New("has a user, a query or a fragment, expected only scheme, host and path")
	}
	for _, path := range []string{"/chat/completions", "/responses", "/embeddings", "/messages"} {
		if strings.HasSuffix(strings.TrimRight(u.Path, "/"), path) {
			return nil, fmt.Errorf("ends with %s, expected the address that stands before it: paths are added", path)
		}
	}
	return u, nil
}
