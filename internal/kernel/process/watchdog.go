package process

import (
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
)

// maxRollbacks is how many rollbacks of one tool in a row are too many.
const maxRollbacks = 3

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
	Name   string     `json:"name"`
}

// same reports whether b repeats a with nothing changed in between. Two failures
// of the same call are the same, whatever their messages say.
func (a *WatchedCall) same(b *WatchedCall) bool {
	return a.Key == b.Key && a.Digest == b.Digest && (a.Result == b.Result || a.Failed && b.Failed)
}

func (a *WatchedCall) patience(repeat int) int {
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
// it forget. The kernel decides what follows from a verdict.
type Watchdog struct {
	Ring   []WatchedCall  `json:"ring,omitempty"`
	Warned bool           `json:"warned,omitempty"`
	Rolled map[string]int `json:"rolled,omitempty"` // rollbacks in a row, by tool
}

// Add remembers a call and counts its repetitions.
func (w *Watchdog) Add(s WatchedCall) {
	s.Run = w.runLength(&s)
	w.countRollback(&s)
	if len(w.Ring) == RingSize {
		copy(w.Ring, w.Ring[1:])
		w.Ring = w.Ring[:RingSize-1]
	}
	w.Ring = append(w.Ring, s)
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

// JudgeRollbacks returns a verdict when s is one rollback too many. There is no
// warning before it, because every rollback was one.
func (w *Watchdog) JudgeRollbacks(cfg abi.Watchdog, s *WatchedCall) *abi.Error {
	if cfg.Profile == "off" || !s.Rolled || w.Rolled[s.Name]+1 < maxRollbacks {
		return nil
	}
	return loopError(fmt.Sprintf("the changes of %s were rolled back %d times in a row (last: call %d)", s.Name, w.Rolled[s.Name]+1, s.Call))
}

// runLength returns how many times in a row s was made, s included.
func (w *Watchdog) runLength(s *WatchedCall) int {
	if n := len(w.Ring); n > 0 && w.Ring[n-1].same(s) {
		return w.Ring[n-1].Run + 1
	}
	return 1
}

// Judge returns a verdict when s makes a loop with the calls before it. It changes
// nothing. The error names the evidence.
func (w *Watchdog) Judge(cfg abi.Watchdog, s *WatchedCall) *abi.Error {
	if cfg.Profile == "off" {
		return nil
	}
	repeat := cfg.Repeat
	if repeat == 0 {
		repeat = 3
	}
	if n := w.runLength(s); n >= s.patience(repeat) {
		what := "gave the same result"
		if s.Failed {
			what = "failed"
		}
		return loopError(fmt.Sprintf("%s was called %d times in a row with the same arguments and %s (last: call %d)", s.Name, n, what, s.Call))
	}
	for period := 2; period <= RingSize/2; period++ {
		if e := w.findCycle(s, period, repeat); e != nil {
			return e
		}
	}
	return w.findStandstill(s)
}

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

// findStandstill looks for a full ring with few different calls in it.
func (w *Watchdog) findStandstill(s *WatchedCall) *abi.Error {
	if len(w.Ring) < RingSize-1 {
		return nil
	}
	different := 1
	for i := range w.Ring {
		e := &w.Ring[i]
		// A changed workspace is progress, and calls made to be repeated prove nothing.
		if e.Effect == abi.Polling || e.Effect == abi.Idempotent || e.Digest != s.Digest {
			return nil
		}
		known := e.same(s)
		for j := range i {
			known = known || w.Ring[j].same(e)
		}
		if !known {
			different++
		}
	}
	if different > RingSize/4 {
		return nil
	}
	return loopError(fmt.Sprintf("the last %d calls were only %d different calls, always with the same results", RingSize, different))
}

func loopError(evidence string) *abi.Error {
	return &abi.Error{Code: abi.WatchdogLoop, Message: evidence,
		Hint: "do something different: change the arguments, use another tool, or give your answer"}
}
