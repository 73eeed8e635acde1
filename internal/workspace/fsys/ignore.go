package fsys

import (
	"path"
	"regexp"
	"strings"
)

// Rules keep names out of digest and history, in the format of a .gitignore file.
// The last rule that matches wins. "!" includes a name again, a trailing "/" means
// only directories, and any other "/" ties the rule to the top directory.
type Rules struct {
	list []rule
	Text string
}

type rule struct {
	re   *regexp.Regexp
	not  bool
	dirs bool
}

// ParseRules parses the lines of a .gitignore file.
func ParseRules(lines []string) (*Rules, error) {
	r := &Rules{Text: strings.Join(lines, "\n")}
	for n, line := range lines {
		line = strings.TrimRight(line, " \t\r")
		if line == "" || line[0] == '#' {
			continue
		}
		var x rule
		if line[0] == '!' {
			x.not, line = true, line[1:]
		}
		if strings.HasSuffix(line, "/") {
			x.dirs, line = true, strings.TrimSuffix(line, "/")
		}
		// As in Git: a slash in the pattern ties it to the top, other patterns match at any depth.
		tied := strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		if line == "" {
			return nil, Errorf(Refused, "", "ignore rule %d: expected a pattern", n+1)
		}
		expr := globExpr(line)
		if !tied {
			expr = "(?:.*/)?" + expr
		}
		re, err := regexp.Compile("(?s)^" + expr + "$")
		if err != nil {
			return nil, Errorf(Refused, "", "ignore rule %d: %q is not a pattern: %v", n+1, Clip(line), err)
		}
		x.re = re
		r.list = append(r.list, x)
	}
	return r, nil
}

// globExpr converts a pattern to a regular expression.
func globExpr(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		// It also matches no directory at all, as in Git.
		case strings.HasPrefix(s[i:], "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case s[i:] == "**":
			b.WriteString(".*")
			i++
		case c == '*':
			b.WriteString("[^/]*")
		case c == '?':
			b.WriteString("[^/]")
		case c == '[' && strings.IndexByte(s[i+1:], ']') > 0:
			end := i + 1 + strings.IndexByte(s[i+1:], ']')
			class := s[i+1 : end]
			if class[0] == '!' {
				class = "^" + class[1:]
			}
			// A backslash escapes in a class of a regular expression, and not in a class of a pattern.
			b.WriteString("[" + strings.ReplaceAll(class, `\`, `\\`) + "]")
			i = end
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteString(regexp.QuoteMeta(s[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(s[i : i+1]))
		}
	}
	return b.String()
}

// Match reports whether a rule keeps out p itself. The caller does not ask for
// names below an ignored directory.
func (r *Rules) Match(p string, dir bool) bool {
	// A tree with .git in it is refused by Git, so no rule can include it.
	if IsGit(path.Base(p)) {
		return true
	}
	out := false
	for i := range r.list {
		// The last match wins. A rule that would change nothing need not run its expression.
		if x := &r.list[i]; x.not != !out && (dir || !x.dirs) && x.re.MatchString(p) {
			out = !x.not
		}
	}
	return out
}

// Below reports whether the rules keep out p or a directory above it.
func (r *Rules) Below(p string, dir bool) bool {
	for i := 0; i < len(p); i++ {
		if p[i] == '/' && r.Match(p[:i], true) {
			return true
		}
	}
	return p != "." && r.Match(p, dir)
}

// IsGit reports whether a name is .git on some file system. Git refuses such a name
// in a tree, and a transaction must not change the repository of a person.
func IsGit(name string) bool { return strings.EqualFold(name, ".git") }

// InGit reports whether p is, or lies in, a repository of a person.
func InGit(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if IsGit(part) {
			return true
		}
	}
	return false
}
