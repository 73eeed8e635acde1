package guest

import (
	"slices"
	"strings"
	"testing"
)

func TestEnviron(t *testing.T) {
	a := Access{Pid: "7", Key: "sk-kern-k", URL: "http://127.0.0.1:1", OpenAI: "http://127.0.0.1:1/v1", Anthropic: "http://127.0.0.1:1",
		InPath: "http://127.0.0.1:1/k/sk-kern-k", Own: map[string]bool{"openai": true}, Secrets: []string{"secret-of-provider"}}
	env := []string{"PATH=/bin", "OPENAI_API_KEY=sk-first", "OPENAI_API_KEY=sk-second-1", "COPY=sk-second-1", "UP=secret-of-provider", "ANTHROPIC_API_KEY=sk-own", "no_proxy=a,localhost", "EMPTY="}
	before := slices.Clone(env)
	got := map[string]string{}
	for _, v := range Environ(env, a) {
		name, value, _ := strings.Cut(v, "=")
		if _, twice := got[name]; twice {
			t.Errorf("%s stands twice", name)
		}
		got[name] = value
	}
	want := map[string]string{"PATH": "/bin", "EMPTY": "", "OPENAI_API_KEY": a.Key, "CODEX_API_KEY": a.Key, "COPY": a.Key, "UP": a.Key,
		"OPENAI_BASE_URL": a.OpenAI, "OPENAI_API_BASE": a.OpenAI, "OPENAI_AGENTS_DISABLE_TRACING": "1",
		"ANTHROPIC_API_KEY": "sk-own", "ANTHROPIC_BASE_URL": a.InPath, "ANTHROPIC_API_URL": a.InPath, "ANTHROPIC_API_BASE": a.InPath,
		"no_proxy": "a,localhost,127.0.0.1,::1", "NO_PROXY": "a,localhost,127.0.0.1,::1",
		"KERN_PID": "7", "KERN_KEY": a.Key, "KERN_URL": a.URL}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d variables, want %d: %v", len(got), len(want), got)
	}
	if !slices.Equal(env, before) {
		t.Error("the environment that was given is changed")
	}
	if !Credentials(env) || Credentials([]string{"OPENAI_API_KEY=", "X=1"}) {
		t.Error("credentials are not seen as they are")
	}
	if e := Elsewhere([]string{"GEMINI_API_KEY=x", "GOOGLE_API_KEY=", "PATH=/bin"}); !slices.Equal(e, []string{"GEMINI_API_KEY"}) {
		t.Errorf("elsewhere: %v", e)
	}
}
