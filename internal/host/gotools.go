package host

import (
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/tools"
)

// goTools are the tools that are functions of this program.
type goTools struct {
	mu      sync.Mutex
	byPid   map[abi.Pid]map[string]*tools.Tool
	byAgent map[string]map[string]*tools.Tool // for processes of earlier runs
}

// put sets the tools of a process; an empty list removes them.
func (g *goTools) put(pid abi.Pid, list []*tools.Tool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(list) == 0 {
		delete(g.byPid, pid)
		return
	}
	g.byPid[pid] = byName(list)
}

// find finds a tool by name. It looks at the process and then at each process above it:
// first at the tools of its spawn, then at those of its agent.
func (g *goTools) find(view func(abi.Pid) (kernel.View, error), pid abi.Pid, name string) *tools.Tool {
	for pid != 0 {
		g.mu.Lock()
		t := g.byPid[pid][name]
		g.mu.Unlock()
		if t != nil {
			return t
		}
		v, err := view(pid)
		if err != nil {
			return nil
		}
		g.mu.Lock()
		t = g.byAgent[v.Spawn.Name][name]
		g.mu.Unlock()
		if t != nil {
			return t
		}
		pid = v.Spawn.Parent
	}
	return nil
}

func byName(list []*tools.Tool) map[string]*tools.Tool {
	m := make(map[string]*tools.Tool, len(list))
	for _, t := range list {
		m[t.Name] = t
	}
	return m
}
