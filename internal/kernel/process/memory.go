// Package process is the state of one process: the fold of its records.
//
// It is pure: no clock, no goroutine, no input or output. Its parts are the
// states (phase.go), the pages (memory.go), the watchdog (watchdog.go), the
// blocked tools (blocked.go), the tree of all processes (tree.go) and the
// summary that the kernel keeps of a process that has exited (summary.go).
package process

import "github.com/kern-run/kern/abi"

// A Page is one message of a process.
type Page struct {
	Pid    abi.Pid `json:"pid"` // the process and the record that hold its text;
	N      uint64  `json:"n"`   // after a fork an early page is the first process's
	Role   Role    `json:"role"`
	Tokens int32   `json:"tokens"`
	ID     string  `json:"id,omitempty"` // tool: the model's name for its call
}

// Role says who speaks on a page.
type Role uint8

// The roles. Task and Said are both the user's to a model: the first is the
// text of the spawn, the second was said with a model call.
const (
	RoleTask Role = iota + 1
	RoleUser
	RoleAssistant
	RoleTool
)

// Memory is the pages of a process, oldest first.
type Memory struct {
	Pages []Page `json:"pages"`
}

// Add appends a page.
func (m *Memory) Add(p Page) { m.Pages = append(m.Pages, p) }

// Clear forgets every page.
func (m *Memory) Clear() { m.Pages = nil }

// Resident returns the pages that a model call sends. The slice is not
// changed later, also when pages are added.
func (m *Memory) Resident() []Page { return m.Pages[:len(m.Pages):len(m.Pages)] }

// Tokens counts the resident pages.
func (m *Memory) Tokens() (n int64) {
	for i := range m.Pages {
		n += int64(m.Pages[i].Tokens)
	}
	return n
}

// FitsContext says whether a request of so many tokens may be sent: within the limit
// on context where there is one, and within the model's window with room for
// the least useful answer. A zero window is not known and does not bind.
// It returns the bound that was in the way.
func FitsContext(tokens, answer, limit int64, limited bool, window int64) (bound int64, ok bool) {
	if limited && tokens > limit {
		return limit, false
	}
	if window > 0 && tokens+answer > window {
		return window, false
	}
	return 0, true
}
