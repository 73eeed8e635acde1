// Package process folds the records of processes into their state.
//
// It is pure: it reads no clock, starts no goroutine and does no I/O. In the order
// in which to read:
//
//   - state.go: the state of one process, and how a record changes it;
//   - phase.go: the table of phases, from new to exited;
//   - memory.go, watchdog.go, blocked.go, numbers.go: parts of a state;
//   - inspect.go: views of a state: registers, unfinished calls, a dump;
//   - machine.go: the state of all processes and accounts;
//   - tree.go, summary.go: what stays in memory of processes that have exited.
package process

import (
	"encoding/json"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/ledger"
)

// The rows that the fold or the kernel knows by name.
const (
	ModelRow = "model" // last words are a call of it
	WaitRow  = "wait"  // reports a child that has exited
	ExitRow  = "exit"  // ends the process that calls it
)

// NestedFrom is the first number of calls that are made within other calls. The
// numbers that a caller chooses are below it.
const NestedFrom = uint64(1) << 40

// State is the fold of the records of one process. Only [State.Apply] changes
// it: live, at recovery and at replay alike. So it holds nothing that cannot be
// read again from the records.
type State struct {
	Pid      abi.Pid              `json:"pid"`
	N        uint64               `json:"n"` // records applied
	Born     int64                `json:"born"`
	Last     int64                `json:"last"` // time of the last record
	Spawn    *abi.Spawn           `json:"spawn"`
	Priority int                  `json:"priority"`
	Phase    abi.State            `json:"phase"`
	Term     bool                 `json:"term,omitempty"` // signal term came: only last words are admitted
	Ending   *abi.ExitInfo        `json:"ending,omitempty"`
	Exit     *abi.ExitInfo        `json:"exit,omitempty"`
	Calls    Calls                `json:"calls"`
	Memory   Memory               `json:"memory"`
	Mail     []Message            `json:"mail,omitempty"`
	Received map[string]NumberSet `json:"got,omitempty"` // numbers of the sending calls, by sender
	Watchdog Watchdog             `json:"watch"`
	Failures ToolFailures         `json:"rests,omitempty"`
	Regs     Registers            `json:"regs"`

	Account  *ledger.Account    `json:"-"`
	Children map[uint64]abi.Pid `json:"-"` // by the calls that spawned them
	Living   map[abi.Pid]*State `json:"-"` // children that have not exited
}

// Calls is the part of the state about calls, by number.
type Calls struct {
	Max     uint64                  `json:"max"`               // highest number that a caller chose
	Done    NumberSet               `json:"done"`              // answered
	Open    map[uint64]*OpenCall    `json:"open,omitempty"`    // begun and not ended
	Pending map[uint64]*PendingCall `json:"pending,omitempty"` // between attempts, or waiting for a person
	Index   int                     `json:"index"`             // model calls made, except those in doubt
	Steps   int64                   `json:"steps"`             // of this process alone
	Hits    uint16                  `json:"hits,omitempty"`    // limits that refused a call or cut an answer, one bit a unit
	Cut     *CutAnswer              `json:"cut,omitempty"`     // the last answer that a limit cut
	Lasted  bool                    `json:"lasted,omitempty"`  // the last words were spoken
	Stop    Stop                    `json:"stop,omitzero"`     // why the run ends
	Doubt   map[uint64]Doubt        `json:"doubt,omitempty"`   // calls in doubt
	Reaped  NumberSet               `json:"reaped,omitempty"`  // children whose exit was reported by wait
	Drift   int64                   `json:"drift,omitempty"`   // money used beyond the reservations

	entries entries // where their use is booked
	Claims  int64   `json:"claims,omitempty"` // answers with a usage that is not believed
}

// Doubt is what a call in doubt has reserved, and the name under which it is booked.
type Doubt struct {
	Reserved abi.Usage `json:"reserved"`
	Model    string    `json:"model,omitempty"`
}

// CutAnswer is an answer of a model that reached the maximum that a limit had
// lowered. The process then ends as limit, because it has seen half an answer.
type CutAnswer struct {
	Call uint64 `json:"call"`
	abi.Ceiling
}

// OpenCall is a call that has an intent and no end.
type OpenCall struct {
	*abi.Intent
	Since int64  `json:"since"`
	N     uint64 `json:"n"` // the record of the intent
}

// PendingCall is a call that goes on later: between two attempts, or after a
// person has decided.
type PendingCall struct {
	Intent  *abi.Intent `json:"intent"`
	Attempt int         `json:"attempt"`        // attempts made so far
	Away    int         `json:"away,omitempty"` // attempts that the provider turned away
	Since   int64       `json:"since"`
	Ask     *Question   `json:"ask,omitempty"`
}

