package kernel

import (
	"encoding/json"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
	"github.com/kern-run/kern/internal/kernel/process"
)

// fold is what the journal says of one process. Only [fold.apply] changes it,
// live, at recovery and at replay alike, so it never holds anything that
// cannot be read again from the records.
type fold struct {
	Pid      abi.Pid                      `json:"pid"`
	N        uint64                       `json:"n"` // records applied
	Born     int64                        `json:"born"`
	Last     int64                        `json:"last"` // time of the last record
	Spawn    *abi.Spawn                   `json:"spawn"`
	Priority int                          `json:"priority"`
	Phase    abi.State                    `json:"phase"`
	Term     bool                         `json:"term,omitempty"` // asked to finish; last words only
	Ending   *abi.ExitInfo                `json:"ending,omitempty"`
	Exit     *abi.ExitInfo                `json:"exit,omitempty"`
	Calls    calls                        `json:"calls"`
	Memory   process.Memory               `json:"memory"`
	Mail     []mail                       `json:"mail,omitempty"`
	Got      map[string]process.NumberSet `json:"got,omitempty"` // messages that came, by sender: the sender's calls
	Watch    process.Watchdog             `json:"watch"`
	Rests    process.ToolFailures         `json:"rests,omitempty"` // tools that failed, by name
	Regs     registers                    `json:"regs"`

	acct *ledger.Account
}

// calls is what is known of the calls of a process, by number.
type calls struct {
	Max     uint64              `json:"max"`
	Done    process.NumberSet   `json:"done"`              // answered
	Open    map[uint64]*open    `json:"open,omitempty"`    // begun and not ended
	Pending map[uint64]*pending `json:"pending,omitempty"` // to be gone on with: between attempts, or asked of a person
	Index   int                 `json:"index"`             // model calls had, those in doubt left out
	Steps   int64               `json:"steps"`             // of this process alone
	Hits    uint16              `json:"hits,omitempty"`    // limits that refused a call, by unit
	Lasted  bool                `json:"lasted,omitempty"`  // the last words were spoken
	Reaped  process.NumberSet   `json:"reaped,omitempty"`  // children whose exit was reported by wait
	Drift   int64               `json:"drift,omitempty"`   // money taken beyond what was reserved
}

// highest is the highest number that a caller chose, n included.
func (c *calls) highest(n uint64) uint64 {
	if n >= NestedFrom {
		return c.Max
	}
	return max(c.Max, n)
}

type open struct {
	*abi.Intent
	Since int64  `json:"since"`
	N     uint64 `json:"n"` // its record: from there the journal has no end of it
}

type pending struct {
	Intent  *abi.Intent `json:"intent"`
	Attempt int         `json:"attempt"`        // made so far
	Away    int         `json:"away,omitempty"` // of these, turned away
	Since   int64       `json:"since"`
	Ask     *ask        `json:"ask,omitempty"`
}

type ask struct {
	Question abi.Data `json:"question"`
	Decided  bool     `json:"decided,omitempty"`
	Yes      bool     `json:"yes,omitempty"`
	By       string   `json:"by,omitempty"`
	Reason   abi.Data `json:"reason,omitzero"`
}

type mail struct {
	N    uint64   `json:"n"` // its record
	From string   `json:"from"`
	Call uint64   `json:"call"` // the sender's, so that it arrives once
	Body abi.Data `json:"body"`
}

// registers is the part of R0..R7 that is not elsewhere in the fold.
type registers struct {
	Call   uint64     `json:"call"`
	Row    string     `json:"row,omitempty"`
	Tool   string     `json:"tool,omitempty"`
	Args   abi.Data   `json:"args,omitzero"`
	Digest abi.Key    `json:"digest,omitzero"`
	Commit abi.Hash   `json:"commit,omitzero"` // the last one of the workspace by this process
	Err    *abi.Error `json:"err,omitempty"`
}

