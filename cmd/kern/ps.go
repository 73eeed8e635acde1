package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/server"
)

// recent is how many of the processes that exited ps shows without -a.
const recent = 10

func psCommand(a *app) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List processes: what they do, wait for and cost",
		Long: `List processes as a tree: state, what they wait for, steps, tokens, money spent
and the limit on it, age. Questions that wait for a person stand below.

Those that live are listed, and of those that exited the last ` + strconv.Itoa(recent) + ` and the children
of living ones; -a lists all. --json lists all in any case.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.json(list)
			}
			return listProcesses(a, list, all)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also all that exited")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list of all processes")
	return cmd
}

func listProcesses(a *app, list []server.Process, all bool) error {
	shown := list
	if !all {
		shown = lately(list)
	}
	if len(shown) == 0 {
		a.note("kern: no processes; start one with: kern run")
		return nil
	}
	rows := [][]string{{"PID", "NAME", "STATE", "STEPS", "TOKENS", "MONEY", "AGE"}}
	var asks []string
	var walk func(parent abi.Pid, depth int)
	walk = func(parent abi.Pid, depth int) {
		for _, p := range shown {
			if p.Parent != parent {
				continue
			}
			indent := ""
			if depth > 0 {
				indent = strings.Repeat("  ", depth-1) + "└ "
			}
			name := cut(clean(p.Name), 24)
			if name == "" {
				name = "-"
			}
			rows = append(rows, []string{indent + strconv.FormatInt(int64(p.Pid), 10), name, stateOf(&p), strconv.FormatInt(p.Steps, 10),
				strconv.FormatInt(p.Usage.Tokens, 10), moneyOf(&p), age(time.Duration(p.AgeMS) * time.Millisecond)})
			for _, q := range p.Asks {
				asks = append(asks, fmt.Sprintf("process %d, approval: %q → kern approve %d %d", p.Pid, cut(clean(q.Question), 100), p.Pid, q.Call))
			}
			walk(p.Pid, depth+1)
		}
	}
	walk(0, 0)
	if err := table(a.stdout, rows); err != nil {
		return err
	}
	for _, q := range asks {
		if err := a.print("%s\n", a.paint(a.outTTY, yellow, q)); err != nil {
			return err
		}
	}
	if n := len(list) - len(shown); n > 0 {
		a.note("%s exited earlier; kern ps -a lists all", plural(int64(n), "process"))
	}
	return nil
}

// lately leaves out those that exited long ago. A process is there only with
// all above it.
func lately(list []server.Process) []server.Process {
	keep := make(map[abi.Pid]bool)
	parent := make(map[abi.Pid]abi.Pid)
	living := make(map[abi.Pid]bool)
	var exited []server.Process
	for _, p := range list {
		parent[p.Pid] = p.Parent
		if p.State != abi.Exited {
			living[p.Pid], keep[p.Pid] = true, true
		} else {
			exited = append(exited, p)
		}
	}
	ended := func(p server.Process) time.Time { return p.Born.Add(time.Duration(p.AgeMS) * time.Millisecond) }
	slices.SortStableFunc(exited, func(p, q server.Process) int { return ended(q).Compare(ended(p)) })
	for i, p := range exited {
		if i < recent || living[p.Parent] {
			keep[p.Pid] = true
		}
	}
	for pid := range keep {
		for up := parent[pid]; up != 0; up = parent[up] {
			keep[up] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(p server.Process) bool { return !keep[p.Pid] })
}

// stateOf is the state, and what is waited for or how it ended.
func stateOf(p *server.Process) string {
	s := string(p.State)
	switch {
	case p.State == abi.Exited:
		s = string(p.Exit)
		if p.Exit == abi.ExitLimit || p.Exit == abi.ExitKilled && p.Reason != string(abi.Kill) {
			s += " (" + p.Reason + ")"
		}
	case len(p.Waits) > 0:
		s += ": " + waits(p.Waits)
	}
	return s
}

// waits counts what is waited for more than once.
func waits(list []string) string {
	counts := make(map[string]int)
	for _, w := range list {
		counts[w]++
	}
	var all []string
	for _, w := range sortedKeys(counts) {
		if n := counts[w]; n > 1 {
			w += fmt.Sprintf(" ×%d", n)
		}
		all = append(all, w)
	}
	return strings.Join(all, ", ")
}

func moneyOf(p *server.Process) string {
	s := p.Usage.Money
	if n, set := p.Limits.Get(abi.Money); set {
		s += " / " + abi.FormatMoney(n)
	}
	return s
}

// completePids lists processes for the shell, when a daemon is there to ask.
func (a *app) completePids(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, _, err := a.running(ctx)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	list, err := c.List(ctx)
	var pids []string
	for _, p := range list {
		pids = append(pids, fmt.Sprintf("%d\t%s %s", p.Pid, clean(p.Name), stateOf(&p)))
	}
	if err != nil {
		pids = nil
	}
	return pids, cobra.ShellCompDirectiveNoFileComp
}
