package api

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// A Process describes a process in lists. The names of its fields are stable.
type Process struct {
	Pid      abi.Pid    `json:"pid"`
	Parent   abi.Pid    `json:"parent"` // 0: none
	Children []abi.Pid  `json:"children"`
	Name     string     `json:"name"`
	Account  string     `json:"account"`
	State    abi.State  `json:"state"`
	Waits    []string   `json:"waits"`
	Asks     []Ask      `json:"asks"`
	Priority int        `json:"priority"`
	Depth    int        `json:"depth"`
	Born     time.Time  `json:"born"`
	AgeMS    int64      `json:"age_ms"` // until now, or until its exit
	Steps    int64      `json:"steps"`
	Usage    Usage      `json:"usage"`
	Reserved Usage      `json:"reserved"`
	Limits   abi.Limits `json:"limits"`
	Records  uint64     `json:"records"`

	// In JSON the fields of these stand beside the others.
	End    ProcessEnd    `json:"-"`
	Origin ProcessOrigin `json:"-"`
}

// ProcessEnd is how a process ended; empty while it lives.
type ProcessEnd struct {
	Exit   abi.Exit `json:"exit"`
	Reason string   `json:"reason"`
	Code   abi.Code `json:"code"`
}

// ProcessOrigin is what the first record of a process says of it.
type ProcessOrigin struct {
	Title string `json:"title"` // its task or its command line, in one short line
	Model string `json:"model"` // empty for a program, which names a model in each request
}

// MarshalJSON writes the parts of a process as one object.
func (p Process) MarshalJSON() ([]byte, error) {
	type own Process // has no MarshalJSON
	return OneObject(own(p), p.End, p.Origin)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Process) UnmarshalJSON(b []byte) error {
	type own Process // has no UnmarshalJSON
	return errors.Join(json.Unmarshal(b, (*own)(p)), json.Unmarshal(b, &p.End), json.Unmarshal(b, &p.Origin))
}

// OneObject writes the fields of several values as one JSON object. Texts in it stay
// as they are.
func OneObject(parts ...any) ([]byte, error) {
	var all []byte
	for i, part := range parts {
		b, err := plain(part)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			all[len(all)-1], b = ',', b[1:]
		}
		all = append(all, b...)
	}
	return all, nil
}

// An Ask is a question that waits for a person.
type Ask struct {
	Call     uint64 `json:"call"`
	Question string `json:"question"`
}

// Usage is what a process and all its descendants used, or all under an account.
type Usage struct {
	Money        string `json:"money"` // in dollars, exact
	Tokens       int64  `json:"tokens"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	Steps        int64  `json:"steps"`
	ModelCalls   int64  `json:"model_calls"`
	ToolCalls    int64  `json:"tool_calls"`
	Children     int64  `json:"children"`
	OutputBytes  int64  `json:"output_bytes"`
	CPU          string `json:"cpu"`
}

// An Account describes a named account in lists.
type Account struct {
	Name     string     `json:"name"`
	Limits   abi.Limits `json:"limits"`
	Usage    Usage      `json:"usage"`
	Reserved Usage      `json:"reserved"`
	Left     abi.Limits `json:"left"`               // for every limited unit
	Per      string     `json:"per,omitempty"`      // the limits renew each day, week or month
	Renews   *time.Time `json:"renews,omitempty"`   // when they do next
	InPeriod *Usage     `json:"in_period,omitzero"` // what counts against them
}

func usage(u *abi.Usage) Usage {
	return Usage{Money: abi.FormatMoney(u[abi.Money]), Tokens: u[abi.Tokens], InputTokens: u[abi.InputTokens], OutputTokens: u[abi.OutputTokens],
		Steps: u[abi.Steps], ModelCalls: u[abi.ModelCalls], ToolCalls: u[abi.ToolCalls], Children: u[abi.Children],
		OutputBytes: u[abi.OutputBytes], CPU: abi.FormatUnit(abi.CPU, u[abi.CPU])}
}

func (srv *Server) view(i *kernel.Info, now time.Time) (Process, error) {
	p := Process{Pid: i.Pid, Parent: i.Parent, Children: i.Children, Name: i.Name, Account: i.Account, State: i.State,
		Waits: i.Waits, Asks: []Ask{}, Priority: i.Priority, Depth: i.Depth, Born: time.Unix(0, i.Born).UTC(), Steps: i.Steps,
		Usage: usage(&i.Used), Reserved: usage(&i.Reserved), Limits: i.Limits, Records: i.Records}
	if p.Children == nil {
		p.Children = []abi.Pid{}
	}
	if p.Waits == nil {
		p.Waits = []string{}
	}
	for _, q := range i.Asks {
		b, err := srv.Views.Bytes(q.Question)
		if err != nil {
			return p, err
		}
		p.Asks = append(p.Asks, Ask{q.Call, string(b)})
	}
	if i.Exit != nil {
		p.End = ProcessEnd{i.Exit.Exit, i.Exit.Reason, i.Exit.Code}
		now = time.Unix(0, i.Last)
	}
	p.AgeMS = now.Sub(p.Born).Milliseconds()
	o, err := srv.origins.of(i.Pid)
	p.Origin = o
	return p, err
}

func accountView(b *kernel.Account, now time.Time) Account {
	v := Account{Name: b.Name, Limits: b.Limits, Usage: usage(&b.Used), Reserved: usage(&b.Reserved)}
	counted := b.Used
	if p := b.Period; p.Per != "" {
		// The kernel renews an account when a call needs it, so the period may be over.
		if next, err := abi.NewPeriod(p.Per, now); err == nil && now.UnixNano() >= p.Until {
			p, p.Base = next, b.Used
		}
		counted.Sub(&p.Base)
		renews, in := time.Unix(0, p.Until).UTC(), usage(&counted)
		v.Per, v.Renews, v.InPeriod = p.Per, &renews, &in
	}
	b.Limits.Each(func(u abi.Unit, n int64) {
		if u < abi.Units {
			v.Left.Set(u, max(0, n-counted[u]-b.Reserved[u]))
		}
	})
	return v
}
