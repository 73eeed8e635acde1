package kernel

import (
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/schema"
)

// plan asks the row what the call will do and use at most.
func (o *op) plan() (*Job, *abi.Error) {
	p, k := o.p, o.p.k
	k.procs.mu.Lock()
	j, before := &o.job, o.job.Plan.Work
	*j = Job{Call: o.call, View: viewOf(p.state), Kernel: k, Attempt: 1, Since: k.cfg.Now().UnixNano(), op: o}
	j.View.Before, j.View.Via = before, o.via
	if q := p.state.Calls.Pending[o.call.N]; q != nil {
		j.Attempt, j.Since, j.away = q.Attempt+1, q.Since, q.Away
	}
	spawned := p.state.Children[o.call.N] != 0
	k.procs.mu.Unlock()
	e := o.row.plan(j)
	if j.Attempt > 1 {
		j.Plan.Reserve[abi.Steps] = 0 // another attempt is no new step
	}
	if j.Plan.Child && spawned { // the child's own record booked it
		j.Plan.Child, j.Plan.Reserve[abi.Children] = false, 0
	}
	if o.draft.intent.Row == "" {
		o.draft.fill(&o.call, &j.Plan, k.cfg.Count)
	}
	return j, e
}

// plan checks the arguments and asks the row for its plan.
func (r *Row) plan(j *Job) (e *abi.Error) {
	if r == nil {
		return nil
	}
	if r.Schema != nil {
		args := j.Call.Args
		if len(args) == 0 {
			args = schema.NoArgs
		}
		if v := r.Schema.Check(args); v != nil {
			return &abi.Error{Code: abi.InvalidArguments, Message: j.Call.Row + ": " + v.Message, Where: v.Where, Expected: v.Expected, Got: v.Got,
				Hint: "call it again with arguments that match the schema"}
		}
	}
	if r.Plan != nil {
		j.Plan, e = r.Plan(j.View, j.Call)
	}
	return e
}

// draft is what the journal gets of a call. It is made once and without the
// lock, because hashing a large payload takes longer than deciding.
type draft struct {
	intent   abi.Intent // without what an attempt adds
	answer   abi.Answer // of the first attempt
	blobs    []abi.Blob
	from, to int        // the blobs of the plan's parts
	recorded bool       // intent belongs to the journal now
	used     bool       // answer belongs to the journal now
	tooLarge *abi.Error // why the journal cannot take the call

	scratch [128]byte // for canonical arguments
}

func (d *draft) fill(c *abi.Call, pl *Plan, count func([]byte) int) {
	d.intent = abi.Intent{Row: c.Row, Tool: pl.Tool, Key: keyOfCall(c, pl, d.scratch[:0]), Effect: pl.effect(), Within: c.Within, For: c.For}
	d.intent.Args = d.payload(c.Args)
	d.from = len(d.blobs)
	d.intent.Parts, d.blobs = pl.Parts, append(d.blobs, pl.Blobs...)
	d.to = len(d.blobs)
	if len(pl.Say) > 0 {
		d.intent.Say, d.intent.SayTokens = d.payload(pl.Say), count(pl.Say)
	}
	d.tooLarge = journal.Fits(&d.intent, d.blobs)
}

// A Refusable is the work of a plan whose refusal takes less room in the journal than
// the call itself. Refused returns the parts of the intent, and those that are new.
type Refusable interface {
	Refused() (parts []abi.Hash, blobs []abi.Blob)
}

// shorten replaces the parts of a call that was refused before its first attempt.
func (d *draft) shorten(r Refusable) {
	if d.recorded {
		return
	}
	parts, blobs := r.Refused()
	d.intent.Parts, d.blobs = parts, slices.Replace(d.blobs, d.from, d.to, blobs...)
}

func (d *draft) payload(b []byte) abi.Data {
	data, blob := abi.NewData(b)
	if blob != nil {
		d.blobs = append(d.blobs, *blob)
	}
	return data
}

// intentFor returns the intent of an attempt and moves the blobs to its record.
func (d *draft) intentFor(r *abi.Record, j *Job, held abi.Usage) *abi.Intent {
	in := &d.intent
	if d.recorded { // a record that was queued may not change
		in = new(abi.Intent)
		*in = d.intent
	}
	d.recorded = true
	if j.Attempt > 1 { // the first attempt said it
		in.Say, in.SayTokens = abi.Data{}, 0
	}
	in.Attempt, in.Reserve, in.Granted, in.Price, in.Lowered = j.Attempt, held, j.Granted, j.Plan.Price, j.Lowered
	in.Model = j.Plan.Source.Model
	r.Blobs, d.blobs = append(r.Blobs, d.blobs...), nil
	return in
}

// newAnswer returns an empty answer. The first one costs no allocation.
func (d *draft) newAnswer() *abi.Answer {
	if d.used {
		return new(abi.Answer)
	}
	d.used = true
	return &d.answer
}

// keyOfCall returns a short hash of what is called: the subject of the plan, or
// else the canonical arguments.
func keyOfCall(c *abi.Call, pl *Plan, scratch []byte) abi.Key {
	if pl.Subject != nil {
		return process.KeyOf(c.Row, pl.Subject)
	}
	return process.KeyOf(c.Row, schema.Spelling(scratch, c.Args))
}
