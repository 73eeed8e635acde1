package process

import "github.com/kern-run/kern/abi"

// Stop is why the built-in loop stops before the model has finished. It follows from
// the records, so a loop that starts again after a crash stops for the same reason.
type Stop struct {
	Call  uint64     `json:"call,omitempty"`  // the call whose error ends the run; 0: none
	Err   *abi.Error `json:"error,omitempty"` // that error
	Tool  bool       `json:"tool,omitempty"`  // the model asked for that call
	Asked uint64     `json:"asked,omitempty"` // the newest call for last words
	Words int        `json:"words,omitempty"` // calls for last words
	Said  bool       `json:"said,omitempty"`  // that call has an answer, and its outcome is known
}

// EndsRun reports whether the refusal of a tool call ends the run. The limits on children
// and depth do not end it, because the process can do the task itself.
func EndsRun(c abi.Code) bool {
	if u, limit := abi.LimitOf(c); limit {
		return u != abi.Children && u != abi.Depth
	}
	return c == abi.ProcessEnding || Gone(c)
}

// Gone reports whether the kernel accepts no more calls of the process.
func Gone(c abi.Code) bool {
	switch c {
	case abi.ProcessKilled, abi.ProcessExited, abi.WatchdogLoop, abi.DaemonGone, abi.StorageBroken, abi.UnknownProcess:
		return true
	}
	return false
}

// AskAgain reports whether the loop makes a model call again after this error: a signal
// or a restart cut the call off, and the next call returns the reason.
func AskAgain(c abi.Code) bool { return c == abi.Interrupted || c == abi.OutcomeUnknown }

// begin notes a model call. After the error that ends a run it asks for last words.
func (s *Stop) begin(n uint64, in *abi.Intent) {
	if s.Call != 0 && in.Row == ModelRow && n != s.Asked {
		s.Asked, s.Said = n, false
		s.Words++
	}
}

// end notes the answer to call n of the loop.
func (s *Stop) end(n uint64, in *abi.Intent, a *abi.Answer) {
	var code abi.Code
	if a.Err != nil {
		code = a.Err.Code
	}
	switch {
	case n >= NestedFrom || in.Within != 0:
	case in.Row == ModelRow && s.Call != 0:
		s.begin(n, in) // a refused call had no intent
		s.Said = a.Outcome != abi.Unknown
	case in.Row == ModelRow && code != "" && !AskAgain(code):
		*s = Stop{Call: n, Err: a.Err}
	// Of several refused calls of a reply the first one counts, as in the loop.
	case in.For != "" && a.Outcome == abi.Refused && EndsRun(code) && (s.Call == 0 || n < s.Call):
		*s = Stop{Call: n, Err: a.Err, Tool: true}
	}
}
