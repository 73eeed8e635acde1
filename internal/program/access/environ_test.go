package access

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestEnviron(t *testing.T) {
	a := Gateway{Pid: "7", Key: "sk-kern-k", URL: "http://127.0.0.1:1", OpenAI: "http://127.0.0.1:1/v1", Anthropic: "http://127.0.0.1:1",
		InPath: "http://127.0.0.1:1/k/sk-kern-k", Own: map[string]bool{"openai": true}, Secrets: []string{"secret-of-provider"}, Data: "/data"}
	env := []string{"PATH=/bin", "OPENAI_API_KEY=sk-first", "OPENAI_API_KEY=sk-second-1", "COPY=sk-second-1", "UP=secret-of-provider", "HEADER=Bearer secret-of-provider, x", "ANTHROPIC_API_KEY=sk-own-of-it", "no_proxy=a,localhost", "EMPTY="}
	before := slices.Clone(env)
	got := map[string]string{}
	for _, v := range Environ(env, []string{"agent"}, a) {
		name, value, _ := strings.Cut(v, "=")
		if _, twice := got[name]; twice {
			t.Errorf("%s stands twice", name)
		}
		got[name] = value
	}
	want := map[string]string{"PATH": "/bin", "EMPTY": "", "OPENAI_API_KEY": a.Key, "CODEX_API_KEY": a.Key, "COPY": a.Key, "UP": a.Key, "HEADER": "Bearer " + a.Key + ", x",
		"OPENAI_BASE_URL": a.OpenAI, "OPENAI_API_BASE": a.OpenAI, "OPENAI_AGENTS_DISABLE_TRACING": "1",
		"ANTHROPIC_API_KEY": "sk-own-of-it", "ANTHROPIC_BASE_URL": a.InPath, "ANTHROPIC_API_URL": a.InPath, "ANTHROPIC_API_BASE": a.InPath,
		"no_proxy": "a,localhost,127.0.0.1,::1", "NO_PROXY": "a,localhost,127.0.0.1,::1",
		"KERN_PID": "7", "KERN_KEY": a.Key, "KERN_URL": a.URL, "KERN_DATA": "/data"}
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
	if all := Environ([]string{"NO_PROXY=*"}, []string{"agent"}, a); !slices.Contains(all, "NO_PROXY=*") || !slices.Contains(all, "no_proxy=*") {
		t.Errorf("no proxy for anything became %q", all)
	}
	a.Own["anthropic"] = true
	for _, v := range []struct {
		env, argv  []string
		key, token bool
	}{
		{nil, []string{"python"}, true, false},
		{[]string{"ANTHROPIC_AUTH_TOKEN="}, []string{"python"}, true, false},
		{[]string{"ANTHROPIC_AUTH_TOKEN=sk-own"}, []string{"python"}, true, true},
		{nil, []string{"/opt/bin/claude", "-p"}, false, true},
		{[]string{"ANTHROPIC_API_KEY=sk-own"}, []string{"claude"}, false, true},
		{nil, []string{"npx", "-y", "@anthropic-ai/claude-code"}, false, true},
		{nil, []string{"sh", "-c", "claude -p x | tee log"}, false, true},
	} {
		all := Environ(v.env, v.argv, a)
		if slices.Contains(all, "ANTHROPIC_API_KEY="+a.Key) != v.key || strings.Count(strings.Join(all, " "), "ANTHROPIC_API_KEY") > 1 || slices.Contains(all, "ANTHROPIC_AUTH_TOKEN="+a.Key) != v.token || slices.ContainsFunc(all, func(s string) bool { return strings.HasSuffix(s, "=sk-own") }) || !slices.Contains(all, "OPENAI_API_KEY="+a.Key) {
			t.Errorf("%q with %q has %q", v.argv, v.env, all)
		}
	}
	delete(a.Own, "anthropic")
	none := map[string]Direct{"openai": {}, "anthropic": {}}
	for _, v := range []struct {
		env  []string
		want map[string]Direct
	}{
		{env, map[string]Direct{"openai": {Credential: true}, "anthropic": {Credential: true}}},
		{[]string{"OPENAI_API_KEY=", "X=1"}, none},
		{[]string{"CLAUDE_CODE_OAUTH_TOKEN=x", "OPENAI_API_BASE=http://a/v1"}, map[string]Direct{"openai": {Variable: "OPENAI_API_BASE", Base: "http://a/v1"}, "anthropic": {Credential: true}}},
		{[]string{"OPENAI_BASE_URL=http://a/v1", "OPENAI_API_BASE=http://b/v1"}, map[string]Direct{"openai": {Variable: "OPENAI_BASE_URL", Base: "http://a/v1"}, "anthropic": {}}},
		{[]string{"KERN_URL=http://127.0.0.1:1", "OPENAI_BASE_URL=http://127.0.0.1:1/v1", "ANTHROPIC_BASE_URL=http://127.0.0.1:1/k/sk-kern-k"}, none},
	} {
		if got := DirectAccess(v.env); !maps.Equal(got, v.want) {
			t.Errorf("of %q: %+v, want %+v", v.env, got, v.want)
		}
	}
	for line, want := range map[string]string{
		"python": "", "cat gemini": "", "sh -c|cat gemini copilot.md": "", "sh -c|echo amp": "", "npx -y cowsay": "",
		"gemini -p hi": "what gemini asks its vendor", "npx -y @google/gemini-cli": "what gemini asks its vendor", "bash -c|cd x && gemini -p hi": "what gemini asks its vendor",
		"timeout 9 /opt/bin/copilot": "what copilot asks its vendor", "sh -c|(cd x; /opt/amp)": "what amp asks its vendor",
	} {
		if got := Elsewhere(nil, split(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	env = []string{"GEMINI_API_KEY=x", "GOOGLE_API_KEY=", "PATH=/bin", "XAI_API_KEY=y"}
	if got := Elsewhere(env, []string{"gemini"}); got != "what gemini asks its vendor, and what the program asks with GEMINI_API_KEY, XAI_API_KEY" {
		t.Errorf("%q", got)
	}
}
