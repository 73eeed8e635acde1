// Package life is the states of a process, and what moves it from one to
// another: one table.
package life

import "github.com/kern-run/kern/abi"

// An Event is what moves a process from state to state.
type Event uint8

// The events.
const (
	Call Event = iota // a call was admitted
	Run               // a call runs
	Wait              // every open call waits
	Idle              // no call is open
	Stop              // signal stop
	Cont              // signal cont
	Exit              // the terminal record
)

// moves is every transition there is. What is not here does not happen: the
// event leaves the state as it is. Running and waiting are not in the journal;
// they are what the open calls of a ready process make of it.
var moves = map[abi.State]map[Event]abi.State{
	abi.New:     {Call: abi.Ready, Run: abi.Running, Wait: abi.Waiting, Stop: abi.Paused, Exit: abi.Exited},
	abi.Ready:   {Run: abi.Running, Wait: abi.Waiting, Stop: abi.Paused, Exit: abi.Exited},
	abi.Running: {Wait: abi.Waiting, Idle: abi.Ready},
	abi.Waiting: {Run: abi.Running, Idle: abi.Ready},
	abi.Paused:  {Cont: abi.Ready, Exit: abi.Exited},
	abi.Exited:  {},
}

// Move is the state after an event.
func Move(s abi.State, e Event) abi.State {
	if to, ok := moves[s][e]; ok {
		return to
	}
	return s
}
