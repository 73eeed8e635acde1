package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

// psFlags select what ps lists.
type psFlags struct {
	all, json bool
	last      int           // list this many; 0: the usual list
	states    []string      // only processes in one of these states
	watch     bool          // list again and again
	every     time.Duration // how often
}

func psCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var f psFlags
	cmd := &cobra.Command{
		Use: "ps [PROCESS...]", SuggestFor: []string{"top", "status", "stats", "ls", "list", "jobs"},
		Short: "List processes: what they do, their state and cost",
		Long: `List processes as a tree: the task or the command line, the state or what they wait
for, the model, steps, tokens, money spent and its limit, when they started, and
how long they ran. Questions that wait for a person follow below. A narrow terminal
shortens texts and omits columns; a pipe gets everything.

The list has all living processes, the last ` + strconv.Itoa(recent) + ` that exited, and the last ` + strconv.Itoa(recent) + ` children
of each living process; -a lists all, -n N the N newest. Arguments list only these
processes. --state lists those in a state: living, exited, or a word that the
column STATE shows, such as running, waiting, paused, done, failed, limit, loop,
killed or crashed. --watch lists again every two seconds until Ctrl-C.

--json prints the same processes as a JSON list, and without other flags all.

` + processArgs,
		Example: `  kern ps --state limit,loop
  kern ps -n 3
  kern ps --watch
  kern ps crew --json`,
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.last < 0 {
				return cli.Usage("kern ps -a lists all", "-n is %d, expected 0 or more", f.last)
			}
			if f.json && len(args) == 0 && f.last == 0 && len(f.states) == 0 && !f.watch {
				return copyOnce(cmd.Context(), t, d, func(c *api.Client, w io.Writer) error { return c.CopyList(cmd.Context(), w) })
			}
			return f.run(cmd.Context(), t, d, args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.all, "all", "a", false, "include all processes that exited")
	flags.IntVarP(&f.last, "last", "n", 0, "list the `n` newest processes")
	flags.StringSliceVar(&f.states, "state", nil, "list the processes in one of these `states`")
	flags.BoolVarP(&f.watch, "watch", "w", false, "list again every two seconds, until Ctrl-C")
	flags.DurationVar(&f.every, "every", 2*time.Second, "with --watch: the time between two lists")
	flags.BoolVar(&f.json, "json", false, "print a JSON list")
	return cmd
}

// run prints the list, once or again and again.
func (f *psFlags) run(ctx context.Context, t *cli.Terminal, d *daemon.Directory, args []string) error {
	s, err := openSession(ctx, t, d)
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		var list []api.Process
		more := 0
		err := s.Do(ctx, func(c *api.Client) (err error) { list, more, err = f.read(ctx, c, args); return err })
		if err == nil && f.watch && t.OutTTY {
			err = t.Print("\x1b[H\x1b[2J") // the list begins at the top of an empty screen
		}
		switch {
		case f.watch && errors.Is(context.Cause(ctx), cli.ErrInterrupted):
			return nil
		case err != nil:
			return err
		case f.json && list == nil:
			err = t.JSON([]api.Process{})
		case f.json:
			err = t.JSON(list)
		default:
			err = listProcesses(t, list, more, len(args)+len(f.states) > 0)
		}
		if err != nil || !f.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(f.every, 100*time.Millisecond)):
		}
	}
}

// read reads the processes that the flags and the arguments select.
func (f *psFlags) read(ctx context.Context, c *api.Client, args []string) (list []api.Process, more int, err error) {
	switch {
	case len(args) > 0:
		for _, name := range args {
			pid, err := findProcess(ctx, c, name)
			if err != nil {
				return nil, 0, err
			}
			p, err := c.Show(ctx, pid)
			if err != nil {
				return nil, 0, err
			}
			list = append(list, p)
		}
	case f.all || f.last > 0 || len(f.states) > 0:
		list, err = c.List(ctx)
	default:
		list, more, err = c.Recent(ctx, recent)
	}
	if len(f.states) > 0 {
		list = slices.DeleteFunc(list, func(p api.Process) bool {
			return !slices.ContainsFunc(f.states, func(s string) bool { return inState(&p, s) })
		})
	}
	if f.last > 0 {
		list = list[max(0, len(list)-f.last):]
	}
	return list, more, err
}

