package process

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/kern-run/kern/abi"
)

// RingSize is how many calls the watchdog remembers. The longest cycle that it
// finds has half that period.
const RingSize = 24

// Calls that are made to be repeated may repeat this many times more often.
const (
	idempotentPatience = 3
	pollingPatience    = 40
	saidPatience       = 2 // short answers such as "yes" are the same by chance
)

// maxRollbacks is how many rollbacks of one tool in a row are too many.
const maxRollbacks = 3

// After a warning, the model has this many calls to change its ways. This many
// new calls that succeeded make the warning lapse, so the next one is a warning again.
const (
	callsAfterWarning  = 2
	newCallsOfProgress = 12
)

// KeyOf returns a short hash of a name and a payload: a call and its arguments,
// or an outcome and its value.
func KeyOf(name string, b []byte) (k abi.Key) {
	var buf [256]byte
	h := sha256.Sum256(append(append(append(buf[:0], name...), 0), b...))
	copy(k[:], h[:])
	return k
}

// WatchedCall is what the watchdog remembers of a call.
type WatchedCall struct {
	Call   uint64     `json:"call"`
	Key    abi.Key    `json:"key"`    // of row, tool and canonical arguments
	Result abi.Key    `json:"result"` // of the outcome and the canonical value or the error's code
	Digest abi.Key    `json:"digest"` // of the workspace, after the call
	Effect abi.Effect `json:"effect"`
	Failed bool       `json:"failed,omitempty"`
	Rolled bool       `json:"rolled,omitempty"` // its changes to the workspace were rolled back
	Run    int        `json:"run"`              // how many times in a row, this call included
	Repeat bool       `json:"repeat,omitempty"` // an earlier call in the ring is the same
	Said   bool       `json:"said,omitempty"`   // a model answered with text alone
	Name   string     `json:"name"`
}

// same reports whether b repeats a with nothing changed in between. Two failures
// of the same call are the same, whatever their messages say. A conversation that
// goes in circles grows; the same request again is a sample of the model's answers.
func (a *WatchedCall) same(b *WatchedCall) bool {
	if a.Said || b.Said {
		return a.Said && b.Said && a.Key != b.Key && a.Digest == b.Digest && a.Result == b.Result
	}
	return a.Key == b.Key && a.Digest == b.Digest && (a.Result == b.Result || a.Failed && b.Failed)
}

func (a *WatchedCall) patience(repeat int) int {
	if a.Said {
		return repeat * saidPatience
	}
	switch a.Effect {
	case abi.Idempotent:
		return repeat * idempotentPatience
	case abi.Polling:
		return repeat * pollingPatience
	}
	return repeat
}

// Watchdog finds loops. It compares the newest call of a process with the calls
// before it. It is part of the state, so neither a rollback nor a restart makes
// it forget. The kernel records what it says, so a replay does not judge again.
type Watchdog struct {
	Ring     []WatchedCall  `json:"ring,omitempty"`
	Warned   bool           `json:"warned,omitempty"`
	Since    int            `json:"since,omitempty"`    // calls since the warning
	Progress int            `json:"progress,omitempty"` // those of them that were new and succeeded
	Rolled   map[string]int `json:"rolled,omitempty"`   // rollbacks in a row, by tool
}

// Add remembers a call and counts its repetitions.
func (w *Watchdog) Add(s WatchedCall) {
	s.Run, s.Repeat = w.runLength(&s), w.isRepeat(&s)
	w.countRollback(&s)
	w.countProgress(&s)
	if len(w.Ring) == RingSize {
		copy(w.Ring, w.Ring[1:])
		w.Ring = w.Ring[:RingSize-1]
	}
	w.Ring = append(w.Ring, s)
}

// Warn remembers that the answer to the last call had a warning.
func (w *Watchdog) Warn() { w.Warned, w.Since, w.Progress = true, 0, 0 }

// countProgress counts the calls after a warning, until enough of them were new.
func (w *Watchdog) countProgress(s *WatchedCall) {
	if !w.Warned {
		return
	}
	w.Since++
	if !s.Repeat && !s.Failed {
		w.Progress++
	}
	if w.Progress == newCallsOfProgress {
		w.Warned, w.Since, w.Progress = false, 0, 0
	}
}

// isRepeat reports whether an earlier call in the ring is the same as s.
func (w *Watchdog) isRepeat(s *WatchedCall) bool {
	for i := range w.Ring {
		if w.Ring[i].same(s) {
			return true
		}
	}
	return false
}

// countRollback counts rollbacks in a row. A success ends the row. A refusal, or
// a failure without a change, does not count.
func (w *Watchdog) countRollback(s *WatchedCall) {
	switch {
	case s.Rolled:
		if w.Rolled == nil {
			w.Rolled = make(map[string]int)
		}
		w.Rolled[s.Name]++
	case !s.Failed:
		delete(w.Rolled, s.Name)
	}
}

