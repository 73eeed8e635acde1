package abi

import "slices"

// DefaultPriority is the priority of a process that names none. 0 is the most
// urgent priority, MaxPriority the least urgent.
const (
	DefaultPriority = 10
	MaxPriority     = 99
)

// settableUnits are the limits that a person may set. The kernel enforces them
// whatever the process does.
var settableUnits = []Unit{Money, Steps, Tokens, InputTokens, OutputTokens, ModelCalls, ToolCalls,
	Wall, Depth, Children, Context, OutputBytes}

// SettableUnits are the limits that an agent file and the command line may set.
func SettableUnits() []Unit { return slices.Clone(settableUnits) }

var modelRows = []string{"code", "spawn", "wait", "send", "recv", "sleep", "ask", "yield"}

// ModelRows are the system calls that a model may be given as tools.
func ModelRows() []string { return slices.Clone(modelRows) }
