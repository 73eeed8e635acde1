package abi

// Registers are R0 to R7 of a process: a view of its state, never a second truth.
type Registers struct {
	Counter     CounterRegister     `json:"R0"`
	Watchdog    WatchdogRegister    `json:"R1"`
	Context     ContextRegister     `json:"R2"`
	Workspace   Key                 `json:"R3"` // digest of the content
	Err         *Error              `json:"R4"` // the error that ended the process, or of the last call, if it failed
	Schema      SchemaRegister      `json:"R5"`
	Transaction TransactionRegister `json:"R6"`
	Metadata    MetadataRegister    `json:"R7"`
}

// All returns the registers in order, R0 first.
func (r *Registers) All() []any {
	return []any{r.Counter, r.Watchdog, r.Context, r.Workspace, r.Err, r.Schema, r.Transaction, r.Metadata}
}

// CounterRegister is R0, the program counter: the last call that was answered.
type CounterRegister struct {
	Call uint64 `json:"call"`
	Row  string `json:"row"`
	Step int64  `json:"step"`
}

// WatchdogRegister is R1. Window holds the hashes of recent calls and their
// results, the oldest first.
type WatchdogRegister struct {
	Deadline *int64   `json:"deadline,omitempty"` // nanoseconds since 1970
	Repeats  int      `json:"repeats"`
	Warned   bool     `json:"warned,omitempty"`
	Window   []string `json:"window,omitempty"`
}

// ContextRegister is R2, the context budget.
type ContextRegister struct {
	Remaining *int64 `json:"remaining,omitempty"` // unset: no limit
	Tokens    int64  `json:"tokens"`
}

// SchemaRegister is R5: the tool that was called last, and its arguments.
type SchemaRegister struct {
	Args Data   `json:"args"`
	Tool string `json:"tool"`
}

// TransactionRegister is R6. Open holds the records of the open intents.
type TransactionRegister struct {
	Commit Hash     `json:"commit"`
	Open   []uint64 `json:"open"`
	Record uint64   `json:"record"` // the last record of the process
}

// MetadataRegister is R7.
type MetadataRegister struct {
	Depth int   `json:"depth"`
	Task  Data  `json:"task"`
	Usage Usage `json:"usage"`
}
