package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

// recent is how many exited processes ps shows without -a.
const recent = 10

// completed is how many of them the completion of the shell offers.
const completed = 100

func psCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List processes: their state, use and cost",
		Long: `List processes as a tree: state, what they wait for, steps, tokens, money spent and
its limit, age (for an exited process: how long it lived). Questions that wait for
a person follow below. A narrow terminal shortens texts and omits columns; a pipe
gets everything.

The list has all living processes, the last ` + strconv.Itoa(recent) + ` that exited, and the last ` + strconv.Itoa(recent) + ` children
of each living process; -a lists all. --json always lists all.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return withDaemon(cmd.Context(), d, func(c *api.Client) error { return c.CopyList(cmd.Context(), t.Out) })
			}
			more := 0
			return report(cmd.Context(), t, d, false, func(c *api.Client) (list []api.Process, err error) {
				if all {
					return c.List(cmd.Context())
				}
				list, more, err = c.Recent(cmd.Context(), recent)
				return list, err
			}, func(t *cli.Terminal, list []api.Process) error { return listProcesses(t, list, more) })
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include all processes that exited")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list of all processes")
	return cmd
}

// listProcesses prints a list that leaves out more processes.
func listProcesses(t *cli.Terminal, list []api.Process, more int) error {
	if len(list) == 0 {
		t.Note("kern: no processes; start one with: kern run")
		return nil
	}
	var rows [][]string
	var asks []string
	kids := make(map[abi.Pid][]api.Process)
	for _, p := range list {
		kids[p.Parent] = append(kids[p.Parent], p)
	}
	var walk func(parent abi.Pid, depth int)
	walk = func(parent abi.Pid, depth int) {
		for _, p := range kids[parent] {
			indent := ""
			if depth > 0 {
				indent = strings.Repeat("  ", depth-1) + "└ "
			}
			name := cli.Cut(cli.Clean(p.Name), 24)
			if name == "" {
				name = "-"
			}
			rows = append(rows, []string{indent + strconv.FormatInt(int64(p.Pid), 10), name, stateOf(&p), strconv.FormatInt(p.Steps, 10),
				strconv.FormatInt(p.Usage.Tokens, 10), moneyOf(&p), cli.Age(time.Duration(p.AgeMS) * time.Millisecond)})
			for _, q := range p.Asks {
				asks = append(asks, fmt.Sprintf("process %d asks: %q → kern approve %d %d", p.Pid, cli.Cut(cli.Clean(q.Question), 100), p.Pid, q.Call))
			}
			walk(p.Pid, depth+1)
		}
	}
	walk(0, 0)
	columns := []cli.Column{{Head: "PID"}, {Head: "NAME", Least: 5}, {Head: "STATE", Least: 18}, {Head: "STEPS", Spare: 2}, {Head: "TOKENS", Spare: 1}, {Head: "MONEY", Spare: 4}, {Head: "AGE", Spare: 3}}
	if err := t.Table(columns, rows); err != nil {
		return err
	}
	for _, q := range asks {
		if err := t.Print("%s\n", t.Paint(cli.Yellow, q)); err != nil {
			return err
		}
	}
	if more > 0 {
		t.Note("%s exited earlier; kern ps -a lists them", cli.Plural(int64(more), "process"))
	}
	return nil
}

// stateOf formats the state: what the process waits for, or how it ended.
func stateOf(p *api.Process) string {
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

// waits lists what a process waits for, and counts repetitions.
func waits(list []string) string {
	counts := make(map[string]int)
	for _, w := range list {
		counts[w]++
	}
	var all []string
	for _, w := range cli.SortedKeys(counts) {
		if n := counts[w]; n > 1 {
			w += fmt.Sprintf(" ×%d", n)
		}
		all = append(all, w)
	}
	return strings.Join(all, ", ")
}

func moneyOf(p *api.Process) string {
	s := "$" + p.Usage.Money
	if n, set := p.Limits.Get(abi.Money); set {
		s += " / $" + abi.FormatMoney(n)
	}
	return s
}

// completePids offers pids to the completion of the shell, if a daemon runs.
func completePids(d *daemon.Directory) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := d.Dial(ctx)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		list, _, _ := c.Recent(ctx, completed) // an error offers no pids
		var pids []string
		for _, p := range list {
			pids = append(pids, fmt.Sprintf("%d\t%s %s", p.Pid, cli.Clean(p.Name), stateOf(&p)))
		}
		return pids, cobra.ShellCompDirectiveNoFileComp
	}
}
