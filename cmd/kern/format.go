package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
)

func isTerminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) }

// Colours, and the codes that take a line away.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
	faint  = "2"

	clearLine = "\r\x1b[K"
)

// paint colours s on a terminal, unless NO_COLOR is set.
func (a *app) paint(tty bool, colour, s string) string {
	if !tty || a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// clean makes one harmless line of a text from outside: agents choose their
// names and words, and a terminal obeys what it is sent.
func clean(s string) string { return cli.Clean(s, "") }

// cleanText is clean for a text of many lines.
func cleanText(s string) string { return cli.Clean(s, "\n\t") }

// age is how long something took, for people.
func age(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// spent is money used, and the limit on it if there is one.
func spent(n int64, l abi.Limits) string {
	s := "$" + abi.FormatMoney(n)
	if limit, set := l.Get(abi.Money); set {
		s += " / $" + abi.FormatMoney(limit)
	}
	return s
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// limitsLine lists limits as the flags name them.
func limitsLine(l abi.Limits) string {
	var all []string
	l.Each(func(u abi.Unit, n int64) { all = append(all, u.String()+" "+amount(u, n)) })
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

// names are what units are called.
func names(units []abi.Unit) (all []string) {
	for _, u := range units {
		all = append(all, u.String())
	}
	return all
}

// amount is so much of a unit, for people.
func amount(u abi.Unit, n int64) string {
	s := abi.FormatUnit(u, n)
	switch u {
	case abi.Money:
		return "$" + s
	case abi.Wall:
		for _, none := range []string{"0s", "0m"} { // 10m0s is 10m
			if t := strings.TrimSuffix(s, none); t != s && t != "" && t[len(t)-1] > '9' {
				s = t
			}
		}
	}
	return s
}

// json prints a value as one line of JSON, without changing what stands in
// texts.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// flagLimit is the flag of one limit.
type flagLimit struct {
	unit   abi.Unit
	limits *abi.Limits
}

func (f flagLimit) String() string {
	if f.limits == nil {
		return ""
	}
	if n, set := f.limits.Get(f.unit); set {
		return abi.FormatUnit(f.unit, n)
	}
	return ""
}

func (f flagLimit) Set(s string) error {
	n, err := abi.ParseUnit(f.unit, s)
	if err == nil {
		f.limits.Set(f.unit, n)
	}
	return err
}

func (f flagLimit) Type() string {
	switch f.unit {
	case abi.Money:
		return "dollars"
	case abi.Wall, abi.CPU:
		return "duration"
	case abi.OutputBytes:
		return "size"
	}
	return "number"
}

var unitHelp = map[abi.Unit]string{
	abi.Money:        "limit on money, such as 0.50",
	abi.Tokens:       "limit on tokens, in and out together",
	abi.InputTokens:  "limit on input tokens",
	abi.OutputTokens: "limit on output tokens",
	abi.Steps:        "limit on steps: turns of the model",
	abi.ModelCalls:   "limit on model calls, attempts included",
	abi.ToolCalls:    "limit on tool calls, attempts included",
	abi.Children:     "limit on processes started below it",
	abi.OutputBytes:  "limit on bytes of tool output, such as 1MiB",
	abi.Wall:         "limit on time from its start, such as 10m",
	abi.Depth:        "limit on generations below it",
	abi.Context:      "limit on tokens in one request to a model",
}

// addLimits adds a flag for each unit.
func addLimits(flags *pflag.FlagSet, l *abi.Limits, units []abi.Unit) {
	for _, u := range units {
		flags.Var(flagLimit{u, l}, flagName(u), unitHelp[u])
	}
}

func flagName(u abi.Unit) string { return strings.ReplaceAll(u.String(), "_", "-") }

// flagDuration is a duration that may not be given.
type flagDuration struct {
	d   time.Duration
	set bool
}

func (f *flagDuration) String() string {
	if !f.set {
		return ""
	}
	return f.d.String()
}

func (f *flagDuration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("%q: expected a duration such as 30s or 10m", s)
	}
	f.d, f.set = d, true
	return nil
}

func (f *flagDuration) Type() string { return "duration" }
