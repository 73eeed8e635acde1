package process

import (
	"encoding/json"
	"slices"

	"github.com/kern-run/kern/abi"
)

// A Cut takes the end of a run out of a conversation, so that another process can go on
// from there: the last words, and the tool calls that were refused because the run ended.
// A call that had begun stays, and its answer says so.
type Cut struct {
	Stop Stop // of the process

	begun map[uint64]*abi.Intent
	drop  map[uint64]bool // records whose page is dropped
	doubt []Page          // answers that had no page, because the process ended before them
	index int             // model calls for last words
}

// Note takes the next record of the process.
func (c *Cut) Note(r *abi.Record) {
	if c.begun == nil {
		c.begun, c.drop = make(map[uint64]*abi.Intent), make(map[uint64]bool)
	}
	in := r.Intent
	switch r.Kind {
	case abi.KindBegan:
		c.begun[r.Call] = in
		if c.isLastWords(r.Call, in) {
			c.drop[r.N] = true
			c.index += int(in.Reserve[abi.ModelCalls])
		}
	case abi.KindRefused:
		// The next process has limits of its own, and must not read that its run is over.
		if in != nil && in.For != "" && EndsRun(r.Answer.Err.Code) {
			c.drop[r.N] = true
		}
	case abi.KindEnded:
		if in == nil {
			in = c.begun[r.Call]
		}
		c.end(r, in)
	}
}

func (c *Cut) end(r *abi.Record, in *abi.Intent) {
	a := r.Answer
	switch {
	case in == nil:
	case c.isLastWords(r.Call, in):
		c.drop[r.N] = true
		// The state already leaves out a call in doubt, so it must not be subtracted twice.
		if a.Outcome == abi.Unknown {
			c.index -= int(in.Reserve[abi.ModelCalls])
		}
	// A provider refuses a conversation in which a tool call has no result.
	case in.For != "" && a.Outcome == abi.Unknown && a.Page == nil && !a.Again:
		b, _ := json.Marshal(a.Err) // an error always encodes
		c.doubt = append(c.doubt, Page{Pid: r.Pid, N: r.N, Role: RoleTool, Tokens: int32(len(b)+2) / 3, ID: in.For})
	}
}

func (c *Cut) isLastWords(n uint64, in *abi.Intent) bool {
	return c.Stop.Call != 0 && n > c.Stop.Call && n < NestedFrom && in.Row == ModelRow
}

// Apply changes the state of the process to what another process takes over. A person
// decided that it goes on, so it gets a fresh watchdog and no blocked tools.
func (c *Cut) Apply(s *State) {
	m := &s.Memory
	m.Pages = slices.DeleteFunc(m.Pages, func(p Page) bool { return p.Pid == s.Pid && c.drop[p.N] })
	m.Pages = append(m.Pages, c.doubt...)
	if s.Exit != nil && s.Exit.Code == abi.EmptyAnswer { // the empty answers and the hint between them
		for n := len(m.Pages); n > 0 && (m.Pages[n-1].Role == RoleAssistant || m.Pages[n-1].Role == RoleUser); n-- {
			m.Pages = m.Pages[:n-1]
		}
	}
	s.Calls.Index -= c.index
	s.Watchdog, s.Failures = Watchdog{}, nil
}
