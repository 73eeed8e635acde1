package host

import "github.com/kern-run/kern/abi"

// Result is how a process ended.
type Result struct {
	Pid       abi.Pid       `json:"pid"`
	Exit      abi.Exit      `json:"exit"`
	Reason    string        `json:"reason"` // limit: its unit; killed: the signal
	Code      abi.Code      `json:"code"`
	Output    string        `json:"output"`
	Err       *abi.Error    `json:"error"`
	Steps     int64         `json:"steps"`
	Usage     Usage         `json:"usage"`
	Limits    abi.Limits    `json:"limits"`
	Registers abi.Registers `json:"registers"`
}

// Usage is the usage of a process and its descendants.
type Usage struct {
	Money        string `json:"money"` // dollars, exactly
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	ModelCalls   int64  `json:"model_calls"`
	ToolCalls    int64  `json:"tool_calls"`
	WallMS       int64  `json:"wall_ms"`
	InDoubt      string `json:"in_doubt,omitempty"` // dollars reserved by calls in doubt
	Drift        string `json:"drift,omitempty"`    // dollars billed beyond the reservations
	Claims       int64  `json:"claims,omitempty"`   // answers with a usage that is not believed; each is booked at its bound
}
