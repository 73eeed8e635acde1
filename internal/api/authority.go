package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/program/lineage"
)

// A right says what a held program may do at an endpoint. A held program is a program
// under kern exec, or a tool, with everything that it starts. It may read everything.
// Its other requests must not widen a limit, and must concern its own tree. A new
// endpoint is for people until it stands in rights.
type right byte

const (
	forPeople right = iota
	inTree          // the process of the path is the process of the program, or below it
	asChild         // the handler checks that the new process is below it
	harmless        // it changes nothing
)

var rights = map[string]right{
	"POST /v1/processes":              asChild,
	"POST /v1/keys":                   asChild,
	"PATCH /v1/processes/{pid}":       inTree, // and the handler only narrows
	"POST /v1/processes/{pid}/signal": inTree, // and the handler refuses cont
	"POST /v1/processes/{pid}/undo":   inTree,
	"POST /v1/keys/{pid}/exit":        inTree,
	"GET /v1/keys/{pid}/hold":         inTree,
	"POST /v1/processes/{pid}/replay": harmless,
	"POST /v1/processes/{pid}/verify": harmless,
	"POST /v1/workspaces/verify":      harmless,
}

// purposes say in words what a request for people is about.
var purposes = map[string]string{
	"POST /v1/daemon/stop":            "stop the daemon",
	"POST /v1/remove":                 "remove processes",
	"PUT /v1/accounts/{name}":         "change an account",
	"POST /v1/processes/{pid}/decide": "answer a question to a person",
	"POST /v1/processes/{pid}/settle": "settle a call in doubt",
	"POST /v1/processes/{pid}/fork":   "fork a process, because a fork has limits of its own",

	"POST /v1/processes/{pid}/continue": "continue a process, because the new one has limits of its own",
}

// A holding is what binds the client of a request.
type holding struct {
	views Views
	held  bool
	tool  bool    // the program is a tool of this daemon
	pid   abi.Pid // the process of the program; 0: a tool, or not known
}

type holdingKey struct{}

// holdingOf returns what binds the client of a request, for a handler.
func holdingOf(ctx context.Context) holding {
	h, _ := ctx.Value(holdingKey{}).(holding)
	return h
}

// An authority decides what a client may do.
type authority struct {
	views   Views
	holders holders
}

// authorize refuses a request that a held program may not make.
func (a *authority) authorize(pattern string, r *http.Request) (*http.Request, error) {
	need := rights[pattern]
	if need == harmless || need == forPeople && strings.HasPrefix(pattern, "GET ") {
		return r, nil
	}
	h, err := a.holders.find(r.Context())
	if err != nil || !h.held {
		return r, err
	}
	h.views = a.views
	if need == forPeople {
		what := purposes[pattern]
		if what == "" {
			what = "make the request " + pattern
		}
		return r, h.refuse(what)
	}
	if need == inTree {
		pid, err := pidOf(r)
		if err != nil {
			return r, err
		}
		if err := h.checkBelow(pid, fmt.Sprintf("change process %d, which is not below it", pid)); err != nil {
			return r, err
		}
	}
	return r.WithContext(context.WithValue(r.Context(), holdingKey{}, h)), nil
}

// refuse returns the error for a request that would widen what a program may do.
func (h holding) refuse(what string) error {
	who := "a tool"
	if h.pid != 0 {
		who = fmt.Sprintf("the program of process %d", h.pid)
	}
	return &abi.Error{Code: abi.NotGranted, Message: who + " may not " + what,
		Hint: "a program cannot change what limits it; do this in a terminal outside of kern exec"}
}

// checkBelow refuses unless pid is the process of the program, or below it.
func (h holding) checkBelow(pid abi.Pid, what string) error {
	for at := pid; h.pid != 0 && at != 0; {
		if at == h.pid {
			return nil
		}
		i, err := h.views.Info(at)
		if err != nil {
			return err
		}
		at = i.Parent
	}
	return h.refuse(what)
}

// checkParent refuses a new process of a held program that its limits do not bind.
func checkParent(ctx context.Context, parent abi.Pid) error {
	h := holdingOf(ctx)
	if !h.held {
		return nil
	}
	what := fmt.Sprintf("start a process outside of its limits: expected the parent %d, or a process below it", h.pid)
	if h.tool {
		what = "start a process, because no limit would bind it"
	} else if parent == 0 {
		what += "; KERN_PID and KERN_URL in its environment name it"
	}
	return h.checkBelow(parent, what)
}

// checkChange refuses a change that gives a held program more. A smaller limit is none.
func checkChange(ctx context.Context, pid abi.Pid, e *abi.Edit) error {
	h := holdingOf(ctx)
	if !h.held {
		return nil
	}
	e.Narrow = true
	if e.Priority != nil {
		i, err := h.views.Info(pid)
		if err != nil {
			return err
		}
		if *e.Priority < i.Priority {
			return h.refuse(fmt.Sprintf("make process %d more urgent", pid))
		}
	}
	return nil
}

// explain returns the error of a change. To a held program it says that its limits only
// get smaller.
func (h holding) explain(err error) error {
	if e := asError(err); h.held && e.Code == abi.InvalidArguments {
		return h.refuse("raise or remove a limit: " + e.Message)
	}
	return err
}

// holders knows which processes of the system hold which processes of Kern. The
// programs of a holder are below it.
type holders struct {
	mu      sync.Mutex
	pids    map[lineage.Process]abi.Pid
	changed chan struct{} // closed when a holder comes
}

// add notes that the client of a request holds a process.
func (hs *holders) add(ctx context.Context, pid abi.Pid) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	all, err := lineage.Of(c)
	if err != nil || len(all) == 0 {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for p := range hs.pids {
		if !p.Alive() {
			delete(hs.pids, p)
		}
	}
	if hs.pids == nil {
		hs.pids = make(map[lineage.Process]abi.Pid)
	}
	hs.pids[all[0].Process] = pid
	if hs.changed != nil {
		close(hs.changed)
		hs.changed = nil
	}
}

// returnTime is how long a holder may take to come back after a restart.
const returnTime = 5 * time.Second

// find returns what binds the client of a request. If its program is held by a holder
// that has not come back since this daemon started, find waits for the holder.
func (hs *holders) find(ctx context.Context) (holding, error) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	if c == nil {
		return holding{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, returnTime)
	defer cancel()
	for {
		client, err := lineage.Of(c)
		var own []lineage.Ancestor
		if err == nil && client != nil {
			own, err = lineage.Own()
		}
		if err != nil {
			return holding{}, &abi.Error{Code: abi.NotGranted, Message: "Kern cannot find out which program makes this request: " + err.Error()}
		}
		hs.mu.Lock()
		h := hs.match(client, own)
		if hs.changed == nil {
			hs.changed = make(chan struct{})
		}
		changed := hs.changed
		hs.mu.Unlock()
		if !h.held || h.tool || h.pid != 0 {
			return h, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return h, nil
		}
	}
}

// match finds what binds a client, from its ancestors and those of this daemon. A
// daemon that a program started is not held by that program's other daemon.
func (hs *holders) match(client, own []lineage.Ancestor) (h holding) {
	above := make(map[lineage.Process]bool)
	for _, a := range own {
		above[a.Process] = true
	}
	supervised := false
	for _, a := range client {
		switch {
		case a.Supervisor:
			supervised = true
			h.held = h.held || !above[a.Process]
		case supervised && hs.pids[a.Process] != 0:
			return holding{held: true, pid: hs.pids[a.Process]}
		case supervised && a.Process == own[0].Process:
			return holding{held: true, tool: true}
		}
	}
	return h
}
