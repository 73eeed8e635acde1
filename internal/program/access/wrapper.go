package access

// Kern recognizes an agent program by its name. The name may follow the names of other
// programs, such as npx, env or a shell.

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A wrapper is a program that runs another. The name and arguments of the other
// follow its own.
type wrapper struct {
	verbs  string // one of them comes first
	flags  string // options of its own
	valued string // options that take a value, in the next argument or behind =
	skip   int    // arguments that come before the other program
	sets   bool   // NAME=VALUE may come before it
}

// wrappers lists the known wrappers. An unknown wrapper or option may change the meaning
// of the words after it, so the search stops there.
var wrappers = map[string]wrapper{
	"env":     {valued: "-u --unset -C --chdir", sets: true},
	"exec":    {}, // in a script, as the next
	"command": {},
	"nice":    {valued: "-n --adjustment"},
	"nohup":   {},
	"setsid":  {flags: "-w --wait"},
	"stdbuf":  {valued: "-i --input -o --output -e --error"},
	"time":    {flags: "-p -v"},
	"timeout": {flags: "-f --foreground -p --preserve-status -v --verbose", valued: "-k --kill-after -s --signal", skip: 1},
	"npx":     {flags: "-y --yes --no -q --quiet --prefer-offline", valued: "-p --package"},
	"pnpx":    {},
	"pnpm":    {verbs: "dlx exec", valued: "--package"},
	"yarn":    {verbs: "dlx exec", flags: "-q --quiet", valued: "-p --package"},
	"bunx":    {flags: "--bun", valued: "-p --package"},
	"bun":     {verbs: "x", flags: "--bun", valued: "-p --package"},
	"uv":      {verbs: "run", flags: "-q --quiet", valued: "-p --python --with"},
	"uvx":     {flags: "-q --quiet", valued: "-p --python --with --from"},
	"pipx":    {verbs: "run", flags: "-q --quiet", valued: "--python --spec"},
}

// packages are other names of agents.
var packages = map[string]string{"@anthropic-ai/claude-code": "claude", "@openai/codex": "codex", "@google/gemini-cli": "gemini",
	"@github/copilot": "copilot", "@sourcegraph/amp": "amp", "@augmentcode/auggie": "auggie"}

// vendors are agents that ask models of their vendor, whatever their environment says.
var vendors = []string{"gemini", "copilot", "amp", "auggie", "cursor-agent", "droid"}

// started matches such an agent where a script starts a command.
var started = regexp.MustCompile(`(?:^|[;&|(\n]\s*|\b(?:exec|then|do|npx|timeout \S+)\s+)(?:\S*/)?(` + strings.Join(vendors, "|") + `)(?:\s|$|[;|&)])`)

// findVendor returns the agent in a command line that asks models of its vendor.
func findVendor(argv []string) string {
	if agent := findAgent(argv).agent; slices.Contains(vendors, agent) {
		return agent
	}
	rest := Unwrap(argv)
	if i := scriptIndex(rest); i > 0 {
		if m := started.FindStringSubmatch(rest[i]); m != nil {
			return m[1]
		}
	}
	return ""
}

// agentName returns the name of a program without its path and the version of its
// package.
func agentName(name string) string {
	if at := strings.LastIndexByte(name, '@'); at > max(0, strings.LastIndexByte(name, '/')) {
		name = name[:at]
	}
	if known := packages[name]; known != "" {
		return known
	}
	return filepath.Base(name)
}

// programIndex returns where the program stands behind all wrappers.
func programIndex(argv []string) (at int) {
	for at < len(argv) {
		w, is := wrappers[filepath.Base(argv[at])]
		n := w.length(argv[at:])
		if !is || n == 0 || at+n >= len(argv) {
			break
		}
		at += n
	}
	return at
}

// Unwrap returns a command line without its wrappers.
func Unwrap(argv []string) []string { return argv[programIndex(argv):] }

