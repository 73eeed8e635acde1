package loop

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

// Replay runs the built-in loop against a recording. Every call must equal the recorded
// call, and gets the recorded answer. Replay asks no model and runs no tool. At a
// restart in the recording the loop starts again too. Replay returns the number of calls
// that it compared.
func Replay(ctx context.Context, r *kernel.Recording, w *syscalls.World) (calls int, err error) {
	p, err := newTape(r, w)
	if err != nil {
		return 0, err
	}
	for p.diverged == nil && ctx.Err() == nil {
		from, more := p.next()
		if !more {
			break
		}
		p.from = from
		asked := p.asked
		if err := Run(ctx, p, w, r.Records[0].Pid); err != nil {
			return p.asked, err
		}
		if p.diverged == nil && p.asked == asked {
			p.diverge(r.Records[from], "this call was recorded, and the loop does not make it")
		}
	}
	if p.diverged != nil {
		return p.asked, p.diverged
	}
	return p.asked, ctx.Err()
}

// tape answers the calls of a loop from a recording.
type tape struct {
	r     *kernel.Recording
	w     *syscalls.World
	first map[uint64]int // the index of the first record of each call
	final map[uint64]int // the index of the answer of each call
	from  int            // the loop starts from the state before this record

	mu       sync.Mutex
	seen     map[uint64]bool
	asked    int
	diverged *abi.Divergence
}

func newTape(r *kernel.Recording, w *syscalls.World) (*tape, error) {
	p := &tape{r: r, w: w, first: map[uint64]int{}, final: map[uint64]int{}, seen: map[uint64]bool{}}
	for i, rec := range r.Records {
		if rec.Call >= kernel.NestedFrom {
			continue // a tool or code made this call, and a replay does not run them
		}
		switch rec.Kind {
		case abi.KindBegan, abi.KindAsked:
			p.note(rec.Call, i)
		case abi.KindEnded, abi.KindRefused:
			p.note(rec.Call, i)
			if !rec.Answer.Again {
				p.final[rec.Call] = i
			}
		}
	}
	return p, nil
}

func (p *tape) note(call uint64, i int) {
	if _, ok := p.first[call]; !ok {
		p.first[call] = i
	}
}

// next returns the first record of the first call that has an answer and that the loop
// did not make yet.
func (p *tape) next() (record int, ok bool) {
	record = len(p.r.Records)
	for call := range p.final {
		if i := p.first[call]; !p.seen[call] && i < record {
			record, ok = i, true
		}
	}
	return record, ok
}

// Where implements [Kernel]. It returns the state before the record at which the loop
// starts.
func (p *tape) Where(abi.Pid) (kernel.Where, error) { return p.r.Where(p.from) }

// Batch implements [Kernel].
func (p *tape) Batch(ctx context.Context, calls []abi.Call, _ int) []abi.Result {
	results := make([]abi.Result, len(calls))
	for i, c := range calls {
		results[i] = p.Do(ctx, c)
	}
	return results
}

// Do implements [Kernel]. At a call without an answer the kernel had stopped, so the
// loop ends there too.
func (p *tape) Do(_ context.Context, c abi.Call) abi.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.final[c.N]
	if !ok || p.diverged != nil {
		return abi.Result{Outcome: abi.Refused, Err: &abi.Error{Code: abi.DaemonGone, Message: "the recording ends here"}}
	}
	if !p.seen[c.N] {
		p.seen[c.N] = true
		p.asked++
	}
	if why := p.compare(&c, p.first[c.N]); why != "" {
		p.diverge(p.r.Records[p.first[c.N]], why)
		return abi.Result{Outcome: abi.Refused, Err: &abi.Error{Code: abi.DaemonGone, Message: why}}
	}
	a := p.r.Records[i].Answer
	res := abi.Result{Outcome: a.Outcome, Err: a.Err, Warning: a.Warning, Usage: a.Usage, Attempts: a.Attempt, Cut: a.Cut}
	if a.Err == nil {
		b, err := p.w.Journal.Bytes(a.Value)
		if err != nil {
			p.diverge(p.r.Records[i], err.Error())
		}
		res.Value = b
	}
	return res
}

// compare returns how a call differs from the recorded call; empty if they are equal.
func (p *tape) compare(c *abi.Call, i int) string {
	in := p.r.Records[i].Intent
	if in.Row != c.Row || in.For != c.For {
		return fmt.Sprintf("call %d is %s %s, and was %s %s", c.N, c.Row, c.For, in.Row, in.For)
	}
	args, err := p.w.Journal.Bytes(in.Args)
	if err != nil {
		return err.Error()
	}
	if !slices.Equal(args, c.Args) {
		return fmt.Sprintf("call %d is %s %s, and was %s", c.N, c.Row, c.Args, args)
	}
	if c.Row != "model" {
		return ""
	}
	where, err := p.r.Where(i)
	if err != nil {
		return err.Error()
	}
	return p.w.SameRequest(where.View, *c, in)
}

func (p *tape) diverge(r *abi.Record, why string) {
	if p.diverged == nil || r.N < p.diverged.Record {
		p.diverged = &abi.Divergence{Record: r.N, Why: why}
	}
}
