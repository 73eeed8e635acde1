package access

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// provider returns the settings of the gateway for Codex, in TOML. It names the variable
// of the key and never the key itself, because every user can read arguments.
func provider(a Gateway) []string {
	all := []string{`name="Kern"`, `wire_api="responses"`, "base_url=" + strconv.Quote(a.OpenAI)}
	if a.Own["openai"] {
		return append(all, `env_key="KERN_KEY"`)
	}
	return append(all, `requires_openai_auth=true`, `env_http_headers={"X-Kern-Key"="KERN_KEY"}`)
}

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
	more := []string{"-c", `model_provider="kern"`,
		"-c", "model_providers.kern={" + strings.Join(provider(a), ",") + "}"}
	if noSearch {
		more = append(more, "-c", `web_search="disabled"`)
	}
	if jailed {
		more = append(more, "-c", `sandbox_mode="danger-full-access"`)
	}
	return p.insert(argv, more)
}

// Variables for the settings of Codex. ownCodexHome is the user's directory, for a kern
// exec inside the program.
const (
	codexHome    = "CODEX_HOME"
	codexState   = "CODEX_SQLITE_HOME"
	ownCodexHome = "KERN_CODEX_HOME"
)

// overridden matches the settings of the user that would lead Codex past the gateway, or
// that Kern sets. A profile may have them too.
var overridden = regexp.MustCompile(`(?m)^[ \t]*(?:[\w."'-]+\.)?(?:model_provider|web_search)[ \t]*=.*$`)

// inline matches such a setting in the middle of a line.
var inline = regexp.MustCompile(`(?m)^[^#\n]*\bmodel_provider[ \t]*=`)

// CodexHome makes a directory of settings with which Codex asks the gateway however it
// is started: by a shell, by a script, or by its path. It returns the variables that
// name the directory; none if this user has no Codex. Everything but the settings is
// linked to the user's own directory, so the login and the sessions stay there.
func CodexHome(env []string, a Gateway, noSearch bool) ([]string, error) {
	e := environ{env}
	own := cmp.Or(e.get(ownCodexHome), e.get(codexHome))
	if home := e.get("HOME"); own == "" && home != "" {
		own = filepath.Join(home, ".codex")
	}
	if _, err := os.Stat(own); err != nil {
		if _, err := exec.LookPath("codex"); err != nil || own == "" {
			return nil, nil
		}
		if err := os.MkdirAll(own, 0o700); err != nil { // as Codex does
			return nil, err
		}
	}
	files, err := codexSettings(own)
	if err != nil {
		return nil, err
	}
	text := "model_provider = \"kern\"\n"
	if noSearch {
		text += "web_search = \"disabled\"\n"
	}
	files[codexConfig] = text + files[codexConfig] + "\n[model_providers.kern]\n" + strings.Join(provider(a), "\n") + "\n"
	// Programs that run at the same time share a directory only with the same settings.
	sum := sha256.Sum256(fmt.Append(nil, own, "\x00", files))
	dir := filepath.Join(a.Data, "codex", fmt.Sprintf("%x", sum[:8]))
	if err := linkAll(dir, own); err != nil {
		return nil, err
	}
	for name, text := range files {
		if err := replaceFile(filepath.Join(dir, name), text); err != nil {
			return nil, err
		}
	}
	return []string{codexHome + "=" + dir, codexState + "=" + cmp.Or(e.get(codexState), own), ownCodexHome + "=" + own}, nil
}

// codexConfig is the name of the settings. A profile has a name before it, and a dot.
const codexConfig = "config.toml"

// codexSettings reads the settings of the user and of profiles, without those that Kern
// sets.
func codexSettings(own string) (map[string]string, error) {
	names, err := filepath.Glob(filepath.Join(own, "*"+codexConfig))
	if err != nil {
		return nil, err
	}
	files := make(map[string]string)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		text := overridden.ReplaceAllString(string(b), "")
		if inline.MatchString(text) {
			return nil, fmt.Errorf("%s sets model_provider in the middle of a line: write it on a line of its own, so that Kern can replace it", name)
		}
		files[filepath.Base(name)] = text
	}
	return files, nil
}

// linkAll makes dir, with a link to everything in the directory own but the settings and
// the databases, which have a variable. Codex writes its login through the link.
func linkAll(dir, own string) error {
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(filepath.Join(own, "sessions"), 0o700), os.MkdirAll(filepath.Join(own, "skills"), 0o700)); err != nil {
		return err
	}
	entries, err := os.ReadDir(own)
	if err != nil {
		return err
	}
	names := []string{"auth.json", "history.jsonl"}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, name := range names {
		if strings.HasSuffix(name, codexConfig) || strings.Contains(name, ".sqlite") {
			continue
		}
		if err := os.Symlink(filepath.Join(own, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// replaceFile writes a file in one step.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), "config-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error says more
	}
	return err
}
