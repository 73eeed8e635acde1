package abi

// Removal is a request to remove finished trees from the journal.
type Removal struct {
	Pids   []Pid  `json:"pids,omitempty"`    // these; they are top processes
	Before int64  `json:"before,omitempty"`  // all that ended before this time, in nanoseconds since 1970
	Keep   int    `json:"keep,omitempty"`    // but not this many that ended last
	DryRun bool   `json:"dry_run,omitempty"` // change nothing
	By     string `json:"by,omitempty"`
}

// RemovalResult says what was removed, or would be.
type RemovalResult struct {
	Trees     []RemovedTree `json:"trees"`
	Processes int           `json:"processes"` // of all trees
	Kept      []Pid         `json:"kept"`      // tops that stay because a process that stays continues them
	Before    int64         `json:"bytes_before"`
	After     int64         `json:"bytes_after"` // of the journal on the disk
	DryRun    bool          `json:"dry_run,omitempty"`
}

// RemovedTree is a process with its descendants.
type RemovedTree struct {
	Pid       Pid    `json:"pid"`
	Name      string `json:"name,omitempty"`
	Processes int    `json:"processes"`
	Ended     int64  `json:"ended"`
}