// apply adds one fact to p, and to the accounts it is booked on.
func (p *fold) apply(r *abi.Record) {
	p.N, p.Last = r.N, r.Time
	switch r.Kind {
	case abi.KindSpawned:
		p.applySpawn(r)
	case abi.KindBegan:
		p.begin(r)
	case abi.KindEnded, abi.KindRefused:
		p.answer(r)
	case abi.KindSignaled:
		p.signaled(r.Note.Signal)
	case abi.KindMailed:
		p.mailed(r)
	case abi.KindAsked:
		p.Calls.Max = p.Calls.highest(r.Call)
		q := p.pend(r.Call, r.Intent, r.Time)
		q.Ask = &ask{Question: r.Note.Body}
	case abi.KindDecided:
		if q := p.Calls.Pending[r.Call]; q != nil && q.Ask != nil && !q.Ask.Decided {
			q.Ask.Decided, q.Ask.Yes, q.Ask.By, q.Ask.Reason = true, r.Note.Yes, r.Note.From, r.Note.Body
		}
	case abi.KindChanged:
		if r.Change.Limits != nil {
			p.acct.Limits = *r.Change.Limits
		}
		if r.Change.Priority != nil {
			p.Priority = *r.Change.Priority
		}
	case abi.KindEnding:
		p.Ending = r.Exit
	case abi.KindExited:
		p.Phase, p.Exit = process.NextPhase(p.Phase, process.EventExit), r.Exit
		p.Mail, p.Rests, p.Calls.Pending, p.Calls.Open = nil, nil, nil, nil
	}
}

func (p *fold) applySpawn(r *abi.Record) {
	p.Pid, p.Born, p.Spawn, p.Phase, p.Priority = r.Pid, r.Time, r.Spawn, abi.New, r.Spawn.Priority
	p.acct.Limits = r.Spawn.Limits
	if p.acct.Parent != nil && r.Spawn.Parent != 0 {
		p.acct.Parent.Settle(&abi.Usage{}, &abi.Usage{abi.Children: 1})
	}
	if r.Spawn.Fork != nil {
		p.inherit(r.Spawn.Fork)
	}
	if r.Spawn.Task.Size > 0 {
		p.Memory.Add(process.Page{Pid: r.Pid, N: r.N, Role: process.RoleTask, Tokens: int32(r.Spawn.TaskTokens)})
	}
}

// begin adds an effect that is about to happen.
func (p *fold) begin(r *abi.Record) {
	in, c := r.Intent, &p.Calls
	p.Phase, c.Max = process.NextPhase(p.Phase, process.EventCall), c.highest(r.Call)
	if c.Open == nil {
		c.Open = make(map[uint64]*open)
	}
	since := r.Time
	if q := c.Pending[r.Call]; q != nil {
		since = q.Since
	}
	c.Open[r.Call] = &open{in, since, r.N}
	p.acct.Reserve(&in.Reserve)
	c.Steps += in.Reserve[abi.Steps]
	c.Index += int(in.Reserve[abi.ModelCalls])
	if in.Say.Size > 0 {
		p.Memory.Add(process.Page{Pid: r.Pid, N: r.N, Role: process.RoleUser, Tokens: int32(in.SayTokens)})
	}
	if p.Term && in.Row == lastRow {
		c.Lasted = true
	}
}

