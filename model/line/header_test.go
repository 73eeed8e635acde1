package line

import (
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
	var err error
	for i := range maxHeaders {
		err = h.Set("X-"+strings.Repeat("a", i+1), "x")
	}
	if err == nil || !strings.Contains(err.Error(), "at most 16") {
		t.Errorf("%v", err)
	}
}