// Question is what a person must decide before a call may run.
type Question struct {
	Text    abi.Data `json:"question"`
	Decided bool     `json:"decided,omitempty"`
	Yes     bool     `json:"yes,omitempty"`
	By      string   `json:"by,omitempty"`
	Reason  abi.Data `json:"reason,omitzero"`
}

// Message is mail that no call has received yet.
type Message struct {
	N    uint64   `json:"n"` // its record
	From string   `json:"from"`
	Call uint64   `json:"call"` // number of the sending call, so that it arrives once
	Body abi.Data `json:"body"`

	Ahead int `json:"ahead,omitempty"` // a message with more of it is received first
}

// Registers is the part of R0 to R7 that no other part of the state holds.
type Registers struct {
	Call   uint64     `json:"call"`
	Row    string     `json:"row,omitempty"`
	Tool   string     `json:"tool,omitempty"`
	Args   abi.Data   `json:"args,omitzero"`
	Chosen *Chosen    `json:"chosen,omitempty"` // nil: Args has the arguments of Tool
	Digest abi.Key    `json:"digest,omitzero"`  // of the workspace
	Commit abi.Hash   `json:"commit,omitzero"`  // the last commit of this process
	Err    *abi.Error `json:"err,omitempty"`
}

// Chosen is a tool call that the model chose. The reply holds its arguments.
type Chosen struct {
	Reply Page   `json:"reply"`
	For   string `json:"for"` // the model's name for the call
}

// highest returns the highest number that a caller chose, after call n.
func (c *Calls) highest(n uint64) uint64 {
	if n >= NestedFrom {
		return c.Max
	}
	return max(c.Max, n)
}

// pend returns the pending call n, and makes it if there is none.
func (c *Calls) pend(n uint64, in *abi.Intent, since int64) *PendingCall {
	if c.Pending == nil {
		c.Pending = make(map[uint64]*PendingCall)
	}
	q := c.Pending[n]
	if q == nil {
		q = &PendingCall{Since: since}
		c.Pending[n] = q
	}
	q.Intent = in
	return q
}

// drop forgets that call n is pending, and with it the calls within it, because
// nobody is left to continue them.
func (c *Calls) drop(n uint64) {
	delete(c.Pending, n)
	for inner := range c.Pending {
		if inner > NestedFrom && inner%NestedFrom == n {
			delete(c.Pending, inner)
		}
	}
}

// Apply adds one record to the state, and to the accounts above it.
func (s *State) Apply(r *abi.Record) {
	s.N = r.N
	if r.Kind == abi.KindSettled {
		s.settleDoubt(r)
		return // it may come long after the exit, so it does not make the process older
	}
	s.Last = r.Time
	switch r.Kind {
	case abi.KindSpawned:
		s.applySpawn(r)
	case abi.KindBegan:
		s.applyIntent(r)
	case abi.KindEnded, abi.KindRefused:
		s.applyAnswer(r)
	case abi.KindSignaled:
		s.applySignal(r.Note.Signal)
	case abi.KindMailed:
		s.applyMail(r)
	case abi.KindAsked:
		s.Calls.Max = s.Calls.highest(r.Call)
		s.Calls.pend(r.Call, r.Intent, r.Time).Ask = &Question{Text: r.Note.Body}
	case abi.KindDecided:
		// Only the first decision counts, whatever a later record says.
		if q := s.Calls.Pending[r.Call]; q != nil && q.Ask != nil && !q.Ask.Decided {
			q.Ask.Decided, q.Ask.Yes, q.Ask.By, q.Ask.Reason = true, r.Note.Yes, r.Note.From, r.Note.Body
		}
	case abi.KindChanged:
		if r.Change.Limits != nil {
			s.Account.Limits = *r.Change.Limits
		}
		if r.Change.Priority != nil {
			s.Priority = *r.Change.Priority
		}
	case abi.KindEnding:
		s.Ending = r.Exit
	case abi.KindExited:
		s.Phase, s.Exit = NextPhase(s.Phase, EventExit), r.Exit
		// Nothing can use these any more, and the state may stay in memory for a while.
		s.Mail, s.Failures, s.Calls.Pending, s.Calls.Open = nil, nil, nil, nil
	}
}

func (s *State) applySpawn(r *abi.Record) {
	s.Pid, s.Born, s.Spawn, s.Phase, s.Priority = r.Pid, r.Time, r.Spawn, abi.New, r.Spawn.Priority
	s.Account.Limits = r.Spawn.Limits
	if s.Account.Parent != nil && r.Spawn.Parent != 0 {
		s.Account.Parent.Settle(&abi.Usage{}, &abi.Usage{abi.Children: 1})
	}
	if r.Spawn.Fork != nil {
		s.inherit(r.Spawn.Fork)
	}
	if r.Spawn.Task.Size > 0 {
		s.Memory.Add(Page{Pid: r.Pid, N: r.N, Role: RoleTask, Tokens: int32(r.Spawn.TaskTokens)})
	}
}

