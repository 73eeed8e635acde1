package program

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
	Data      string          // the directory of the daemon: a kern that the program starts asks the same one
}

// What programs read. OPENAI_API_BASE is that of LangChain, LlamaIndex, LiteLLM
// and Aider, ANTHROPIC_API_URL that of LangChain, ANTHROPIC_API_BASE that of
// LiteLLM; CODEX_API_KEY is Codex's, ANTHROPIC_AUTH_TOKEN Claude Code's and the
// official SDK's.
var formats = []struct {
	name        string
	urls, creds []string
	login       string // what a program may show in their place
}{
	{"openai", []string{"OPENAI_BASE_URL", "OPENAI_API_BASE"}, []string{"OPENAI_API_KEY", "CODEX_API_KEY"}, ""},
	{"anthropic", []string{"ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"}, []string{"ANTHROPIC_API_KEY", token}, "CLAUDE_CODE_OAUTH_TOKEN"},
}

// elsewhere are variables with which programs reach models by a way that does
// not lead through the gateway.
var elsewhere = []string{"AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI",
	"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "AWS_BEARER_TOKEN_BEDROCK", "MISTRAL_API_KEY", "GROQ_API_KEY", "COHERE_API_KEY",
	"OPENROUTER_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "TOGETHER_API_KEY"}

// token is a second name for what ANTHROPIC_API_KEY holds. Where both are set the
// official SDKs warn at every start, so it is set only for who has it. Claude Code
// has it alone: before it takes the other it asks a person, who would be asked
// each time, for each process has a new key.
const token = "ANTHROPIC_AUTH_TOKEN"

// Environ is the environment env for the program argv with access a. Where the
// gateway has a credential of its own, the program has none but its key; where
// it has none, the program's own is left alone, and the key stands in the
// address.
func Environ(env, argv []string, a Access) []string {
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
	claude := find(argv).agent == "claude"
	for _, f := range formats {
		base := map[string]string{"openai": a.OpenAI, "anthropic": a.Anthropic}[f.name]
		if !a.Own[f.name] {
			base = a.InPath + strings.TrimPrefix(base, a.URL)
		}
		for _, name := range f.urls {
			e.set(name, base)
		}
		for _, name := range f.creds {
			switch {
			case !a.Own[f.name]:
			case claude && f.name == "anthropic" && name != token:
				e.unset(name)
			case claude || name != token || e.get(name) != "":
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
	e.set("KERN_DATA", a.Data)
	return e.vars
}

// A Self is what an environment has of its own for a format.
type Self struct {
	Variable, Base string // where calls were to go, and which variable says so; empty: to the usual place
	Credential     bool
}

// Selves are by format. What a program has from a kern exec around it is not
// its own.
func Selves(env []string) map[string]Self {
	e, all := environ{env}, make(map[string]Self)
	outer := e.get("KERN_URL")
	for _, f := range formats {
		var s Self
		for _, name := range f.urls {
			if base := e.get(name); base != "" && s.Base == "" && (outer == "" || !strings.HasPrefix(base, outer)) {
				s.Variable, s.Base = name, base
			}
		}
		for _, name := range append(f.creds, f.login) {
			s.Credential = s.Credential || e.get(name) != ""
		}
		all[f.name] = s
	}
	return all
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

func (e *environ) unset(name string) {
	e.vars = slices.DeleteFunc(e.vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

func (e *environ) set(name, value string) {
	e.unset(name)
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
