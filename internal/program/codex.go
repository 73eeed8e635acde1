package program

import "strconv"

// Argv is the command line of a program with access a. Codex reads from its
// settings alone where to ask, so it is told by arguments, which stand before its
// own, also where another program starts it: those may say otherwise. Under a limit that searches have no bound under
// it is told to leave them. Behind a fence it is told to leave its own sandbox,
// which cannot be built there: no command of its model would run.
func Argv(argv []string, a Access, bounded, fenced bool) []string {
	p := find(argv)
	if p.agent != "codex" {
		return argv
	}
	auth := `env_key="KERN_KEY"` // never the key itself: arguments are for all to see
	if !a.Own["openai"] {
		auth = `requires_openai_auth=true,env_http_headers={"X-Kern-Key"="KERN_KEY"}`
	}
	more := []string{"-c", `model_provider="kern"`,
		"-c", `model_providers.kern={name="Kern",wire_api="responses",base_url=` + strconv.Quote(a.OpenAI) + "," + auth + "}"}
	if bounded {
		more = append(more, "-c", `web_search="disabled"`)
	}
	if fenced {
		more = append(more, "-c", `sandbox_mode="danger-full-access"`)
	}
	return p.insert(argv, more)
}