// applyIntent adds a call that is about to run.
func (s *State) applyIntent(r *abi.Record) {
	in, c := r.Intent, &s.Calls
	s.Phase, c.Max = NextPhase(s.Phase, EventCall), c.highest(r.Call)
	if c.Open == nil {
		c.Open = make(map[uint64]*OpenCall)
	}
	// A timer of the call starts with its first attempt, not with this one.
	since := r.Time
	if q := c.Pending[r.Call]; q != nil {
		since = q.Since
	}
	c.Open[r.Call] = &OpenCall{in, since, r.N}
	s.Account.Reserve(&in.Reserve)
	c.Steps += in.Reserve[abi.Steps]
	c.Index += int(in.Reserve[abi.ModelCalls])
	if in.Say.Size > 0 {
		s.Memory.Add(Page{Pid: r.Pid, N: r.N, Role: RoleUser, Tokens: int32(in.SayTokens)})
	}
	if s.Term && in.Row == ModelRow {
		c.Lasted = true
	}
	c.Stop.begin(r.Call, in)
}

// applyAnswer adds the end of an attempt, or a refusal.
func (s *State) applyAnswer(r *abi.Record) {
	a, c, in := r.Answer, &s.Calls, r.Intent
	s.Phase, c.Max = NextPhase(s.Phase, EventCall), c.highest(r.Call)
	since := r.Time
	// An effect has its intent in an earlier record, which reserved. A pure call
	// has it in this record, and reserved nothing.
	if o := c.Open[r.Call]; o != nil {
		in, since = o.Intent, o.Since
		delete(c.Open, r.Call)
		s.settleAttempt(r, in, a)
	} else {
		s.Account.Settle(&abi.Usage{}, &a.Usage)
		s.Calls.entries.add(r.Time, in, &a.Usage)
	}
	// The call goes on with another attempt, so this is not its answer yet.
	if a.Again {
		q := c.pend(r.Call, in, since)
		if q.Attempt = a.Attempt; a.Outcome == abi.Refused {
			q.Away++
		}
		return
	}
	c.drop(r.Call)
	c.Done.Add(r.Call)
	s.updateRegisters(r.Call, in, a)
	c.Stop.end(r.Call, in, a)
	// An exit may name a limit only if the limit refused a call or cut an answer.
	if u, ok := limitMet(a); ok {
		c.Hits |= 1 << u
	}
	if a.Claim != nil {
		c.Claims++
	}
	if a.Cut != nil {
		c.Cut = &CutAnswer{Call: r.Call, Ceiling: *a.Cut}
	}
	if a.Page != nil {
		if a.Page.Only {
			s.Memory.Clear()
		}
		s.Memory.Add(Page{Pid: r.Pid, N: r.N, Role: roleNamed(a.Page.Role), Tokens: int32(a.Page.Tokens), ID: a.Page.ID})
	}
	// A message or an exited child is delivered with the answer that names it.
	switch {
	case a.Took != 0 && in.Row == WaitRow:
		c.Reaped.Add(a.Took)
	case a.Took != 0:
		s.Mail = slices.DeleteFunc(s.Mail, func(m Message) bool { return m.N == a.Took })
	}
	// Only calls that the watchdog counts have a result key.
	if !a.Result.IsZero() {
		s.Watchdog.Add(s.Watched(r.Call, in, a))
		if a.Warning != nil {
			s.Watchdog.Warn()
		}
	}
	s.Failures.Count(in.Tool, a, r.Time)
}

// limitMet returns the limit that refused the call, or cut its answer.
func limitMet(a *abi.Answer) (abi.Unit, bool) {
	switch {
	case a.Cut != nil:
		return abi.LimitOf(a.Cut.Code())
	case a.Err != nil && a.Outcome == abi.Refused:
		return abi.LimitOf(a.Err.Code)
	}
	return 0, false
}

// updateRegisters keeps what R0, R3, R4, R5 and R6 show of the last answer. A
// call without a tool, a digest or a commit leaves the last ones.
func (s *State) updateRegisters(n uint64, in *abi.Intent, a *abi.Answer) {
	regs := &s.Regs
	regs.Call, regs.Row, regs.Err = n, in.Row, a.Err
	if in.Tool != "" {
		regs.Tool, regs.Args, regs.Chosen = in.Tool, in.Args, s.chosen(in.For)
	}
	if !a.Digest.IsZero() {
		regs.Digest = a.Digest
	}
	if !a.Commit.IsZero() {
		regs.Commit = a.Commit
	}
}

