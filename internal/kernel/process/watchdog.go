package process

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/kern-run/kern/abi"
)

// RingSize is how many calls back the watchdog looks, so the longest cycle it
// sees has half that period.
const RingSize = 24

// How much more patient the watchdog is with calls that are made to be
// repeated.
const (
	idempotentPatience = 3
	pollingPatience    = 40
)

// KeyOf is a short hash of a name and what it was called with, or gave.
func KeyOf(name string, b []byte) (k abi.Key) {
	var buf [256]byte
	h := sha256.Sum256(append(append(append(buf[:0], name...), 0), b...))
	copy(k[:], h[:])
	return k
}

// WatchedCall is what is kept of a call.
type WatchedCall struct {
	Call   uint64     `json:"call"`
	Key    abi.Key    `json:"key"`    // row, tool and canonical arguments
	Result abi.Key    `json:"result"` // canonical value, or the error's code
	Digest abi.Key    `json:"digest"` // of the workspace, after the call
	Effect abi.Effect `json:"effect"`
	Failed bool       `json:"failed,omitempty"`
	Rolled bool       `json:"rolled,omitempty"` // what it changed in the workspace was taken back
	Run    int        `json:"run"`              // how many times in a row, this one included
	Name   string     `json:"name"`
}

// same reports whether b is a again, with nothing changed in between. The same
// call that fails again is the same, however the failure is worded.
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

// Watchdog is the memory of a process. It is part of the fold, so
// neither a rollback nor a restart forgets.
type Watchdog struct {
	Ring   []WatchedCall  `json:"ring,omitempty"`
	Warned bool           `json:"warned,omitempty"`
	Rolled map[string]int `json:"rolled,omitempty"` // rollbacks in a row, by tool
}

// Add adds a call to the ring and counts its run.
func (w *Watchdog) Add(s WatchedCall) {
	s.Run = w.runLength(&s)
	w.countRollback(&s)
	if len(w.Ring) == RingSize {
		copy(w.Ring, w.Ring[1:])
		w.Ring = w.Ring[:RingSize-1]
	}
	w.Ring = append(w.Ring, s)
}

// roll counts rollbacks in a row: what goes well in between ends the row, and
// what was refused or failed without a change says nothing.
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

// rollbacks of the same tool in a row are too many.
const rollbacks = 3

// Rollbacks says whether s is one rollback too many. There is no warning
// before: each rollback was one.
func (w *Watchdog) JudgeRollbacks(cfg abi.Watchdog, s *WatchedCall) *abi.Error {
	if cfg.Profile == "off" || !s.Rolled || w.Rolled[s.Name]+1 < rollbacks {
		return nil
	}
	return loopError(fmt.Sprintf("what %s changed was taken back %d times in a row (last: call %d)", s.Name, w.Rolled[s.Name]+1, s.Call))
}

func (w *Watchdog) runLength(s *WatchedCall) int {
	if n := len(w.Ring); n > 0 && w.Ring[n-1].same(s) {
		return w.Ring[n-1].Run + 1
	}
	return 1
}

// Judge says whether s, coming after what the ring holds, makes a loop. It
// changes nothing. The error names its evidence.
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
		if e := w.cycle(s, period, repeat); e != nil {
			return e
		}
	}
	return w.stuck(s)
}

// at is the call so many back from s, which is 0 back.
func (w *Watchdog) at(s *WatchedCall, back int) *WatchedCall {
	if back == 0 {
		return s
	}
	return &w.Ring[len(w.Ring)-back]
}

// cycle looks for the last period calls having been made before, in the same
// order, often enough: at least twice, and at least repeat calls in all.
func (w *Watchdog) cycle(s *WatchedCall, period, repeat int) *abi.Error {
	if len(w.Ring)+1 < 2*period || !s.same(w.at(s, period)) {
		return nil // the usual case, at once
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
	return loopError(fmt.Sprintf("the calls %s were made %d times over with the same arguments and results", strings.Join(names, ", "), rounds))
}

// stuck looks for no progress: a full ring that holds next to nothing new.
func (w *Watchdog) stuck(s *WatchedCall) *abi.Error {
	if len(w.Ring) < RingSize-1 {
		return nil
	}
	different := 1
	for i := range w.Ring {
		e := &w.Ring[i]
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
	return loopError(fmt.Sprintf("the last %d calls were %d different ones with the same results again and again", RingSize, different))
}

func loopError(evidence string) *abi.Error {
	return &abi.Error{Code: abi.WatchdogLoop, Message: evidence,
		Hint: "do something different: change the arguments, use another tool, or give your answer"}
}
