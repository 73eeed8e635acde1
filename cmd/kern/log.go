package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

func logCommand(a *app) *cobra.Command {
	var follow, asJSON, verify bool
	var request, last uint64
	cmd := &cobra.Command{
		Use:   "log PID",
		Short: "Print the journal of a process",
		Long: `Print the journal of a process: everything it asked for, what it was answered,
and what it took. --json prints one record a line, whole. -n 20 prints the last 20
records, and those that come after with -f. --verify reads every record and every
payload and checks the chain of their hashes. --request prints what a call with a
key asked, as it came.`,
		Args:              exactly(1, "the number of a process"),
		ValidArgsFunction: a.completePids,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if verify && follow {
				return usage("verify it when it has exited", "--follow and --verify do not go together")
			}
			return a.with(ctx, args, func(c *api.Client, pid abi.Pid) error {
				switch {
				case request > 0:
					b, err := c.Request(ctx, pid, request)
					if err != nil {
						return err
					}
					return a.print("%s\n", b)
				case verify:
					return verifyLog(a, ctx, c, pid, asJSON)
				}
				s := &session{app: a, client: c}
				defer s.close()
				return a.log(ctx, s, pid, last, follow, asJSON)
			})
		},
	}
	cmd.Flags().Uint64VarP(&last, "last", "n", 0, "print the last `n` records; 0: all")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes, until the process has exited")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print records as lines of JSON")
	cmd.Flags().Uint64Var(&request, "request", 0, "print the request of this `call`")
	cmd.Flags().BoolVar(&verify, "verify", false, "check the chain of hashes")
	return cmd
}

func verifyLog(a *app, ctx context.Context, c *api.Client, pid abi.Pid, asJSON bool) error {
	v, err := c.Verify(ctx, pid)
	if err != nil {
		return err
	}
	if asJSON {
		return a.json(v)
	}
	return a.print("process %d: %s, each as it was written\n", pid, plural(int64(v.Records), "record"))
}

// before is how many records are read before those that are printed: there the
// calls began that end in them.
const before = 256

func (a *app) log(ctx context.Context, s *session, pid abi.Pid, last uint64, follow, asJSON bool) error {
	read, left, t := uint64(0), uint64(0), teller{app: a, names: make(map[uint64]string)}
	if last > 0 {
		p, err := s.client.Show(ctx, pid)
		if err != nil {
			return err
		}
		left, t.born = p.Records-min(last, p.Records), p.Born.UnixNano()
		read = left - min(before, left)
	}
	err := s.do(ctx, func(c *api.Client) error {
		return c.Records(ctx, pid, read, follow, func(r *abi.Record, line []byte) error {
			told := string(line) + "\n"
			if !asJSON {
				told = t.tell(r)
			}
			if read = r.N; read <= left {
				return nil
			}
			return a.print("%s", told)
		})
	})
	if errors.Is(context.Cause(ctx), errLeft) {
		return nil
	}
	return err
}

// A teller tells records to a person: a line for each, and what was said below
// it.
type teller struct {
	app   *app
	born  int64
	names map[uint64]string // of calls that began
}

// wide is how many characters of a payload are shown.
const wide = 200

func (t *teller) tell(r *abi.Record) string {
	if t.born == 0 {
		t.born = r.Time
	}
	if r.Intent != nil {
		t.names[r.Call] = nameOf(r.Intent)
	}
	what, colour, below := t.story(r)
	at := "+" + strconv.FormatFloat(float64(r.Time-t.born)/1e9, 'f', 3, 64) + "s"
	call := ""
	if r.Call != 0 {
		call = "call " + callName(r.Call) + " "
	}
	room := width(t.app, t.app.outTTY, t.app.stdout)
	s := cli.Wrap(fmt.Sprintf("%4d %9s  %s%s", r.N, at, call, t.app.paint(t.app.outTTY, colour, clean(what))), room, 16) + "\n"
	for _, line := range below {
		if line != "" {
			s += cli.Wrap(strings.Repeat(" ", 16)+cli.Cut(clean(line), wide), room, 16) + "\n"
		}
	}
	return s
}

