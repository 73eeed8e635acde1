package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

// A RecordPrinter formats the records of one process: a line for each record,
// and its payload below, shortened.
type RecordPrinter struct {
	Term *Terminal
	Born int64 // when the process was spawned; 0: taken from its first record

	Clock bool // print the date and time of a record, and not the time since the spawn

	names map[uint64]string // of the calls that began
}

// maxPayload is how many characters of a payload are shown.
const maxPayload = 200

// Format formats a record.
func (p *RecordPrinter) Format(r *abi.Record) string {
	if p.Born == 0 {
		p.Born = r.Time
	}
	if r.Intent != nil {
		if p.names == nil {
			p.names = make(map[uint64]string)
		}
		p.names[r.Call] = CallKind(r.Intent)
	}
	what, colour, below := p.describe(r)
	at := "+" + strconv.FormatFloat(float64(r.Time-p.Born)/1e9, 'f', 3, 64) + "s"
	indent := 16
	if p.Clock {
		at = time.Unix(0, r.Time).Local().Format("2006-01-02 15:04:05.000")
		indent = 6
	}
	call := ""
	if r.Call != 0 {
		call = "call " + CallNumber(r.Call) + " "
	}
	room := p.Term.Width()
	s := Wrap(fmt.Sprintf("%4d %9s  %s%s", r.N, at, call, p.Term.Paint(colour, Clean(what))), room, indent) + "\n"
	for _, line := range below {
		if line != "" {
			s += Wrap(strings.Repeat(" ", indent)+Cut(Clean(line), maxPayload), room, indent) + "\n"
		}
	}
	return s
}

// describe says in one line what a record means, and what is shown below it.
func (p *RecordPrinter) describe(r *abi.Record) (what, colour string, below []string) {
	switch r.Kind {
	case abi.KindSpawned:
		return p.spawned(r)
	case abi.KindBegan:
		in := r.Intent
		return CallKind(in) + " begins" + attempt(in.Attempt) + amounts(", may take ", &in.Reserve) + ceiling(", lowered to ", in.Lowered), Faint, asked(in)
	case abi.KindEnded, abi.KindRefused:
		return p.answered(r)
	case abi.KindSignaled:
		return fmt.Sprintf("signal %s from %s", r.Note.Signal, r.Note.From), Yellow, nil
	case abi.KindMailed:
		return "message from " + r.Note.From, "", []string{text(r.Note.Body)}
	case abi.KindAsked:
		return "asks a person", Yellow, []string{text(r.Note.Body)}
	case abi.KindDecided:
		if r.Note.Yes {
			return r.Note.From + " says yes", Green, []string{text(r.Note.Body)}
		}
		return r.Note.From + " says no", Red, []string{text(r.Note.Body)}
	case abi.KindChanged:
		return changed(r.Change), "", nil
	case abi.KindSettled:
		return settled(r.Settle), Yellow, nil
	case abi.KindEnding, abi.KindExited:
		return p.exits(r)
	}
	return r.Kind.String(), "", nil
}

func (p *RecordPrinter) spawned(r *abi.Record) (what, colour string, below []string) {
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
	what += fmt.Sprintf(", priority %d, limits %s", s.Priority, LimitsLine(s.Limits))
	var prog abi.Agent
	if json.Unmarshal(s.Program.Bytes, &prog) == nil && prog.Model != "" {
		below = append(below, "model "+prog.Model)
	}
	return what, Bold, append(below, text(s.Task))
}

func (p *RecordPrinter) answered(r *abi.Record) (what, colour string, below []string) {
	an := r.Answer
	if in := r.Intent; in != nil {
		below = asked(in)
	}
	what = p.names[r.Call] + " " + string(an.Outcome)
	switch an.Outcome {
	case abi.OK:
		colour = Green
	case abi.Unknown:
		colour = Yellow
	default:
		colour = Red
	}
	away := an.Again && an.Outcome == abi.Refused
	if away {
		what, colour = p.names[r.Call]+" turned away", Yellow
	}
	what += attempt(an.Attempt) + amounts(", took ", &an.Usage) + ceiling(", cut at ", an.Cut)
	if an.Claim != nil {
		what += ", booked at the bound, because the provider reported " + an.Claim.String()
	}
	if an.Cut != nil || an.Claim != nil {
		colour = Yellow
	}
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
		if an.Err.Got != "" {
			below = append(below, "got: "+an.Err.Got)
		}
		if an.Err.Hint != "" && !an.Again { // the hint is for the caller, and the caller gets no answer yet
			below = append(below, "hint: "+an.Err.Hint)
		}
	}
	below = append(below, spoken(an)...)
	if an.Whole.Size > 0 {
		below = append(below, fmt.Sprintf("all %d bytes of it: kern log PID --output %s", an.Whole.Size, CallNumber(r.Call)))
	}
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
			if s = m.Relay.Format; m.Relay.Model != "" { // a request that was refused early was not read
				s = fmt.Sprintf("%s asked for %s, %s", m.Relay.Format, m.Relay.Model, Plural(int64(m.Relay.Messages), "message"))
			}
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
		all = append(all, strconv.Quote(Cut(reply.Text, maxPayload)))
	}
	for _, c := range reply.Calls {
		all = append(all, "→ "+c.Name+" "+c.Args)
	}
	return all
}

func (p *RecordPrinter) exits(r *abi.Record) (what, colour string, below []string) {
	x := r.Exit
	what, colour = "is ending: ", Bold
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
		all = append(all, "limits are now "+LimitsLine(*c.Limits))
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

func settled(s *abi.Settled) string {
	what := "in doubt until now, used nothing"
	if s.Spent != (abi.Usage{}) {
		what = "in doubt until now" + amounts(", used ", &s.Spent)
	}
	if s.By != "" {
		what += ", says " + s.By
	}
	return what
}

func attempt(n int) string {
	if n > 1 {
		return fmt.Sprintf(", attempt %d", n)
	}
	return ""
}

// ceiling is an output maximum that a limit lowered, behind words; nil is nothing.
func ceiling(words string, c *abi.Ceiling) string {
	if c == nil {
		return ""
	}
	return words + c.String()
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
func CallNumber(n uint64) string {
	if n < kernel.NestedFrom {
		return strconv.FormatUint(n, 10)
	}
	return fmt.Sprintf("%d.%d", n%kernel.NestedFrom, n/kernel.NestedFrom)
}

// ParseCall reads what [CallNumber] wrote.
func ParseCall(s string) (uint64, error) {
	outer, inner, nested := strings.Cut(s, ".")
	n, err := strconv.ParseUint(outer, 10, 32)
	if err != nil || !nested {
		return n, err
	}
	within, err := strconv.ParseUint(inner, 10, 16)
	return n + within*kernel.NestedFrom, err
}
