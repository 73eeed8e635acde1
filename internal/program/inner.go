package program

// What is done for an agent is done by its name, and the name stands behind
// others: npx, env, a shell.

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A wrapper is a program that runs another, whose name and arguments stand behind
// its own.
type wrapper struct {
	verbs  string // one of them comes first
	flags  string // options of its own
	valued string // options that take a value, in the next argument or behind =
	skip   int    // arguments that come before the other program
	sets   bool   // NAME=VALUE may come before it
}

// wrappers are those that are seen through. One that is not here, or has an option
// that is not, may give another meaning to what follows: there nothing is found.
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
var packages = map[string]string{"@anthropic-ai/claude-code": "claude", "@openai/codex": "codex"}

// agent is by which name a program is known, whatever its path, or the version of
// its package.
func agent(name string) string {
	if at := strings.LastIndexByte(name, '@'); at > max(0, strings.LastIndexByte(name, '/')) {
		name = name[:at]
	}
	if known := packages[name]; known != "" {
		return known
	}
	return filepath.Base(name)
}

// inner is where the program stands that a command line runs in the end: after
// wrappers, if there are any.
func inner(argv []string) (at int) {
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

// Inner is the command line that another runs in the end.
func Inner(argv []string) []string { return argv[inner(argv):] }

// length is how many arguments are the wrapper's, with its name; 0: that is not
// known.
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

// A place is where an agent that is known by its name stands in a command line.
type place struct {
	agent string
	arg   int // the argument that is it, or a script that begins with it
	end   int // of its name in the script; 0: it is none
}

// find finds an agent, "" if there is none that can be told: in a script only
// its first command is looked at, and no word of that which the shell reads as
// more than it says.
func find(argv []string) place {
	at := inner(argv)
	i := script(argv[at:])
	if i == 0 {
		return place{agent: agent(argv[at]), arg: at}
	}
	words, ends := plain(argv[at+i])
	if first := inner(words); first < len(words) {
		return place{agent(words[first]), at + i, ends[first]}
	}
	return place{}
}

// script is which argument of a shell is the script, 0 if none is.
func script(argv []string) int {
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

// plain are the words at the beginning of a script that say no more than they
// are, as far as its first command goes, and where each ends. What it sets for
// that command is none of them.
func plain(script string) (words []string, ends []int) {
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

// Untold reports whether a command line may start Codex where nobody sees it.
func Untold(argv []string) bool {
	if find(argv).agent == "codex" {
		return false
	}
	rest := argv[inner(argv):]
	if i := script(rest); i > 0 {
		return mention.MatchString(rest[i])
	}
	_, wraps := wrappers[filepath.Base(rest[0])]
	return wraps && slices.ContainsFunc(rest[1:], func(a string) bool { return agent(a) == "codex" })
}

// insert puts arguments behind the name of the program.
func (p place) insert(argv, more []string) []string {
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
