package tools

import (
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// startWeak runs a command without a supervisor.
func startWeak(cmd *exec.Cmd, j job, kill func()) (*flight, error) {
	err := j.makeScratch()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		removeAll(j.Scratch)
		r := make(chan report, 1)
		r <- report{Err: err.Error()}
		return &flight{report: r, stop: func() {}, nudge: func() {}}, nil
	}
	var late, ending atomic.Bool
	stop := sync.OnceFunc(func() {
		ending.Store(true)
		kill()
	})
	timer := time.AfterFunc(j.Timeout, func() {
		late.Store(!ending.Load())
		stop()
	})
	reports := make(chan report, 1)
	go func() {
		_ = cmd.Wait() // ProcessState says it all
		timer.Stop()
		var r report
		r.Late = late.Load()
		r.Ended = !ending.Load()
		r.Exit, r.Signal, r.CPU = outcomeOf(cmd.ProcessState)
		kill() // the rest of the group
		removeAll(j.Scratch)
		reports <- r
	}()
	return &flight{report: reports, stop: stop, nudge: kill}, nil
}
