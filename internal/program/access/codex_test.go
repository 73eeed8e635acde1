package access

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// TestCodexHome makes the settings of Codex: it asks the gateway whatever the user's
// settings and profiles say, and has the user's login and sessions.
func TestCodexHome(t *testing.T) {
	home, data := t.TempDir(), t.TempDir()
	a := Gateway{Key: "sk-kern-k", OpenAI: "http://127.0.0.1:1/v1", Own: map[string]bool{"openai": true}, Data: data}
	t.Setenv("PATH", home)
	env := []string{"HOME=" + home}
	if got, err := CodexHome(env, a, true); err != nil || got != nil {
		t.Errorf("without a Codex: %q, %v", got, err)
	}
	own := filepath.Join(home, ".codex")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(own, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.toml", "model = \"gpt-5\"\n  model_provider = \"x\" # mine\nweb_search = \"live\"\n[profiles.p]\nmodel_provider=\"x\"\n[model_providers.x]\nname = \"x\"\n")
	write("p.config.toml", "profiles.q.model_provider = \"x\"\nmodel = \"m\"\n")
	write("AGENTS.md", "rules")
	write("state_5.sqlite", "state")
	got, err := CodexHome(env, a, true)
	if err != nil || len(got) != 3 || got[1] != "CODEX_SQLITE_HOME="+own || got[2] != "KERN_CODEX_HOME="+own {
		t.Fatalf("%q, %v", got, err)
	}
	dir := strings.TrimPrefix(got[0], "CODEX_HOME=")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	want := "model_provider = \"kern\"\nweb_search = \"disabled\"\nmodel = \"gpt-5\"\n\n\n[profiles.p]\n\n[model_providers.x]\nname = \"x\"\n\n" +
		"[model_providers.kern]\nname=\"Kern\"\nwire_api=\"responses\"\nbase_url=\"http://127.0.0.1:1/v1\"\nenv_key=\"KERN_KEY\"\n"
	if text := read("config.toml"); text != want {
		t.Errorf("%s, want %s", text, want)
	}
	if text := read("p.config.toml"); strings.Contains(text, "x") || !strings.Contains(text, "\"m\"") {
		t.Errorf("the profile: %s", text)
	}
	if read("AGENTS.md") != "rules" {
		t.Error("the rules of the user are not there")
	}
	if _, err := os.Lstat(filepath.Join(dir, "state_5.sqlite")); err == nil {
		t.Error("a database is there twice")
	}
	if err := os.WriteFile(filepath.Join(dir, "auth.json"), []byte("login"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(own, "auth.json")); err != nil || string(b) != "login" {
		t.Errorf("the first login: %q, %v", b, err)
	}
	// A kern exec inside the program finds the user's own settings again.
	if again, err := CodexHome(append(env, got...), a, true); err != nil || !slices.Equal(again, got) {
		t.Errorf("%q, %v; want %q", again, err, got)
	}
	if other, err := CodexHome(env, a, false); err != nil || other[0] == got[0] {
		t.Errorf("other settings in the same directory: %q, %v", other, err)
	}
	write("config.toml", "profiles = {p = {model_provider = \"x\"}}\n")
	if _, err := CodexHome(env, a, true); err == nil || !strings.Contains(err.Error(), "in the middle of a line") {
		t.Errorf("%v", err)
	}
}