// story is what a record says, in a line, and what is shown below it.
func (t *teller) story(r *abi.Record) (what, colour string, below []string) {
	switch r.Kind {
	case abi.KindSpawned:
		return t.spawned(r)
	case abi.KindBegan:
		in := r.Intent
		return nameOf(in) + " begins" + attempt(in.Attempt) + amounts(", may take ", &in.Reserve), faint, asked(in)
	case abi.KindEnded, abi.KindRefused:
		return t.answered(r)
	case abi.KindSignaled:
		return fmt.Sprintf("signal %s from %s", r.Note.Signal, r.Note.From), yellow, nil
	case abi.KindMailed:
		return "message from " + r.Note.From, "", []string{text(r.Note.Body)}
	case abi.KindAsked:
		return "asks a person", yellow, []string{text(r.Note.Body)}
	case abi.KindDecided:
		if r.Note.Yes {
			return r.Note.From + " says yes", green, []string{text(r.Note.Body)}
		}
		return r.Note.From + " says no", red, []string{text(r.Note.Body)}
	case abi.KindChanged:
		return changed(r.Change), "", nil
	case abi.KindEnding, abi.KindExited:
		return t.exits(r)
	}
	return r.Kind.String(), "", nil
}

func (t *teller) spawned(r *abi.Record) (what, colour string, below []string) {
	s := r.Spawn
	what = "spawned"
	if s.Name != "" {
		what += " " + s.Name
	}
	if s.Parent != 0 {
		what += fmt.Sprintf(" by process %d", s.Parent)
	}
	if s.Fork != nil {
		what += fmt.Sprintf(" from process %d at record %d", s.Fork.Pid, s.Fork.At)
	}
	if s.Account != "" {
		what += ", account " + s.Account
	}
	what += fmt.Sprintf(", priority %d, limits %s", s.Priority, limitsLine(s.Limits))
	var p syscalls.Program
	if json.Unmarshal(s.Program.Bytes, &p) == nil && p.Model != "" {
		below = append(below, "model "+p.Model)
	}
	return what, bold, append(below, text(s.Task))
}

func (t *teller) answered(r *abi.Record) (what, colour string, below []string) {
	an := r.Answer
	if in := r.Intent; in != nil {
		below = asked(in)
	}
	what = t.names[r.Call] + " " + string(an.Outcome)
	switch an.Outcome {
	case abi.OK:
		colour = green
	case abi.Unknown:
		colour = yellow
	default:
		colour = red
	}
	away := an.Again && an.Outcome == abi.Refused
	if away {
		what, colour = t.names[r.Call]+" turned away", yellow
	}
	what += attempt(an.Attempt) + amounts(", took ", &an.Usage)
	if an.First > 0 {
		what += ", first token after " + time.Duration(an.First).Round(100*time.Microsecond).String()
	}
	if !an.Commit.IsZero() {
		what += ", commit " + an.Commit.String()[:12]
	} else if an.Rolled {
		what += ", rolled back"
	}
	switch {
	case away:
		what += ", waits for another turn"
	case an.Again:
		what += ", another attempt follows"
	}
	if an.Err != nil {
		below = append(below, string(an.Err.Code)+": "+an.Err.Error())
		if an.Err.Hint != "" {
			below = append(below, "hint: "+an.Err.Hint)
		}
	}
	below = append(below, spoken(an)...)
	if an.Warning != nil {
		below = append(below, "warning: "+an.Warning.Message)
	}
	return strings.TrimPrefix(what, " "), colour, below // one that began long ago has no name here
}

