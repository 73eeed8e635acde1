package access

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestFindAgent looks for agents behind what starts them, and finds none where the
// line may mean something else.
//
// Mutants that die here: an option that is not known taken for one, its value for
// the program, a script's later command for its first.
func TestFindAgent(t *testing.T) {
	for line, want := range map[string]string{
		"claude": "claude", "/opt/bin/codex": "codex", "/home@x/bin/codex": "codex", "python codex": "python", "./codex.sh": "codex.sh",
		"npx claude -p hi":                        "claude",
		"npx -y @anthropic-ai/claude-code@latest": "claude",
		"npx @openai/codex@0.50.0 exec":           "codex",
		"npx -p @openai/codex codex":              "codex",
		"npx --package=@openai/codex -- codex":    "codex",
		"npx --unheard-of codex":                  "npx",
		"npx -c codex":                            "npx",
		"npx":                                     "npx",
		"pnpm dlx @openai/codex":                  "codex",
		"pnpm run codex":                          "pnpm",
		"pnpm":                                    "pnpm",
		"yarn dlx -q @openai/codex":               "codex",
		"bunx @openai/codex":                      "codex",
		"bun x claude":                            "claude",
		"uv run claude":                           "claude",
		"env claude":                              "claude",
		"env A=1 B=2 claude -p x":                 "claude",
		"env -u A -C /tmp -- claude":              "claude",
		"env -i claude":                           "env",
		"env A=1":                                 "env",
		"timeout -k 5 10m nice -n 5 npx codex":    "codex",
		"timeout --signal=INT 10m codex":          "codex",
		"timeout -- 9 codex":                      "codex",
		"timeout 9":                               "timeout",
		"sh -c|codex":                             "codex",
		"bash -lc|exec codex exec \"$1\"|x":       "codex",
		"sh -e -c|A=1 B=2 npx -y @openai/codex":   "codex",
		"sh -c|codex;true":                        "codex",
		"sh -c|codex | tee log":                   "codex",
		"sh -c|\t /opt/codex\necho":               "codex",
		"env A=1 sh -c|claude -p x":               "claude",
		"sh -c|co\"dex\"":                         "",
		"sh -c|codex\"x\"":                        "",
		"sh -c|codex() { :; }":                    "",
		"sh -c|codex () { :; }":                   "",
		"sh -c|A=\"$B\" codex":                    "",
		"sh -c|$A codex":                          "",
		"sh -c|":                                  "",
		"sh -c|./a=b codex":                       "a=b",
		"sh -c|cd x && codex":                     "cd",
		"sh -c":                                   "sh", "sh codex": "sh", "sh -s codex": "sh", "bash --norc -c|codex": "bash",
	} {
		if got := findAgent(split(line)).agent; got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// split makes a command line of words, and of what stands behind bars, each an
// argument; an empty last one is one too.
func split(line string) []string {
	words, rest, more := strings.Cut(line, "|")
	argv := strings.Fields(words)
	if more {
		argv = append(argv, rest)
	}
	return argv
}

// TestInsert has a shell read what was put into a script: the rest of it means
// what it did.
func TestInsert(t *testing.T) {
	more := []string{"-c", `a="it's $HOME"`}
	for script, want := range map[string]string{
		`codex`:                        "-c,a=\"it's $HOME\",",
		`codex exec "$1" | tr , ';'`:   "-c;a=\"it's $HOME\";exec;one two;",
		`A=1 codex 'x y'; echo " end"`: "-c,a=\"it's $HOME\",x y, end\n",
	} {
		argv := []string{"sh", "-c", script, "zero", "one two"}
		before := slices.Clone(argv)
		got := findAgent(argv).insert(argv, more)
		got[2] = `codex() { printf %s, "$@"; }` + "\n" + got[2]
		out, err := exec.Command(got[0], got[1:]...).Output()
		if err != nil || string(out) != want || !slices.Equal(argv, before) {
			t.Errorf("%s: %q, %v; want %q", got[2], out, err, want)
		}
	}
	if got := findAgent([]string{"npx", "codex", "exec"}).insert([]string{"npx", "codex", "exec"}, more); !slices.Equal(got, []string{"npx", "codex", "-c", more[1], "exec"}) {
		t.Errorf("%q", got)
	}
}

// TestUntold tells of Codex where it is started and cannot be told where to ask.
func TestUntold(t *testing.T) {
	for line, want := range map[string]bool{
		"codex": false, "npx codex": false, "sh -c|codex exec": false, "python agent.py": false, "cat codex": false, "sh -c|cat codex.md": false, "npx claude": false,
		"sh -c|cd x && codex exec": true, "bash -c|npx -c @openai/codex": true, "npx --unheard-of @openai/codex": true, "sh -c|(codex)": true, "env -i codex": true,
	} {
		if got := HidesCodex(split(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}
