package abi

import (
	"fmt"
	"iter"
	"strings"
)

// Kind is the kind of a Record.
type Kind uint8

// The kinds of record. The numbers are on disk: never changed, never reused.
const (
	KindSpawned  Kind = 1  // a process exists
	KindBegan    Kind = 2  // an effect is about to happen
	KindEnded    Kind = 3  // an attempt ended; the last one answers the call
	KindRefused  Kind = 4  // a call was refused, which answers it
	KindSignaled Kind = 5  // a signal came
	KindMailed   Kind = 6  // a message came
	KindAsked    Kind = 7  // a person is asked about a call
	KindDecided  Kind = 8  // a person answered
	KindChanged  Kind = 9  // limits or priority changed
	KindEnding   Kind = 10 // the process will exit, and why; no call is admitted any more
	KindExited   Kind = 11 // the process exited: the one terminal record
	KindAccount  Kind = 12 // the limits of a named account; its Pid is 0
	KindRemoved  Kind = 13 // processes and their records were removed; its Pid is 0
	KindSettled  Kind = 14 // a person settled a call in doubt; it may follow the terminal record
)

var kindNames = [...]string{1: "spawned", "began", "ended", "refused", "signaled", "mailed", "asked", "decided",
	"changed", "ending", "exited", "account", "removed", "settled"}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// A Record is one entry of the journal: a fact, never an instruction. N counts
// the records of a process from 1 without gaps. The parts that belong to the
// Kind are set.
type Record struct {
	Pid     Pid       `json:"pid"`
	N       uint64    `json:"n"`
	Time    int64     `json:"time"` // nanoseconds since 1970
	Kind    Kind      `json:"kind"`
	Call    uint64    `json:"call,omitempty"`
	Spawn   *Spawn    `json:"spawn,omitempty"`   // Spawned
	Intent  *Intent   `json:"intent,omitempty"`  // Began; Ended and Refused of a call that had no Began
	Answer  *Answer   `json:"answer,omitempty"`  // Ended, Refused
	Note    *Note     `json:"note,omitempty"`    // Signaled, Mailed, Asked, Decided
	Change  *Change   `json:"change,omitempty"`  // Changed, Account
	Exit    *ExitInfo `json:"exit,omitempty"`    // Ending, Exited
	Removed *Removed  `json:"removed,omitempty"` // Removed
	Settle  *Settled  `json:"settle,omitempty"`  // Settled
	Blobs   []Blob    `json:"-"`                 // large payloads that are named above, stored with the record
}

// Removed says which processes were removed from the journal, and what they used. The
// sums replace their records.
type Removed struct {
	Pids []Pid  `json:"pids"` // whole trees, every process of them
	By   string `json:"by,omitempty"`
	Sums []Sum  `json:"sums,omitempty"`

	Spent []Spent `json:"spent,omitempty"` // what they used, by hour, model, account and name
}

// Sum is what removed processes used under a named account, or under none.
type Sum struct {
	Account string `json:"account,omitempty"`
	Used    Usage  `json:"used,omitzero"`
	Doubt   Usage  `json:"doubt,omitzero"` // reserved by calls in doubt
}

// Spawn is the request that a process began with.
type Spawn struct {
	Name       string   `json:"name,omitempty"`
	Parent     Pid      `json:"parent,omitempty"`
	ParentCall uint64   `json:"parent_call,omitempty"` // the call of the parent that started it
	Account    string   `json:"account,omitempty"`     // the named account above it, if any
	Depth      int      `json:"depth,omitempty"`
	Priority   int      `json:"priority"`
	Limits     Limits   `json:"limits,omitzero"`
	Rows       []string `json:"rows,omitempty"` // the rows it may call
	Program    Data     `json:"program"`        // the definition of the agent; the kernel does not look inside
	Watchdog   Watchdog `json:"watchdog,omitzero"`
	Task       Data     `json:"task"` // its first page
	TaskTokens int      `json:"task_tokens,omitempty"`
	Fork       *Fork    `json:"fork,omitempty"`
	Title      string   `json:"title,omitempty"` // what runs, for a person; empty: the task says it
}

// MaxTitle is the size of the longest title of a process.
const MaxTitle = 240

// Fork names the process and the record that this process continues from.
type Fork struct {
	Pid Pid    `json:"pid"`
	At  uint64 `json:"at"` // the last record of Pid that counts

	State Data `json:"state,omitzero"` // the part of the state that a fork takes over
}

// Watchdog says how many repetitions the watchdog allows.
type Watchdog struct {
	Profile string `json:"profile,omitempty"` // smart (when empty), strict, off
	Repeat  int    `json:"repeat,omitempty"`  // 0: three
}

