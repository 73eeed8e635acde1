package process

import "github.com/kern-run/kern/abi"

// Page is one message in the context of a process: what the parent or a person
// said, what the model answered, or what a tool returned. Its text stays in the
// record that made it.
type Page struct {
	Pid    abi.Pid `json:"pid"` // the process and the record that hold the text;
	N      uint64  `json:"n"`   // after a fork, early pages belong to the first process
	Role   Role    `json:"role"`
	Tokens int32   `json:"tokens"`
	ID     string  `json:"id,omitempty"` // tool: the model's name for its call
}

// Role is the source of a page.
type Role uint8

// The roles. A model sees RoleTask and RoleUser as the same: the first is the text
// of the spawn, the second came with a model call.
const (
	RoleTask Role = iota + 1
	RoleUser
	RoleAssistant
	RoleTool
)

// Memory is the pages of a process, the oldest first.
type Memory struct {
	Pages []Page `json:"pages"`
}

// Add appends a page.
func (m *Memory) Add(p Page) { m.Pages = append(m.Pages, p) }

// Clear drops every page.
func (m *Memory) Clear() { m.Pages = nil }

// Resident returns the pages that a model call sends. Pages that are added later
// do not change the slice.
func (m *Memory) Resident() []Page { return m.Pages[:len(m.Pages):len(m.Pages)] }

// Tokens counts the resident pages.
func (m *Memory) Tokens() (n int64) {
	for i := range m.Pages {
		n += int64(m.Pages[i].Tokens)
	}
	return n
}

// FitsContext decides whether a request of so many tokens may be sent. It must fit
// the context limit, if there is one, and the model's window together with the
// least useful answer. A window of zero is unknown and does not bind. It returns
// the bound that the request exceeds.
func FitsContext(tokens, answer, limit int64, limited bool, window int64) (bound int64, ok bool) {
	if limited && tokens > limit {
		return limit, false
	}
	if window > 0 && tokens+answer > window {
		return window, false
	}
	return 0, true
}
