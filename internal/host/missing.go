package host

import (
	"fmt"

	"github.com/kern-run/kern/abi"
)

// MissingTool is a Go tool that a living process may call and that this program
// does not have.
type MissingTool struct {
	Pid   abi.Pid
	Agent string
	Tool  string
}

// MissingToolsError lists the Go tools that Open did not find.
type MissingToolsError []MissingTool

func (e MissingToolsError) Error() string {
	return fmt.Sprintf("process %d of the agent %q may call the Go tool %q, which is missing", e[0].Pid, e[0].Agent, e[0].Tool)
}

// missingTools returns the Go tools that living processes declare and nobody
// supplied. A declared tool without a command is a Go tool.
func (k *Kernel) missingTools(pids []abi.Pid) (missing MissingToolsError) {
	for _, pid := range pids {
		if i, err := k.Processes.Info(pid); err != nil || i.Exit != nil {
			continue // the list holds exited parents of living processes
		}
		v, err := k.View(pid)
		if err != nil {
			continue
		}
		l, err := k.world.Load(v.Spawn.Program)
		if err != nil || l.Agent.Hosted {
			continue // an unreadable agent fails by itself; another program runs the tools of a hosted one
		}
		for _, t := range l.Agent.Tools {
			if len(t.Command) == 0 && k.goTools.find(k.View, pid, t.Name) == nil {
				missing = append(missing, MissingTool{pid, v.Spawn.Name, t.Name})
			}
		}
	}
	return missing
}
