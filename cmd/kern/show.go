package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/syscalls"
)

func showCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "show PROCESS...",
		Short: "Show everything about a process",
		Long: `Show everything about a process. With -v the last lines are its registers:

  R0  The last call.
  R1  The watchdog.
  R2  The context.
  R3  The digest of the workspace.
  R4  The error of the last call, or the error that ended the process.
  R5  The last tool and its arguments.
  R6  The open transaction.
  R7  The task and the usage.

The next call that succeeds clears R4. For earlier errors, and the calls that they
belong to, see kern log PROCESS --errors.

` + processArgs,
		Args:              atLeast(1, "a process"),
		ValidArgsFunction: completePids(d),
		RunE: func(cmd *cobra.Command, args []string) error {
			shown := 0
			return eachProcess(cmd.Context(), t, d, args, func(session *cli.Session, pid abi.Pid) error {
				var s processDetails
				err := session.Do(cmd.Context(), func(c *api.Client) (err error) { s, err = readDetails(cmd.Context(), c, pid); return err })
				switch {
				case err != nil:
					return err
				case asJSON:
					return t.JSON(s)
				case shown > 0:
					err = t.Print("\n")
				}
				shown++
				return cmp.Or(err, showProcess(t, s, verbose))
			})
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the registers too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// processDetails is everything that kern show prints.
type processDetails struct {
	Process   api.Process   `json:"-"` // its fields stand beside the others in JSON
	Output    string        `json:"output"`
	Err       *abi.Error    `json:"error"`
	InDoubt   string        `json:"in_doubt"` // dollars reserved by calls with an unknown outcome
	Drift     string        `json:"drift"`    // dollars billed beyond the reservation
	Registers abi.Registers `json:"registers"`
	Task      string        `json:"task"`
	Program   abi.Agent     `json:"program"`
	Watchdog  abi.Watchdog  `json:"watchdog"`
	Fork      *abi.Fork     `json:"fork,omitempty"`
	Doubts    []uint64      `json:"doubts,omitempty"` // the calls with an unknown outcome
}

// MarshalJSON writes one object with the fields of Process and its own.
func (d processDetails) MarshalJSON() ([]byte, error) {
	type own processDetails // has no MarshalJSON
	return api.OneObject(d.Process, own(d))
}

var errEnough = errors.New("enough")

func readDetails(ctx context.Context, c *api.Client, pid abi.Pid) (s processDetails, err error) {
	if s.Process, err = c.Show(ctx, pid); err != nil {
		return s, err
	}
	var r host.Result
	if err = c.Result(ctx, pid, false, &r); err != nil {
		return s, err
	}
	s.Output, s.Err, s.Registers = r.Output, r.Err, r.Registers
	s.InDoubt, s.Drift = orZero(r.Usage.InDoubt), orZero(r.Usage.Drift)
	begun := map[uint64]bool{}
	err = c.Records(ctx, pid, 0, false, func(r *abi.Record, _ []byte) error {
		switch {
		case r.Kind == abi.KindBegan:
			begun[r.Call] = true
		case r.Kind == abi.KindEnded && r.Answer.Outcome == abi.Unknown && begun[r.Call]:
			if !slices.Contains(s.Doubts, r.Call) {
				s.Doubts = append(s.Doubts, r.Call)
			}
		case r.Kind == abi.KindSettled:
			s.Doubts = slices.DeleteFunc(s.Doubts, func(n uint64) bool { return n == r.Call })
		}
		if r.Spawn != nil {
			s.Task, s.Watchdog, s.Fork = string(r.Spawn.Task.Bytes), r.Spawn.Watchdog, r.Spawn.Fork
			if s.Fork != nil {
				s.Fork.State.Bytes = nil // internal to the kernel, and long
			}
			if err := json.Unmarshal(r.Spawn.Program.Bytes, &s.Program); err != nil {
				return err
			}
		}
		if s.InDoubt == "0" && r.Spawn != nil {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return s, err
}

func orZero(money string) string {
	if money == "" {
		return "0"
	}
	return money
}

func showProcess(t *cli.Terminal, s processDetails, verbose bool) error {
	p := &s.Process
	rows := [][]string{{"process", fmt.Sprint(p.Pid)}}
	add := func(name, format string, args ...any) {
		if v := fmt.Sprintf(format, args...); v != "" {
			rows = append(rows, []string{name, cli.Cut(cli.Clean(v), 300)})
		}
	}
	add("name", "%s", p.Name)
	if p.Parent != 0 {
		add("parent", "%d", p.Parent)
	}
	if len(p.Children) > 0 {
		add("children", "%s", strings.Trim(fmt.Sprint(p.Children), "[]"))
	}
	if s.Fork != nil {
		add("fork of", "process %d at record %d", s.Fork.Pid, s.Fork.At)
	}
	add("account", "%s", p.Account)
	add("state", "%s", stateOf(p))
	for _, q := range p.Asks {
		add("asks", "call %d: %s → kern approve %d %d", q.Call, q.Question, p.Pid, q.Call)
	}
	add("code", "%s", p.End.Code)
	if s.Err != nil {
		add("error", "%s", s.Err.Error())
	}
	lived := "%s, %s ago"
	if p.State == abi.Exited {
		lived = "%s, lived %s"
	}
	add("born", lived, p.Born.Local().Format(time.DateTime), cli.Age(time.Duration(p.AgeMS)*time.Millisecond))
	add("priority", "%d", p.Priority)
	add("depth", "%d", p.Depth)
	add("model", "%s", s.Program.Model)
	add("system", "%s", s.Program.System)
	var tools []string
	for _, t := range s.Program.Tools {
		tools = append(tools, t.Name)
	}
	add("tools", "%s", strings.Join(slices.Concat(tools, syscalls.Builtins(&s.Program), s.Program.Rows), ", "))
	add("workspace", "%s", s.Program.Workspace)
	add("watchdog", "%s", watchdogLine(s.Watchdog))
	add("task", "%s", s.Task)
	add("limits", "%s", cli.LimitsLine(p.Limits))
	add("used", "%s", usedLine(p.Usage))
	if reserved := usedLine(p.Reserved); reserved != usedLine(api.Usage{Money: "0"}) {
		add("reserved", "%s", reserved)
	}
	if s.InDoubt != "0" {
		add("in doubt", "$%s: reserved by calls with an unknown outcome", s.InDoubt)
		for _, call := range s.Doubts {
			add("", "call %d: → kern settle %d %d --spent DOLLARS, or --none", call, p.Pid, call)
		}
	}
	if s.Drift != "0" {
		add("drift", "$%s: billed beyond the reservation", s.Drift)
	}
	add("records", "%d", p.Records)
	add("output", "%s", s.Output)
	for i, register := range s.Registers.All() {
		if !verbose {
			break
		}
		b, err := json.Marshal(register)
		if err != nil {
			return err
		}
		add(fmt.Sprintf("R%d", i), "%s", b)
	}
	return t.Facts(rows)
}

func watchdogLine(w abi.Watchdog) string {
	profile, repeat := w.Profile, w.Repeat
	if profile == "" {
		profile = "smart"
	}
	if repeat == 0 {
		repeat = 3
	}
	if profile == "off" {
		return profile
	}
	return fmt.Sprintf("%s, at %d repeats", profile, repeat)
}