// asked is what a call was made with. A page that goes before it stands in its
// arguments too.
func asked(in *abi.Intent) []string {
	if in.Say.Size > 0 {
		return []string{text(in.Say)}
	}
	s := text(in.Args)
	if s == "{}" {
		return nil
	}
	if b := []byte(s); bytes.Contains(b, []byte(`"relay"`)) {
		var m syscalls.ModelArgs
		var t syscalls.ToolArgs
		switch {
		case json.Unmarshal(b, &m) == nil && m.Relay != nil:
			s = fmt.Sprintf("%s asked for %s, %s", m.Relay.Face, m.Relay.Model, plural(int64(m.Relay.Messages), "message"))
		case json.Unmarshal(b, &t) == nil && t.Relay != "":
			s = string(t.Args)
		}
	}
	return []string{s}
}

// spoken is the value of an answer: what a model said and asked for, or a
// result.
func spoken(an *abi.Answer) []string {
	var reply syscalls.Reply
	if an.Page == nil || an.Page.Role != "assistant" || json.Unmarshal(an.Value.Bytes, &reply) != nil {
		return []string{text(an.Value)}
	}
	var all []string
	if reply.Model != "" {
		all = append(all, "by "+reply.Model)
	}
	if reply.Text != "" {
		all = append(all, strconv.Quote(cli.Cut(reply.Text, wide)))
	}
	for _, c := range reply.Calls {
		all = append(all, "→ "+c.Name+" "+c.Args)
	}
	return all
}

func (t *teller) exits(r *abi.Record) (what, colour string, below []string) {
	x := r.Exit
	what, colour = "is ending: ", bold
	if r.Kind == abi.KindExited {
		what = "exited: "
	}
	what += string(x.Exit)
	if x.Reason != "" {
		what += " " + x.Reason
	}
	if x.Code != "" {
		what += " (" + string(x.Code) + ")"
	}
	if r.Kind == abi.KindExited {
		return what, colour, nil
	}
	if x.Err != nil {
		below = append(below, x.Err.Error())
	}
	return what, colour, append(below, text(x.Output))
}

func changed(c *abi.Change) string {
	var all []string
	if c.Limits != nil {
		all = append(all, "limits are now "+limitsLine(*c.Limits))
	}
	if c.Priority != nil {
		all = append(all, fmt.Sprintf("priority is now %d", *c.Priority))
	}
	s := strings.Join(all, ", ")
	if c.By != "" {
		s += ", by " + c.By
	}
	return s
}

func attempt(n int) string {
	if n > 1 {
		return fmt.Sprintf(", attempt %d", n)
	}
	return ""
}

// text is a payload in a line.
func text(d abi.Data) string {
	if len(d.Bytes) == 0 && d.Size > 0 {
		return fmt.Sprintf("%d bytes, %s", d.Size, d.Hash)
	}
	return string(d.Bytes)
}

// amounts are those of u, behind words; none are nothing.
func amounts(words string, u *abi.Usage) string {
	var all []string
	for i, n := range u {
		switch unit := abi.Unit(i); {
		case n == 0 || unit == abi.Tokens || unit == abi.Steps || unit == abi.ModelCalls || unit == abi.ToolCalls:
		case unit == abi.Money:
			all = append(all, "$"+abi.FormatMoney(n))
		case unit == abi.CPU:
			all = append(all, "cpu "+time.Duration(n).Round(time.Millisecond).String())
		default:
			all = append(all, fmt.Sprintf("%s %s", abi.FormatUnit(unit, n), strings.ReplaceAll(unit.String(), "_", " ")))
		}
	}
	if all == nil {
		return ""
	}
	return words + strings.Join(all, ", ")
}

// callName is the number of a call; one that was made within another is told
// by that one's number and its own, as in 2.1.
func callName(n uint64) string {
	if n < kernel.NestedFrom {
		return strconv.FormatUint(n, 10)
	}
	return fmt.Sprintf("%d.%d", n%kernel.NestedFrom, n/kernel.NestedFrom)
}
