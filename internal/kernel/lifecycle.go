package kernel

import "github.com/kern-run/kern/abi"

// event is what moves a process from state to state.
type event uint8

const (
	evCall event = iota // a call was admitted
	evRun               // a call runs
	evWait              // every open call waits
	evIdle              // no call is open
	evStop              // signal stop
	evCont              // signal cont
	evExit              // the terminal record
)

// moves is every transition there is. What is not here does not happen: the
// event leaves the state as it is. Running and waiting are not in the journal;
// they are what the open calls of a ready process make of it, see [proc.state].
var moves = map[abi.State]map[event]abi.State{
	abi.New:     {evCall: abi.Ready, evRun: abi.Running, evWait: abi.Waiting, evStop: abi.Paused, evExit: abi.Exited},
	abi.Ready:   {evRun: abi.Running, evWait: abi.Waiting, evStop: abi.Paused, evExit: abi.Exited},
	abi.Running: {evWait: abi.Waiting, evIdle: abi.Ready},
	abi.Waiting: {evRun: abi.Running, evIdle: abi.Ready},
	abi.Paused:  {evCont: abi.Ready, evExit: abi.Exited},
	abi.Exited:  {},
}

func move(s abi.State, e event) abi.State {
	if to, ok := moves[s][e]; ok {
		return to
	}
	return s
}

// state is what people see of p: its journalled state, overlaid with what its
// open calls are doing, and what they wait for.
func (p *proc) state() (s abi.State, waits []string) {
	s = p.Phase
	running := 0
	for _, o := range p.ops {
		if o.waits != "" {
			waits = append(waits, o.waits)
		} else {
			running++
		}
	}
	switch {
	case running > 0:
		return move(s, evRun), waits
	case len(p.ops) > 0:
		return move(s, evWait), waits
	}
	return move(s, evIdle), nil
}
