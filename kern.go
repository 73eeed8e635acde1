package kern

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/tools"
	"github.com/kern-run/kern/model"
)

// Config describes an embedded kernel. Only Dir is needed.
type Config struct {
	Dir string // the data directory; one kernel or daemon at a time

	// Agents supply their Go tools to processes of earlier runs, by the agents'
	// names. Open fails with a [MissingToolsError] if a living process may call a
	// Go tool that none of them has, unless IgnoreMissingTools is set: then such a
	// call fails with the code TOOL_GONE.
	Agents             []Agent
	IgnoreMissingTools bool

	Models   map[string]model.Model // models of this program, by the name that agents use
	Settings string                 // a file like kern.yaml, with providers, prices and limits; empty: none
	Getenv   func(string) string    // the environment with the providers' keys; nil: os.Getenv
	Gateway  string                 // the address of the gateway for programs with a key, such as 127.0.0.1:8100; empty: no gateway
	Conceal  bool                   // hide the memory and the environment of this process, which hold keys, from other programs of the user
}

// A Kernel runs agents over one data directory: in this program after [Open], in
// the daemon after [Dial]. It is safe for concurrent use.
type Kernel struct {
	client *api.Client
	close  func(context.Context) error

	embedded *host.Kernel // nil after Dial
	gateway  bool         // there is one
}

// Main runs the helper processes of command tools and of the sandbox jail, which
// are this program started again. Call it first in main, and in TestMain: it does
// not return in a helper process, and returns at once in any other. Without it
// command tools and jails are refused.
func Main() { host.Child() }

// MissingToolsError lists Go tools that living processes may call and that Open was
// not given.
type MissingToolsError struct{ Tools []MissingTool }

// A MissingTool is a Go tool of a living process.
type MissingTool struct {
	Pid   abi.Pid
	Agent string
	Tool  string
}

func (e *MissingToolsError) Error() string {
	t := e.Tools[0]
	text := fmt.Sprintf("process %d of the agent %q may call the Go tool %q, which this program did not supply", t.Pid, t.Agent, t.Tool)
	if n := len(e.Tools) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text + ": add the agent to Config.Agents"
}

// Open opens the kernel of a data directory in this program, and continues the
// processes that have not exited.
func Open(ctx context.Context, c Config) (*Kernel, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	h := host.Config{Dir: c.Dir, Getenv: c.Getenv, Models: c.Models, RequireTools: !c.IgnoreMissingTools}
	if c.Settings != "" {
		if _, err := os.Stat(c.Settings); err != nil {
			return nil, err
		}
		var err error
		if h.Settings, err = config.ReadSettings(c.Settings); err != nil {
			return nil, err
		}
	}
	h.Tools = make(map[string][]*tools.Tool)
	for _, a := range c.Agents {
		var err error
		if h.Tools[a.Name], err = a.goTools(); err != nil {
			return nil, err
		}
	}
	if c.Conceal {
		if err := host.Conceal(); err != nil {
			return nil, fmt.Errorf("the memory of this process cannot be hidden: %w", err)
		}
	}
	opened, err := host.Open(h)
	if missing := (host.MissingToolsError)(nil); errors.As(err, &missing) {
		e := new(MissingToolsError)
		for _, t := range missing {
			e.Tools = append(e.Tools, MissingTool(t))
		}
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return serve(opened, c)
}

// serve reaches an embedded kernel through its control API, so that it behaves as
// the one behind Dial.
func serve(k *host.Kernel, c Config) (*Kernel, error) {
	ctx, cancel := context.WithCancel(context.Background())
	server := k.API()
	server.About = api.About{Version: "embedded", Pid: os.Getpid(), Data: c.Dir, Started: time.Now().UTC()}
	server.Stop = func() {}
	end := func() error { return nil }
	if c.Gateway != "" {
		g, err := host.OpenGateway(ctx, k, c.Dir, config.Gateway{Listen: c.Gateway})
		if err != nil {
			cancel()
			return nil, errors.Join(err, k.Close())
		}
		g.Serve()
		server.Keys, server.Stored.Request = g, g.StoredRequest
		end = func() error { return errors.Join(g.HTTP.Close(), g.Close()) }
	}
	local := api.ServeLocal(ctx, server)
	return &Kernel{client: local.Client, embedded: k, gateway: c.Gateway != "", close: func(context.Context) error {
		cancel()
		local.Close()
		_ = end() // its listeners may be closed already
		return k.Close()
	}}, nil
}

// Dial connects to the daemon that serves a data directory. The command kern
// starts one; see kern serve.
func Dial(ctx context.Context, dir string) (*Kernel, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// The daemon says which version it is before anything else is asked of it.
	first, err := api.Dial(ctx, api.SocketOf(dir), "")
	if err != nil {
		return nil, &abi.Error{Code: abi.DaemonGone, Message: "no daemon serves " + dir + ": " + err.Error(), Hint: "start one: kern serve --data " + dir}
	}
	about, err := first.About(ctx)
	first.Close()
	if err != nil {
		return nil, err
	}
	c, err := api.Dial(ctx, api.SocketOf(dir), about.Version)
	if err != nil {
		return nil, err
	}
	return &Kernel{client: c, gateway: true, close: func(context.Context) error { c.Close(); return nil }}, nil
}

// Close disconnects from a daemon, or closes an embedded kernel: it stops what runs
// and releases the data directory. Processes that have not exited continue with the
// next Open. Close waits for the journal until ctx ends.
func (k *Kernel) Close(ctx context.Context) error { return k.close(ctx) }
