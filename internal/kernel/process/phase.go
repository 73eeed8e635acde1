package process

import "github.com/kern-run/kern/abi"

// Event changes the phase of a process.
type Event uint8

// The events.
const (
	EventCall Event = iota // a call was admitted
	EventRun               // a call runs
	EventWait              // all open calls wait
	EventIdle              // no call is open
	EventStop              // signal stop
	EventCont              // signal cont
	EventExit              // the terminal record
)

// moves is every transition. An event without one leaves the phase as it is.
// Running and waiting are not in the journal: they follow from the open calls of a
// process that is ready.
var moves = map[abi.State]map[Event]abi.State{
	abi.New:     {EventCall: abi.Ready, EventRun: abi.Running, EventWait: abi.Waiting, EventStop: abi.Paused, EventExit: abi.Exited},
	abi.Ready:   {EventRun: abi.Running, EventWait: abi.Waiting, EventStop: abi.Paused, EventExit: abi.Exited},
	abi.Running: {EventWait: abi.Waiting, EventIdle: abi.Ready},
	abi.Waiting: {EventRun: abi.Running, EventIdle: abi.Ready},
	abi.Paused:  {EventCont: abi.Ready, EventExit: abi.Exited},
	abi.Exited:  {},
}

// NextPhase returns the phase after an event.
func NextPhase(s abi.State, e Event) abi.State {
	if to, ok := moves[s][e]; ok {
		return to
	}
	return s
}
