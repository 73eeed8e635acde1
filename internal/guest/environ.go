package guest

import (
	"slices"
	"strings"
)

// An Access is how a program reaches models: with a key that is a process.
type Access struct {
	Pid       string
	Key       string
	URL       string          // of the gateway
	OpenAI    string          // base URLs of the two formats
	Anthropic string          //
	InPath    string          // the address with the key in it
	Own       map[string]bool // by format: the gateway needs no credential of the program's
	Secrets   []string        // keys of providers, which the program does not get
}

// What programs read. OPENAI_API_BASE is that of LangChain, LlamaIndex, LiteLLM
// and Aider, ANTHROPIC_API_URL that of LangChain, ANTHROPIC_API_BASE that of
// LiteLLM; CODEX_API_KEY is Codex's, ANTHROPIC_AUTH_TOKEN Claude Code's and the
// official SDK's.
var formats = []struct {
	name        string
	urls, creds []string
}{
	{"openai", []string{"OPENAI_BASE_URL", "OPENAI_API_BASE"}, []string{"OPENAI_API_KEY", "CODEX_API_KEY"}},
	{"anthropic", []string{"ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"}, []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"}},
}

// elsewhere are variables with which programs reach models by a way that does
// not lead through the gateway.
var elsewhere = []string{"AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI",
	"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "AWS_BEARER_TOKEN_BEDROCK", "MISTRAL_API_KEY", "GROQ_API_KEY", "COHERE_API_KEY",
	"OPENROUTER_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "TOGETHER_API_KEY"}

// Environ is the environment env for a program with access a. Where the
// gateway has a credential of its own, the program has none but its key; where
// it has none, the program's own is left alone, and the key stands in the
// address.
func Environ(env []string, a Access) []string {
	e := environ{vars: slices.Clone(env)}
	secrets := slices.Clone(a.Secrets)
	for _, f := range formats {
		if !a.Own[f.name] {
			continue
		}
		for _, name := range f.creds {
			if v := e.get(name); len(v) >= 8 {
				secrets = append(secrets, v)
			}
		}
	}
	for i, v := range e.vars {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(secrets, value) {
			e.vars[i] = name + "=" + a.Key
		}
	}
	for _, f := range formats {
		base := map[string]string{"openai": a.OpenAI, "anthropic": a.Anthropic}[f.name]
		if !a.Own[f.name] {
			base = a.InPath + strings.TrimPrefix(base, a.URL)
		}
		for _, name := range f.urls {
			e.set(name, base)
		}
		for _, name := range f.creds {
			if a.Own[f.name] {
				e.set(name, a.Key)
			}
		}
	}
	if a.Own["openai"] { // its traces would go to OpenAI with the key of this process
		e.set("OPENAI_AGENTS_DISABLE_TRACING", "1")
	}
	e.direct("NO_PROXY", "no_proxy")
	e.direct("no_proxy", "NO_PROXY")
	e.set("KERN_PID", a.Pid)
	e.set("KERN_KEY", a.Key)
	e.set("KERN_URL", a.URL)
	return e.vars
}

// Credentials reports whether an environment has a credential for a format.
func Credentials(env []string) bool {
	e := environ{env}
	for _, f := range formats {
		if slices.ContainsFunc(f.creds, func(name string) bool { return e.get(name) != "" }) {
			return true
		}
	}
	return false
}

// Elsewhere names the variables of an environment with which a program may
// reach models past the gateway.
func Elsewhere(env []string) []string {
	e := environ{env}
	return slices.DeleteFunc(slices.Clone(elsewhere), func(name string) bool { return e.get(name) == "" })
}

type environ struct{ vars []string }

// get is the last value of a variable, which is the one that counts.
func (e *environ) get(name string) string {
	for _, v := range slices.Backward(e.vars) {
		if n, value, _ := strings.Cut(v, "="); n == name {
			return value
		}
	}
	return ""
}

func (e *environ) set(name, value string) {
	e.vars = slices.DeleteFunc(e.vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	e.vars = append(e.vars, name+"="+value)
}

// direct has a program reach this machine past any proxy.
func (e *environ) direct(name, other string) {
	hosts := e.get(name)
	if hosts == "" {
		hosts = e.get(other)
	}
	for _, h := range []string{"127.0.0.1", "localhost", "::1"} {
		if hosts == "*" || slices.Contains(strings.Split(hosts, ","), h) {
			continue
		}
		hosts = strings.TrimPrefix(hosts+","+h, ",")
	}
	e.set(name, hosts)
}