// inState reports whether a word describes the state of a process.
func inState(p *api.Process, word string) bool {
	switch word {
	case "living":
		return p.State != abi.Exited
	case "asking":
		return len(p.Asks) > 0
	}
	return word == string(p.State) || p.State == abi.Exited && word == string(p.End.Exit)
}

// listProcesses prints a list that leaves out more processes.
func listProcesses(t *cli.Terminal, list []api.Process, more int, selected bool) error {
	switch {
	case len(list) == 0 && selected:
		t.Note("kern: no such process; kern ps -a lists all")
		return nil
	case len(list) == 0:
		t.Note("kern: no processes; start one with: kern run")
		return nil
	}
	var rows [][]string
	var asks []string
	known, kids := make(map[abi.Pid]bool), make(map[abi.Pid][]api.Process)
	for _, p := range list {
		known[p.Pid] = true
	}
	for _, p := range list {
		if !known[p.Parent] {
			p.Parent = 0 // its parent is not in the list, so it stands at the margin
		}
		kids[p.Parent] = append(kids[p.Parent], p)
	}
	now := time.Now()
	var walk func(parent abi.Pid, depth int)
	walk = func(parent abi.Pid, depth int) {
		for _, p := range kids[parent] {
			rows = append(rows, psRow(&p, depth, now))
			for _, q := range p.Asks {
				asks = append(asks, fmt.Sprintf("process %d asks: %q → kern approve %d %d", p.Pid, cli.Cut(cli.Clean(q.Question), 100), p.Pid, q.Call))
			}
			walk(p.Pid, depth+1)
		}
	}
	walk(0, 0)
	columns := []cli.Column{{Head: "PID"}, {Head: "NAME", Least: 5, Spare: 9}, {Head: "STATE", Least: 14, Colour: stateColour}, {Head: "TASK", Least: 12}, {Head: "MODEL", Least: 10, Spare: 3, End: true},
		{Head: "STEPS", Spare: 4}, {Head: "TOKENS", Spare: 1}, {Head: "MONEY", Spare: 8}, {Head: "STARTED", Spare: 6}, {Head: "RAN", Spare: 2}}
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

// psRow formats the line of a process.
func psRow(p *api.Process, depth int, now time.Time) []string {
	indent := ""
	if depth > 0 {
		indent = strings.Repeat("  ", depth-1) + "└ "
	}
	return []string{indent + strconv.FormatInt(int64(p.Pid), 10), orDash(cli.Cut(cli.Clean(p.Name), 24)), stateOf(p), orDash(cli.Cut(cli.Clean(p.Origin.Title), 60)), orDash(cli.Clean(p.Origin.Model)),
		strconv.FormatInt(p.Steps, 10), strconv.FormatInt(p.Usage.Tokens, 10), moneyOf(p), cli.Ago(now.Sub(p.Born)), cli.Age(time.Duration(p.AgeMS) * time.Millisecond)}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// stateColour is the colour of a cell of the column STATE.
func stateColour(cell string) string {
	word, _, _ := strings.Cut(cell, " ")
	switch strings.TrimSuffix(word, ":") {
	case string(abi.ExitDone):
		return cli.Green
	case string(abi.ExitFailed), string(abi.ExitCrashed), string(abi.ExitKilled), string(abi.ExitLoop):
		return cli.Red
	case string(abi.ExitLimit), string(abi.Paused), string(abi.Waiting):
		return cli.Yellow
	}
	return ""
}

// stateOf formats the state: what the process waits for, or how it ended.
func stateOf(p *api.Process) string {
	s := string(p.State)
	switch {
	case p.State == abi.Exited:
		s = string(p.End.Exit)
		if p.End.Exit == abi.ExitLimit || p.End.Exit == abi.ExitKilled && p.End.Reason != string(abi.Kill) {
			s += " (" + p.End.Reason + ")"
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

// completePids offers processes to the completion of the shell, if a daemon runs.
func completePids(d *daemon.Directory) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := d.Dial(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		list, _, _ := c.Recent(ctx, completed) // an error offers no pids
		pids := []string{lastName + "\tthe newest process"}
		for _, p := range list {
			pids = append(pids, fmt.Sprintf("%d\t%s %s", p.Pid, cli.Clean(p.Name), stateOf(&p)))
		}
		return pids, cobra.ShellCompDirectiveNoFileComp
	}
}