// length counts the arguments of the wrapper, with its name; 0: it is not known.
func (w wrapper) length(argv []string) int {
	n := 1
	if w.verbs != "" {
		if n == len(argv) || !among(w.verbs, argv[n]) {
			return 0
		}
		n++
	}
	for ; n < len(argv) && strings.HasPrefix(argv[n], "-"); n++ {
		name, _, valued := strings.Cut(argv[n], "=")
		switch {
		case name == "--":
			return n + 1 + w.skip
		case among(w.valued, name) && !valued:
			n++
		case !among(w.valued, name) && !among(w.flags, argv[n]):
			return 0
		}
	}
	for w.sets && n < len(argv) && strings.Contains(argv[n], "=") {
		n++
	}
	return n + w.skip
}

func among(words, word string) bool { return slices.Contains(strings.Fields(words), word) }

// A location says where the name of a known agent stands in a command line.
type location struct {
	agent string
	arg   int // the argument with the name, or with a script that begins with it
	end   int // of the name in the script; 0: no script
}

// findAgent finds an agent. In a script it reads only the first command, and only
// words without a meaning for the shell.
func findAgent(argv []string) location {
	at := programIndex(argv)
	i := scriptIndex(argv[at:])
	if i == 0 {
		return location{agent: agentName(argv[at]), arg: at}
	}
	words, ends := leadingWords(argv[at+i])
	if first := programIndex(words); first < len(words) {
		return location{agentName(words[first]), at + i, ends[first]}
	}
	return location{}
}

// scriptIndex returns which argument of a shell is the script; 0: none.
func scriptIndex(argv []string) int {
	if !among("sh bash dash zsh ksh ash", filepath.Base(argv[0])) {
		return 0
	}
	for i, a := range argv[1:] {
		switch {
		case len(a) < 2 || a[0] != '-' || strings.Trim(a[1:], "ceilux") != "":
			return 0
		case strings.Contains(a, "c"):
			return (i + 2) % len(argv)
		}
	}
	return 0
}

var (
	plainWord = regexp.MustCompile(`^[ \t]*([\w@%+=:,./~-]+)([ \t]*[;|&\n]|[ \t]*$|[ \t]+)`)
	setting   = regexp.MustCompile(`^[A-Za-z_]\w*=`)
	mention   = regexp.MustCompile(`(^|[\s;|&(/])codex(@\S+)?([\s;|&)]|$)`)
)

// leadingWords returns the words of the first command of a script, and where each
// ends, up to the first one with a meaning for the shell. It skips variables that
// are set for that command.
func leadingWords(script string) (words []string, ends []int) {
	for at := 0; ; {
		m := plainWord.FindStringSubmatchIndex(script[at:])
		if m == nil || strings.HasPrefix(script[at+m[1]:], "(") { // a function begins
			return words, ends
		}
		if word := script[at+m[2] : at+m[3]]; words != nil || !setting.MatchString(word) {
			words, ends = append(words, word), append(ends, at+m[3])
		}
		if strings.Trim(script[at+m[4]:at+m[5]], " \t") != "" {
			return words, ends
		}
		at += m[1]
	}
}

// HidesCodex reports whether a command line may start Codex where findAgent does not
// find it.
func HidesCodex(argv []string) bool {
	if findAgent(argv).agent == "codex" {
		return false
	}
	rest := argv[programIndex(argv):]
	if i := scriptIndex(rest); i > 0 {
		return mention.MatchString(rest[i])
	}
	_, wraps := wrappers[filepath.Base(rest[0])]
	return wraps && slices.ContainsFunc(rest[1:], func(a string) bool { return agentName(a) == "codex" })
}

// insert puts arguments behind the name of the program.
func (p location) insert(argv, more []string) []string {
	argv = slices.Clone(argv)
	if p.end == 0 {
		return slices.Insert(argv, p.arg+1, more...)
	}
	text := ""
	for _, m := range more {
		text += " '" + strings.ReplaceAll(m, "'", `'\''`) + "'"
	}
	argv[p.arg] = argv[p.arg][:p.end] + text + argv[p.arg][p.end:]
	return argv
}