// Intent is a call that was admitted, and the most that it may use.
type Intent struct {
	Row       string `json:"row"`
	Tool      string `json:"tool,omitempty"`
	Args      Data   `json:"args,omitzero"`
	Key       Key    `json:"key,omitzero"` // of row, tool and canonical arguments
	Effect    Effect `json:"effect"`
	Within    uint64 `json:"within,omitempty"`
	For       string `json:"for,omitempty"` // the model's name for the call, if the model asked for it
	Attempt   int    `json:"attempt,omitempty"`
	Reserve   Usage  `json:"reserve,omitzero"`
	Granted   int64  `json:"granted,omitempty"` // model: the output tokens it may give
	Price     Price  `json:"price,omitzero"`    // model: the price that was used
	Model     string `json:"model,omitempty"`   // model: its name, with the provider
	Say       Data   `json:"say,omitzero"`      // model: a page that goes before the call
	SayTokens int    `json:"say_tokens,omitempty"`
	Parts     []Hash `json:"parts,omitempty"` // blobs that Args name, including blobs stored with this record

	Lowered *Ceiling `json:"lowered,omitempty"` // model: a limit lowered the output maximum
}

// A Ceiling is the output maximum of a model call that a limit lowered.
type Ceiling struct {
	Limit   string `json:"limit"`   // the limit that leaves no more: its unit
	Granted int64  `json:"granted"` // output tokens that the call may give
	Asked   int64  `json:"asked"`   // output tokens that the request asked for
}

// String describes c, as in "636 of 16384 output tokens, by the money limit".
func (c *Ceiling) String() string {
	return fmt.Sprintf("%d of %d output tokens, by the %s limit", c.Granted, c.Asked, c.Limit)
}

// Code returns the code of the limit.
func (c *Ceiling) Code() Code { return Code("LIMIT_" + strings.ToUpper(c.Limit)) }

// Err returns the error of the answer to a call that ended at c.
func (c *Ceiling) Err(call uint64) *Error {
	return &Error{Code: c.Code(), Message: fmt.Sprintf("the answer of call %d is cut: the %s limit left %d of the %d output tokens that it asked for", call, c.Limit, c.Granted, c.Asked),
		Hint: "raise the limit, or ask for shorter answers"}
}

