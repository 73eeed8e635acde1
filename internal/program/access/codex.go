package access

import "strconv"

// Argv adapts the command line of a program. Codex reads the address of models only
// from its settings, so Argv adds arguments that change them; they come first, so
// that the user's own arguments win. With noSearch it switches web search off, because a
// limit has no bound for it. With jailed it switches the sandbox of Codex off,
// because that cannot be built in a jail and no command would run.
func Argv(argv []string, a Gateway, noSearch, jailed bool) []string {
	p := findAgent(argv)
	if p.agent != "codex" {
		return argv
	}
	auth := `env_key="KERN_KEY"` // never the key itself: every user can read arguments
	if !a.Own["openai"] {
		auth = `requires_openai_auth=true,env_http_headers={"X-Kern-Key"="KERN_KEY"}`
	}
	more := []string{"-c", `model_provider="kern"`,
		"-c", `model_providers.kern={name="Kern",wire_api="responses",base_url=` + strconv.Quote(a.OpenAI) + "," + auth + "}"}
	if noSearch {
		more = append(more, "-c", `web_search="disabled"`)
	}
	if jailed {
		more = append(more, "-c", `sandbox_mode="danger-full-access"`)
	}
	return p.insert(argv, more)
}
