package syscalls

import (
	"slices"

	"github.com/kern-run/kern/abi"
)

// What a person may declare, in an agent file, on the command line or over the
// wire.

// DefaultPriority is that of a process that names none; 0 is the most urgent.
const DefaultPriority = 10

// MaxPriority is the least urgent there is.
const MaxPriority = 99

// fileUnits are the limits that a person can set: those that are enforced for
// whatever the process does.
var fileUnits = []abi.Unit{abi.Money, abi.Steps, abi.Tokens, abi.InputTokens, abi.OutputTokens, abi.ModelCalls, abi.ToolCalls,
	abi.Wall, abi.Depth, abi.Children, abi.Context, abi.OutputBytes}

// Units are the limits an agent file and the command line can set.
func Units() []abi.Unit { return slices.Clone(fileUnits) }

// rows are the system calls that a model may be given as tools.
var rows = []string{"code", "spawn", "wait", "send", "recv", "sleep", "ask", "yield"}

// Rows are the system calls that a model may be given as tools.
func Rows() []string { return slices.Clone(rows) }
