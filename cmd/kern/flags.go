package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
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
	abi.Children:     "limit on child processes, at any depth",
	abi.OutputBytes:  "limit on bytes of tool output, such as 1MiB",
	abi.Wall:         "limit on time since its start, such as 10m",
	abi.Depth:        "limit on the depth of child processes",
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

// unitNames are the names of units.
func unitNames(units []abi.Unit) (all []string) {
	for _, u := range units {
		all = append(all, u.String())
	}
	return all
}
