package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/host"
)

// output selects how a process is shown while kern waits for it.
type output struct{ json, events bool }

// followProcess stays with a process until it exits, and prints how it ended.
func followProcess(ctx context.Context, t *cli.Terminal, s *cli.Session, pid abi.Pid, out output) error {
	defer s.Close()
	for {
		f := cli.Follower{Session: s, Pid: pid, Events: out.events}
		r, err := f.Follow(ctx)
		if err != nil {
			return &exitError{exitUnknown, err}
		}
		end := printEnd(t, r, out, f.LastErr)
		if pid, err = offerMore(ctx, t, s, r, out); pid == 0 || err != nil {
			return cmp.Or(err, end)
		}
	}
}

// printEnd prints how a process ended, and returns its exit code as an error. If
// the process failed of the last error of a call, the hint of that error follows.
func printEnd(t *cli.Terminal, raw json.RawMessage, out output, last *abi.Error) error {
	var r host.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return &exitError{exitUnknown, fmt.Errorf("cannot read the result: %w", err)}
	}
	code, known := exitCodes[r.Exit]
	if !known {
		code = exitUnknown
	}
	if out.json || out.events {
		if err := t.Print("%s\n", raw); err != nil {
			return err
		}
		return exitWith(code)
	}
	text := r.Output
	if t.OutTTY {
		text = cli.CleanText(text)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if err := t.Print("%s", text); err != nil {
		return err
	}
	t.Note("%s", summaryOf(t, &r, cli.Plural(r.Steps, "step")))
	if last != nil && last.Hint != "" && last.Code == r.Code && r.Exit == abi.ExitFailed {
		t.Note("  hint: %s", cli.Clean(last.Hint))
	}
	return exitWith(code)
}

func exitWith(code int) error {
	if code == exitDone {
		return nil
	}
	return &exitError{code: code}
}

// outcomeOf says how a process ended.
func outcomeOf(t *cli.Terminal, r *host.Result) string {
	how := string(r.Exit)
	colour := cli.Red
	switch {
	case r.Exit == abi.ExitDone:
		colour = cli.Green
	case r.Exit == abi.ExitLimit:
		how, colour = fmt.Sprintf("stopped by its limit on %s (%s)", r.Reason, r.Code), cli.Yellow
	case r.Exit == abi.ExitLoop:
		how = fmt.Sprintf("stopped in a loop (%s)", r.Code)
	case r.Exit == abi.ExitKilled:
		how = "killed"
		if r.Reason != "" && r.Reason != string(abi.Kill) {
			how += " (" + r.Reason + ")"
		}
	case r.Code != "":
		how += " (" + string(r.Code) + ")"
	}
	if r.Err != nil {
		how += ": " + cli.Clean(r.Err.Message)
	}
	return t.PaintErr(colour, how)
}

// summaryOf says in one line how a process ended, what it did and what it used.
func summaryOf(t *cli.Terminal, r *host.Result, did string) string {
	s := fmt.Sprintf("kern: process %d %s · %s · %d tokens in, %d out · $%s", r.Pid, outcomeOf(t, r),
		did, r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.Money)
	if n, set := r.Limits.Get(abi.Money); set {
		s += " of $" + abi.FormatMoney(n) + leftOver(r, n)
	}
	if r.Usage.InDoubt != "" {
		s += " ($" + r.Usage.InDoubt + " in doubt)"
	}
	if n := r.Usage.Claims; n > 0 {
		s += " · " + cli.Plural(n, "answer") + " with an impossible usage, booked at the bound"
	}
	return s + " · " + cli.Age(time.Duration(r.Usage.WallMS)*time.Millisecond)
}

// leftOver says what is left of a limit on money that ended a process, and that the
// next call may use more. It is empty if an account above had less.
func leftOver(r *host.Result, limit int64) string {
	e := r.Registers.Err
	if r.Code != abi.LimitMoney || e == nil || e.Code != r.Code {
		return ""
	}
	used, err := abi.ParseMoney(r.Usage.Money)
	doubt, _ := abi.ParseMoney(r.Usage.InDoubt) // empty where nothing is in doubt
	next, bad := abi.ParseMoney(e.Got)
	if left := limit - used - doubt; err == nil && bad == nil && 0 < left && left < next {
		return fmt.Sprintf(" ($%s left, less than the $%s that the next call may use)", abi.FormatMoney(left), e.Got)
	}
	return ""
}
