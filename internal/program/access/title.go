package access

import (
	"regexp"
	"slices"
	"strings"
)

// Hidden replaces a secret in a title.
const Hidden = "[secret]"

// credential matches the names of variables and flags that hold secrets.
const credential = `[\w-]*(?i:key|token|secret|password|passwd|credential|auth)[\w-]*`

// A command line says a secret as NAME=VALUE, as --NAME VALUE, behind Bearer, or in
// the spelling of a well-known service.
var (
	secretName  = regexp.MustCompile(`^` + credential + `$`)
	secretWords = []*regexp.Regexp{
		regexp.MustCompile(`(` + credential + `=)\S+`),
		regexp.MustCompile(`(--?` + credential + `\s+)[^-\s]\S*`),
		regexp.MustCompile(`((?i:bearer|basic)\s+)[\w.~+/=-]{8,}`),
		regexp.MustCompile(`()\b(?:sk|pk|rk|ghp|gho|github_pat|glpat|xox[abp]|AKIA|AIza)[-_A-Za-z0-9]{12,}`),
		regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`),
	}
)

// minSecret is the length of the shortest value of a variable that is taken for a
// secret. A shorter one would hide ordinary words.
const minSecret = 8

// Title returns a command line in one line, without the secrets that are in it: the
// journal keeps the title, and never a secret.
func Title(argv, env []string) string {
	title := strings.Join(argv, " ")
	var secrets []string
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); len(value) >= minSecret && secretName.MatchString(name) {
			secrets = append(secrets, value)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // a secret may contain another
	for _, s := range secrets {
		title = strings.ReplaceAll(title, s, Hidden)
	}
	for _, r := range secretWords {
		title = r.ReplaceAllString(title, "${1}"+Hidden)
	}
	return title
}
