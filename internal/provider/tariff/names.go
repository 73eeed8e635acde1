package tariff

import (
	"slices"
	"strings"
)

// FromOpenAI reports whether the name is that of an OpenAI model, at any provider.
func FromOpenAI(name string) bool {
	name = strings.TrimPrefix(name, "ft:")
	for _, p := range []string{"gpt-", "o"} {
		if v, ok := strings.CutPrefix(name, p); ok && v != "" && v[0] >= '1' && v[0] <= '9' {
			return true
		}
	}
	return strings.HasPrefix(name, "chatgpt-") || strings.HasPrefix(name, "codex-")
}

// ThinksSilently reports whether a model may think without a request for it and
// without showing it, as Claude does since its fifth generation. The output of such
// a model cannot be counted from its text.
func ThinksSilently(name string) bool {
	old := []string{"gpt-3", "gpt-4", "chatgpt-", "claude-2", "claude-3", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4"}
	return (FromOpenAI(name) || strings.HasPrefix(name, "claude-")) &&
		!slices.ContainsFunc(old, func(p string) bool { return strings.HasPrefix(name, p) })
}