// Price is what a model costs, in nano-dollars per million tokens.
type Price struct {
	Input      int64 `json:"input,omitempty"`
	Output     int64 `json:"output,omitempty"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// Key is a short hash. The watchdog compares calls and results by it.
type Key [16]byte

// IsZero reports whether k is unset.
func (k Key) IsZero() bool { return k == Key{} }

// Answer is how an attempt at a call ended, or why the call was refused.
type Answer struct {
	Outcome Outcome `json:"outcome"`
	Value   Data    `json:"value,omitzero"`
	Err     *Error  `json:"error,omitempty"`
	Again   bool    `json:"again,omitempty"` // another attempt follows; this is not the answer
	Attempt int     `json:"attempt,omitempty"`
	Usage   Usage   `json:"usage,omitzero"`
	Result  Key     `json:"result,omitzero"` // of the canonical value or the error's code
	Digest  Key     `json:"digest,omitzero"` // of the workspace
	Page    *Page   `json:"page,omitempty"`  // the page that the context of the process gains
	Warning *Error  `json:"warning,omitempty"`
	First   int64   `json:"first,omitempty"`  // model: nanoseconds to the first token
	Commit  Hash    `json:"commit,omitzero"`  // of the workspace, by this call; this record confirms it
	Rolled  bool    `json:"rolled,omitempty"` // the changes to the workspace were rolled back
	Whole   Data    `json:"whole,omitzero"`   // tool: all of an output of which Value or Err holds only a part
	Took    uint64  `json:"took,omitempty"`   // recv: the record of the message; wait: the child that exited

	Cut   *Ceiling `json:"cut,omitempty"`   // model: the answer reached the maximum that a limit had lowered
	Claim *Claim   `json:"claim,omitempty"` // model: the reported usage, far beyond what is possible; Usage is the bound
}

// A Claim is a usage that a provider reported and that no request of its model can
// have.
type Claim struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// String describes c, as in "4611686018427387904 input and 7 output tokens".
func (c *Claim) String() string {
	return fmt.Sprintf("%d input and %d output tokens", c.Input, c.Output)
}

// Page is one message in the context of a process. Its text is the Value of the
// record that made it, or its Err.
type Page struct {
	Role   string `json:"role"` // user, assistant, tool
	Tokens int    `json:"tokens,omitempty"`
	ID     string `json:"id,omitempty"`   // tool: the model's name for its call
	Only   bool   `json:"only,omitempty"` // the pages before it are dropped, because a client keeps the conversation
}

// Note is a signal, a message, a question or a decision.
type Note struct {
	Signal Signal `json:"signal,omitempty"`
	From   string `json:"from,omitempty"`  // a pid, or the name of a person
	Body   Data   `json:"body,omitzero"`   // a message, a question, a reason
	Yes    bool   `json:"yes,omitempty"`   // Decided
	Ahead  int    `json:"ahead,omitempty"` // Mailed: by how much it is more urgent than an ordinary message
}

// Change is a new setting of a process or of a named account.
type Change struct {
	Account  string  `json:"account,omitempty"`
	Limits   *Limits `json:"limits,omitempty"` // all of them
	Priority *int    `json:"priority,omitempty"`
	By       string  `json:"by,omitempty"`
	Period   *Period `json:"period,omitempty"` // Account: from now on; nil: as before
}

// Settled replaces what a call in doubt had reserved by what a person found that it used.
type Settled struct {
	Released Usage  `json:"released"`
	Spent    Usage  `json:"spent"`
	Model    string `json:"model,omitempty"` // under which it is booked
	By       string `json:"by"`
}

// A Settlement asks to settle a call in doubt. A unit that Spent does not name is booked
// as reserved; with None nothing is booked.
type Settlement struct {
	Call  uint64 `json:"call"`
	None  bool   `json:"none,omitempty"`
	Spent Limits `json:"spent,omitzero"`
	By    string `json:"by,omitempty"`
}

// Of returns what is booked of a call that had reserved so much.
func (s *Settlement) Of(reserved Usage) (spent Usage, e *Error) {
	if s.None == !s.Spent.IsZero() {
		return spent, &Error{Code: InvalidArguments, Message: "expected what the call used, or that it used nothing", Where: "/spent"}
	}
	if s.None {
		return spent, nil
	}
	spent = reserved
	s.Spent.Each(func(u Unit, n int64) {
		if u != Money && u != InputTokens && u != OutputTokens {
			e = &Error{Code: InvalidArguments, Message: fmt.Sprintf("%s of a call are known; expected money, input_tokens or output_tokens", u), Where: "/spent/" + u.String()}
			return
		}
		spent[u] = n
	})
	spent[Tokens] = spent[InputTokens] + spent[OutputTokens]
	return spent, e
}

// An Edit is a change to the limits and the priority. A limit that it does not name
// stays.
type Edit struct {
	Limits   Limits // to be set
	Unset    []Unit // limits to be removed
	Narrow   bool   // refuse the edit if it raises or removes a limit
	Priority *int
	By       string // the person or call that asks
	Per      string // of an account: renew its limits each day, week or month; never ends that
}

// ChangesLimits reports whether e names a limit.
func (e *Edit) ChangesLimits() bool { return !e.Limits.IsZero() || len(e.Unset) > 0 }

// Apply returns the limits after the edit.
func (e *Edit) Apply(l Limits) (Limits, *Error) {
	var wider *Error
	now := l
	e.Limits.Each(func(u Unit, n int64) {
		if was, set := l.Get(u); e.Narrow && set && n > was && wider == nil {
			wider = &Error{Code: InvalidArguments, Message: fmt.Sprintf("%s %s is more than the %s it has", u, FormatUnit(u, n), FormatUnit(u, was)),
				Where: "/limits/" + u.String(), Hint: "a limit is raised with kern limit"}
		}
		now.Set(u, n)
	})
	now.Lift()
	for _, u := range e.Unset {
		if e.Narrow && wider == nil {
			wider = &Error{Code: InvalidArguments, Message: fmt.Sprintf("an edit that only lowers limits cannot remove the limit on %s", u), Where: "/unset",
				Hint: "a limit is removed with kern limit"}
		}
		now.Unset(u)
	}
	return now, wider
}

// ExitInfo is how a process ended.
type ExitInfo struct {
	Exit   Exit   `json:"exit"`
	Reason string `json:"reason,omitempty"` // limit: its unit; killed: the signal
	Code   Code   `json:"code,omitempty"`
	Output Data   `json:"output,omitzero"`
	Err    *Error `json:"error,omitempty"`
}

// Payloads yields the payloads of a record, inline or not, set or not.
func (r *Record) Payloads() iter.Seq[*Data] {
	return func(yield func(*Data) bool) {
		var all [8]*Data
		list := all[:0]
		if s := r.Spawn; s != nil {
			list = append(list, &s.Program, &s.Task)
			if s.Fork != nil {
				list = append(list, &s.Fork.State)
			}
		}
		if i := r.Intent; i != nil {
			list = append(list, &i.Args, &i.Say)
		}
		if a := r.Answer; a != nil {
			list = append(list, &a.Value, &a.Whole)
		}
		if n := r.Note; n != nil {
			list = append(list, &n.Body)
		}
		if e := r.Exit; e != nil {
			list = append(list, &e.Output)
		}
		for _, d := range list {
			if !yield(d) {
				return
			}
		}
	}
}