// answer adds the end of an attempt, or a refusal.
func (p *fold) answer(r *abi.Record) {
	a, c, in := r.Answer, &p.Calls, r.Intent
	p.Phase, c.Max = process.NextPhase(p.Phase, process.EventCall), c.highest(r.Call)
	since := r.Time
	if o := c.Open[r.Call]; o != nil {
		in, since = o.Intent, o.Since
		delete(c.Open, r.Call)
		p.close(in, a)
	} else {
		p.acct.Settle(&abi.Usage{}, &a.Usage)
	}
	if a.Again {
		q := p.pend(r.Call, in, since)
		if q.Attempt = a.Attempt; a.Outcome == abi.Refused {
			q.Away++
		}
		return
	}
	delete(c.Pending, r.Call)
	for n := range c.Pending { // nobody is left to go on with a part of it
		if n > NestedFrom && n%NestedFrom == r.Call {
			delete(c.Pending, n)
		}
	}
	c.Done.Add(r.Call)
	p.Regs.Call, p.Regs.Row, p.Regs.Err = r.Call, in.Row, a.Err
	if in.Tool != "" {
		p.Regs.Tool, p.Regs.Args = in.Tool, in.Args
	}
	if !a.Digest.IsZero() {
		p.Regs.Digest = a.Digest
	}
	if !a.Commit.IsZero() {
		p.Regs.Commit = a.Commit
	}
	if a.Err != nil {
		if u, ok := abi.LimitOf(a.Err.Code); ok && a.Outcome == abi.Refused {
			c.Hits |= 1 << u
		}
	}
	if a.Page != nil {
		if a.Page.Only {
			p.Memory.Clear()
		}
		p.Memory.Add(process.Page{Pid: r.Pid, N: r.N, Role: roleOf(a.Page.Role), Tokens: int32(a.Page.Tokens), ID: a.Page.ID})
	}
	switch {
	case a.Took != 0 && in.Row == waitRow:
		c.Reaped.Add(a.Took)
	case a.Took != 0:
		p.Mail = slices.DeleteFunc(p.Mail, func(m mail) bool { return m.N == a.Took })
	}
	if !a.Result.IsZero() {
		p.Watch.Add(p.sighting(r.Call, in, a))
		p.Watch.Warned = p.Watch.Warned || a.Warning != nil
	}
	p.Rests.Count(in.Tool, a, r.Time)
}

// close settles what a begun attempt had reserved.
func (p *fold) close(in *abi.Intent, a *abi.Answer) {
	if a.Outcome == abi.Unknown {
		p.acct.KeepInDoubt(&in.Reserve)
		p.Calls.Index -= int(in.Reserve[abi.ModelCalls])
		return
	}
	p.acct.Settle(&in.Reserve, &a.Usage)
	p.Calls.Drift += max(0, a.Usage[abi.Money]-in.Reserve[abi.Money])
}

func (p *fold) pend(n uint64, in *abi.Intent, at int64) *pending {
	if p.Calls.Pending == nil {
		p.Calls.Pending = make(map[uint64]*pending)
	}
	q := p.Calls.Pending[n]
	if q == nil {
		q = &pending{Since: at}
		p.Calls.Pending[n] = q
	}
	q.Intent = in
	return q
}

func (p *fold) signaled(s abi.Signal) {
	switch s {
	case abi.Stop:
		p.Phase = process.NextPhase(p.Phase, process.EventStop)
	case abi.Cont:
		p.Phase = process.NextPhase(p.Phase, process.EventCont)
	case abi.Term:
		p.Term = true
		p.Phase = process.NextPhase(p.Phase, process.EventCont)
	}
}

func (p *fold) mailed(r *abi.Record) {
	p.Mail = append(p.Mail, mail{r.N, r.Note.From, r.Call, r.Note.Body})
	if r.Call == 0 {
		return
	}
	if p.Got == nil {
		p.Got = make(map[string]process.NumberSet)
	}
	got := p.Got[r.Note.From]
	got.Add(r.Call)
	p.Got[r.Note.From] = got
}

func roleOf(name string) process.Role {
	switch name {
	case "assistant":
		return process.RoleAssistant
	case "tool":
		return process.RoleTool
	}
	return process.RoleUser
}

// sighting is what the watchdog keeps of an answered call. One that had no view
// of the workspace found it as it was.
func (p *fold) sighting(n uint64, in *abi.Intent, a *abi.Answer) process.WatchedCall {
	name := in.Row
	if in.Tool != "" {
		name = in.Tool
	}
	digest := a.Digest
	if digest.IsZero() {
		digest = p.Regs.Digest
	}
	return process.WatchedCall{Call: n, Key: in.Key, Result: a.Result, Digest: digest, Effect: in.Effect, Failed: a.Outcome != abi.OK, Rolled: a.Rolled, Name: name}
}

// inherit takes over what a fork continues from.
func (p *fold) inherit(f *abi.Fork) {
	var l legacy
	if json.Unmarshal(f.State.Bytes, &l) != nil || json.Unmarshal(l.Memory, &p.Memory) != nil {
		return
	}
	p.Watch, p.Rests, p.Calls.Index, p.Regs.Digest = l.Watch, l.Rests, l.Index, l.Digest
}