// chosen finds the reply in which the model chose a call. It returns nil for a call
// that the model did not choose.
func (s *State) chosen(id string) *Chosen {
	for _, pg := range slices.Backward(s.Memory.Pages) {
		if id != "" && pg.Role == RoleAssistant {
			return &Chosen{pg, id}
		}
	}
	return nil
}

// settleAttempt settles what a begun attempt had reserved. An attempt with an
// unknown outcome keeps its reservation, because it may have used it.
func (s *State) settleAttempt(r *abi.Record, in *abi.Intent, a *abi.Answer) {
	if a.Outcome == abi.Unknown {
		if s.Calls.Doubt == nil {
			s.Calls.Doubt = make(map[uint64]Doubt)
		}
		d := s.Calls.Doubt[r.Call] // several attempts may be in doubt
		d.Model = modelOf(in)
		d.Reserved.Add(&in.Reserve)
		if d.Reserved != (abi.Usage{}) {
			s.Calls.Doubt[r.Call] = d
		}
		s.Account.KeepInDoubt(&in.Reserve)
		s.Calls.Index -= int(in.Reserve[abi.ModelCalls])
		return
	}
	s.Account.Settle(&in.Reserve, &a.Usage)
	s.Calls.entries.add(r.Time, in, &a.Usage)
	s.Calls.Drift += max(0, a.Usage[abi.Money]-in.Reserve[abi.Money])
}

// settleDoubt books what a person found that a call in doubt used.
func (s *State) settleDoubt(r *abi.Record) {
	d := r.Settle
	s.Account.SettleDoubt(&d.Released, &d.Spent)
	s.Calls.entries.addTo(r.Time, d.Model, &d.Spent)
	s.Calls.Drift += max(0, d.Spent[abi.Money]-d.Released[abi.Money])
	delete(s.Calls.Doubt, r.Call)
}

func (s *State) applySignal(signal abi.Signal) {
	switch signal {
	case abi.Stop:
		s.Phase = NextPhase(s.Phase, EventStop)
	case abi.Cont:
		s.Phase = NextPhase(s.Phase, EventCont)
	case abi.Term:
		s.Term = true
		s.Phase = NextPhase(s.Phase, EventCont)
	}
}

func (s *State) applyMail(r *abi.Record) {
	s.Mail = append(s.Mail, Message{r.N, r.Note.From, r.Call, r.Note.Body, r.Note.Ahead})
	slices.SortStableFunc(s.Mail, func(a, b Message) int { return b.Ahead - a.Ahead })
	if r.Call == 0 {
		return
	}
	if s.Received == nil {
		s.Received = make(map[string]NumberSet)
	}
	got := s.Received[r.Note.From]
	got.Add(r.Call)
	s.Received[r.Note.From] = got
}

func roleNamed(name string) Role {
	switch name {
	case "assistant":
		return RoleAssistant
	case "tool":
		return RoleTool
	}
	return RoleUser
}

// Watched returns what the watchdog keeps of an answered call. A call without a
// view of the workspace left the workspace as it was.
func (s *State) Watched(n uint64, in *abi.Intent, a *abi.Answer) WatchedCall {
	digest := a.Digest
	if digest.IsZero() {
		digest = s.Regs.Digest
	}
	return WatchedCall{Call: n, Key: in.Key, Result: a.Result, Digest: digest, Effect: in.Effect, Failed: a.Outcome != abi.OK, Rolled: a.Rolled,
		Said: in.Row == ModelRow, Name: NameOf(in)}
}

// NameOf returns the tool that an intent calls, or else its row.
func NameOf(in *abi.Intent) string {
	if in.Tool != "" {
		return in.Tool
	}
	return in.Row
}

// inheritance is what a fork takes over from the process that it continues.
type inheritance struct {
	Memory   Memory       `json:"memory"`
	Watchdog Watchdog     `json:"watch"`
	Failures ToolFailures `json:"rests,omitempty"`
	Index    int          `json:"index"`
	Digest   abi.Key      `json:"digest,omitzero"`
}

// Inheritance writes what a fork takes over from s.
func (s *State) Inheritance() ([]byte, error) {
	return json.Marshal(inheritance{s.Memory, s.Watchdog, s.Failures, s.Calls.Index, s.Regs.Digest})
}

// inherit reads what Inheritance wrote.
func (s *State) inherit(f *abi.Fork) {
	var from inheritance
	if json.Unmarshal(f.State.Bytes, &from) != nil {
		return
	}
	s.Memory, s.Watchdog, s.Failures, s.Calls.Index, s.Regs.Digest = from.Memory, from.Watchdog, from.Failures, from.Index, from.Digest
}
