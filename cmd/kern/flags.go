package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
)

// flagLimit is the value of a flag for one limit.
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
	abi.Children:     "limit on processes started below it, or none",
	abi.OutputBytes:  "limit on bytes of tool output, such as 1MiB",
	abi.Wall:         "limit on time since its start, such as 10m",
	abi.Depth:        "limit on generations below it, or none",
	abi.Context:      "limit on the tokens of one model request",
}

// addLimits adds a flag for the limit on each unit.
func addLimits(flags *pflag.FlagSet, l *abi.Limits, units []abi.Unit) {
	for _, u := range units {
		flags.Var(flagLimit{u, l}, flagName(u), unitHelp[u])
	}
}

func flagName(u abi.Unit) string { return strings.ReplaceAll(u.String(), "_", "-") }

// flagDuration is the value of a flag for a duration that may be absent.
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

// sinceTime reads a point in time: a duration before now, in which d is a day, a time
// of today, or a date.
func sinceTime(s string, now time.Time) (int64, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n).UnixNano(), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d).UnixNano(), nil
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if c, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), c.Hour(), c.Minute(), c.Second(), 0, now.Location()).UnixNano(), nil
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return at.UnixNano(), nil
		}
	}
	return 0, cli.Usage("for example --since 10m, --since 7d, --since 14:30 or --since 2026-01-31", "--since is %q, expected a duration, a time or a date", s)
}

// pidText is a pid as text.
func pidText(pid abi.Pid) string { return strconv.FormatInt(int64(pid), 10) }

// unitNames are the names of units.
func unitNames(units []abi.Unit) (all []string) {
	for _, u := range units {
		all = append(all, u.String())
	}
	return all
}
