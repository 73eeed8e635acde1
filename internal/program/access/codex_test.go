package access

import (
	"slices"
	"testing"
)

// TestArgv: Codex is told where to ask, never the key, and no other program is
// told anything.
func TestArgv(t *testing.T) {
	a := Gateway{Key: "sk-kern-k", OpenAI: "http://127.0.0.1:1/v1", Own: map[string]bool{"openai": true}}
	if got := Argv([]string{"python", "codex"}, a, true, true); !slices.Equal(got, []string{"python", "codex"}) {
		t.Errorf("%q", got)
	}
	want := []string{"/bin/codex", "-c", `model_provider="kern"`,
		"-c", `model_providers.kern={name="Kern",wire_api="responses",base_url="http://127.0.0.1:1/v1",env_key="KERN_KEY"}`, "exec", "-c", "x=1"}
	if got := Argv([]string{"/bin/codex", "exec", "-c", "x=1"}, a, false, false); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	want = []string{"codex", "-c", `model_provider="kern"`,
		"-c", `model_providers.kern={name="Kern",wire_api="responses",base_url="http://127.0.0.1:1/v1",requires_openai_auth=true,env_http_headers={"X-Kern-Key"="KERN_KEY"}}`, "-c", `web_search="disabled"`}
	a.Own = nil
	if got := Argv([]string{"codex"}, a, true, false); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	want = append(want, "-c", `sandbox_mode="danger-full-access"`, "exec")
	if got := Argv([]string{"codex", "exec"}, a, true, true); !slices.Equal(got, want) {
		t.Errorf("behind a fence: %q", got)
	}
}
