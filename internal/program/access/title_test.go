package access_test

import (
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/program/access"
)

// TestTitle looks for secrets in the title of a command line.
func TestTitle(t *testing.T) {
	const s = "abcDEF0123456789xyz"
	for _, argv := range [][]string{
		{"agent", "--api-key", s},
		{"agent", "--api-key=" + s},
		{"agent", "-token", s},
		{"sh", "-c", "OPENAI_API_KEY=" + s + " agent"},
		{"sh", "-c", "export DB_PASSWORD=" + s},
		{"curl", "-H", "Authorization: Bearer " + s},
		{"curl", "-H", "Authorization: Basic " + s},
		{"agent", "sk-" + s},
		{"agent", "github_pat_" + s},
		{"git", "clone", "https://me:" + s + "@example.com/x"},
		{"agent", "first " + s + " last"}, // the value of a variable
	} {
		if got := access.Title(argv, []string{"MY_SECRET=" + s, "HOME=agent"}); strings.Contains(got, s) || !strings.Contains(got, access.Hidden) {
			t.Errorf("%q", got)
		}
	}
	for _, argv := range []string{"python agent.py --model gpt-4o", "claude -p fix the tests", "sh -c cd web && npm run key", "codex exec use the token-bucket"} {
		if got := access.Title(strings.Fields(argv), []string{"API_KEY=python", "KEYS=short"}); got != argv {
			t.Errorf("%q, want %q", got, argv)
		}
	}
}
