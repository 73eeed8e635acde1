// Package access tells an agent program how to reach models: through the gateway,
// with a key that is a process. It changes the environment and the command line of
// programs that it knows, and sees through the wrappers that start them.
package access

import (
	"slices"
	"strings"
)

// An Gateway is the gateway, as a program reaches it.
type Gateway struct {
	Pid       string
	Key       string
	URL       string          // of the gateway
	OpenAI    string          // base URLs of the two formats
	Anthropic string          //
	InPath    string          // its address with the key in the path
	Own       map[string]bool // by format: the gateway has a credential of its own
	Secrets   []string        // keys of providers, which the program must not get
	Data      string          // the data directory, for a kern that the program starts
}

// formats are the variables that programs read. OPENAI_API_BASE belongs to
// LangChain, LlamaIndex, LiteLLM and Aider, ANTHROPIC_API_URL to LangChain,
// ANTHROPIC_API_BASE to LiteLLM, CODEX_API_KEY to Codex, ANTHROPIC_AUTH_TOKEN to
// Claude Code and the official SDK.
var formats = []struct {
	name        string
	urls, creds []string
	login       string // a login that replaces the credentials
}{
	{"openai", []string{"OPENAI_BASE_URL", "OPENAI_API_BASE"}, []string{"OPENAI_API_KEY", "CODEX_API_KEY"}, ""},
	{"anthropic", []string{"ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"}, []string{"ANTHROPIC_API_KEY", token}, "CLAUDE_CODE_OAUTH_TOKEN"},
}

// ungoverned are variables with which programs reach models past the gateway.
var ungoverned = []string{"AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI",
	"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "AWS_BEARER_TOKEN_BEDROCK", "MISTRAL_API_KEY", "GROQ_API_KEY", "COHERE_API_KEY",
	"OPENROUTER_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "TOGETHER_API_KEY"}

// token is a second name for ANTHROPIC_API_KEY. If both are set the official SDKs
// warn at every start, so it is set only where it was set before. Claude Code gets
// only the token: it asks a person before it uses a new ANTHROPIC_API_KEY, and each
// process has a new key.
const token = "ANTHROPIC_AUTH_TOKEN"

// Environ adapts the environment of the program argv. If the gateway has a
// credential of its own, the program gets only its key. If not, the program keeps
// its own credential, and the key goes into the address.
func Environ(env, argv []string, a Gateway) []string {
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
		name, value, _ := strings.Cut(v, "=")
		for _, s := range secrets {
			value = strings.ReplaceAll(value, s, a.Key)
		}
		e.vars[i] = name + "=" + value
	}
	claude := findAgent(argv).agent == "claude"
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
	e.bypassProxy("NO_PROXY", "no_proxy")
	e.bypassProxy("no_proxy", "NO_PROXY")
	e.set("KERN_PID", a.Pid)
	e.set("KERN_KEY", a.Key)
	e.set("KERN_URL", a.URL)
	e.set("KERN_DATA", a.Data)
	return e.vars
}

// Direct is how a program would reach a provider without Kern.
type Direct struct {
	Variable, Base string // the variable with the address for calls; empty: the usual address
	Credential     bool
}

// DirectAccess returns what an environment has, by format. It leaves out what comes from
// a kern exec around the program.
func DirectAccess(env []string) map[string]Direct {
	e, all := environ{env}, make(map[string]Direct)
	outer := e.get("KERN_URL")
	for _, f := range formats {
		var s Direct
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

// Elsewhere says in words which model calls of a program do not go through the gateway,
// as far as its environment and its command line show; "": none.
func Elsewhere(env, argv []string) string {
	e := environ{env}
	var all []string
	if agent := findVendor(argv); agent != "" {
		all = append(all, "what "+agent+" asks its vendor")
	}
	if set := slices.DeleteFunc(slices.Clone(ungoverned), func(name string) bool { return e.get(name) == "" }); len(set) > 0 {
		all = append(all, "what the program asks with "+strings.Join(set, ", "))
	}
	return strings.Join(all, ", and ")
}

type environ struct{ vars []string }

// get returns the last value of a variable: the last one counts.
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

// bypassProxy makes a program reach this machine without a proxy.
func (e *environ) bypassProxy(name, other string) {
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