// runLength returns how many times in a row s was made, s included.
func (w *Watchdog) runLength(s *WatchedCall) int {
	if n := len(w.Ring); n > 0 && w.Ring[n-1].same(s) {
		return w.Ring[n-1].Run + 1
	}
	return 1
}

// Judge says what follows from s and the calls before it: a warning, the end of
// the process as a loop, or nothing. It changes nothing. The error names the
// evidence.
//
// Smart warns at the first evidence, and ends the process if the loop goes on
// although the model has had the warning. Strict ends it at once, but not for a
// share of repeats that a stubborn search for a mistake can have too.
func (w *Watchdog) Judge(cfg abi.Watchdog, s *WatchedCall) (warning, end *abi.Error) {
	if cfg.Profile == "off" {
		return nil, nil
	}
	if e := w.findRollbacks(s); e != nil {
		return nil, e
	}
	repeat := cmp.Or(cfg.Repeat, 3)
	e := w.findLoop(s, repeat)
	switch {
	case cfg.Profile == "strict":
		return nil, e
	case w.Warned && w.Since+1 >= callsAfterWarning:
		return nil, e
	case w.Warned:
		return nil, nil
	case e == nil:
		e = w.findShare(s, 3*repeat-1, 2*repeat-1)
	}
	return e, nil
}

// findRollbacks finds a rollback too many. There is no warning before it, because
// every rollback was one.
func (w *Watchdog) findRollbacks(s *WatchedCall) *abi.Error {
	if !s.Rolled || w.Rolled[s.Name]+1 < maxRollbacks {
		return nil
	}
	return loopError(fmt.Sprintf("the changes of %s were rolled back %d times in a row (last: call %d)", s.Name, w.Rolled[s.Name]+1, s.Call))
}

// findLoop finds the evidence that may end a process.
func (w *Watchdog) findLoop(s *WatchedCall, repeat int) *abi.Error {
	if n := w.runLength(s); n >= s.patience(repeat) {
		switch {
		case s.Said:
			return loopError(fmt.Sprintf("the model gave the same answer to the same message %d times in a row (last: call %d)", n, s.Call))
		case s.Failed:
			return loopError(fmt.Sprintf("%s was called %d times in a row with the same arguments and failed (last: call %d)", s.Name, n, s.Call))
		}
		return loopError(fmt.Sprintf("%s was called %d times in a row with the same arguments and gave the same result (last: call %d)", s.Name, n, s.Call))
	}
	for period := 2; period <= RingSize/2; period++ {
		if e := w.findCycle(s, period, repeat); e != nil {
			return e
		}
	}
	return w.findShare(s, 4*repeat, 4*repeat-2)
}

// findShare looks whether most of the last calls were made before with the same
// result, in whatever order and with whatever new calls between them.
func (w *Watchdog) findShare(s *WatchedCall, of, most int) *abi.Error {
	of, most = min(of, RingSize), min(most, RingSize-2)
	if len(w.Ring)+1 < of || !s.counts() || !w.isRepeat(s) {
		return nil
	}
	repeats := 1
	for i := range of - 1 {
		if e := &w.Ring[len(w.Ring)-1-i]; e.Repeat && e.counts() {
			repeats++
		}
	}
	if repeats < most {
		return nil
	}
	return loopError(fmt.Sprintf("%d of the last %d calls were made before with the same arguments and results (last: %s, call %d)", repeats, of, s.Name, s.Call))
}

// counts reports whether a repetition of the call proves anything. Some calls are
// made to be repeated.
func (a *WatchedCall) counts() bool { return a.Effect != abi.Polling && a.Effect != abi.Idempotent }

// at returns the call that many places before s; s itself is 0.
func (w *Watchdog) at(s *WatchedCall, back int) *WatchedCall {
	if back == 0 {
		return s
	}
	return &w.Ring[len(w.Ring)-back]
}

// findCycle looks whether the last period calls were made before in the same
// order: at least twice, and at least repeat calls in all.
func (w *Watchdog) findCycle(s *WatchedCall, period, repeat int) *abi.Error {
	if len(w.Ring)+1 < 2*period || !s.same(w.at(s, period)) { // most calls end here
		return nil
	}
	patience := 0
	for i := range period {
		// One call that may repeat gives its patience to the whole cycle.
		patience = max(patience, w.at(s, i).patience(repeat))
	}
	rounds := max(2, (patience+period-1)/period)
	if rounds*period > len(w.Ring)+1 {
		return nil
	}
	for i := range (rounds - 1) * period {
		if !w.at(s, i).same(w.at(s, i+period)) {
			return nil
		}
	}
	names := make([]string, period)
	for i := range names {
		names[period-1-i] = fmt.Sprintf("%s (call %d)", w.at(s, i).Name, w.at(s, i).Call)
	}
	return loopError(fmt.Sprintf("the calls %s were made %d times with the same arguments and results", strings.Join(names, ", "), rounds))
}

func loopError(evidence string) *abi.Error {
	return &abi.Error{Code: abi.WatchdogLoop, Message: evidence,
		Hint: "do something different: change the arguments, use another tool, or give your answer"}
}
