package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/journal"
)

// detachedFlag tells a daemon that a client started it: it says on descriptor
// 3 when it is ready, and lets go of the lock on 4 then. It ends by itself when
// it has had nothing to do.
const detachedFlag = "detached"

// idleTime is how long a daemon that was started on demand stays when no
// process lives and nobody asks anything.
const idleTime = 10 * time.Minute

func serveCommand(a *app) *cobra.Command {
	detached := false
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon of the data directory in the foreground",
		Long: `Run the daemon of the data directory in the foreground.

Any command that needs the daemon starts it in the background; serve is for
those who want to see it, or to let a service manager look after it.`,
		Annotations: map[string]string{ownInterrupts: "end"},
		Args:        cobra.NoArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return serveData(a, cmd.Context(), detached) },
	}
	cmd.Flags().BoolVar(&detached, detachedFlag, false, "")
	_ = cmd.Flags().MarkHidden(detachedFlag)
	return cmd
}

// serveData is the daemon.
func serveData(a *app, ctx context.Context, detached bool) error {
	say := func(error) {}
	if detached {
		pipe, starting := os.NewFile(3, "ready"), os.NewFile(4, startLock)
		syscall.CloseOnExec(4) // tools outlive the start
		say = func(err error) {
			_ = starting.Close()
			_ = json.NewEncoder(pipe).Encode(readyOf(err))
			_ = pipe.Close() // whoever started us may have gone
		}
	}
	d, err := openDaemon(a, ctx, detached)
	if err != nil {
		say(err)
		return err
	}
	say(nil)
	if !detached {
		a.note("kern: serving %s (process %d); end it with Ctrl-C or kern stop-daemon", d.dir, os.Getpid())
	}
	return d.run(ctx, a.interrupts)
}

func readyOf(err error) ready {
	if err == nil {
		return ready{}
	}
	var u *usageError
	message, hint := explain(err)
	e := &abi.Error{Code: abi.StorageBroken, Message: message, Hint: hint}
	var k *abi.Error
	if errors.As(err, &k) {
		e = k
	}
	return ready{Usage: errors.As(err, &u), Err: e}
}

// A daemon is a kernel and its control socket.
type daemon struct {
	dir      string
	kernel   *host.Kernel
	listener net.Listener
	http     *http.Server
	gate     *gate
	cancel   context.CancelFunc // ends what waits in requests
	stop     chan struct{}      // closed when somebody asked
	stopOnce sync.Once
	life     *os.File      // the lock of the directory
	scratch  string        // temporary files, in tools' and sandboxes' care
	idle     time.Duration // 0: never ends by itself

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	quiet *time.Timer
}

// open takes the data directory and begins to listen.
func openDaemon(a *app, ctx context.Context, detached bool) (_ *daemon, err error) {
	d := &daemon{stop: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	if d.dir, err = a.dataDir(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, usage("name a directory that can be written with --data or KERN_DATA", "the data directory cannot be made: %v", err)
	}
	settings, file, err := a.settings(d.dir)
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if !detached { // else it is held already
		starting, err := lock(short, filepath.Join(d.dir, startLock))
		if err != nil {
			return nil, err
		}
		defer starting.Close()
		if c, err := api.Dial(short, api.SocketOf(d.dir), version); err == nil {
			c.Close()
			return nil, &abi.Error{Code: abi.InvalidCall, Message: "a daemon serves " + d.dir + " already", Hint: "end it with: kern stop-daemon"}
		}
	}
	if !detached { // else who starts us says so
		warn(a, settings)
	}
	if d.life, err = lock(short, filepath.Join(d.dir, lifeLock)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(d.scratch)
			d.life.Close()
		}
	}()
	if err := host.Conceal(); err != nil && runtime.GOOS == "linux" {
		return nil, fmt.Errorf("the daemon holds the providers' keys, and cannot hide its memory from tools: %w", err)
	}
	self, err := executable()
	if err != nil {
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if d.scratch, err = scratch(d.dir); err != nil {
		return nil, err
	}
	if d.kernel, err = host.Open(host.Config{Dir: d.dir, Getenv: a.getenv, Settings: settings, Supervisor: []string{self, superviseVerb}}); err != nil {
		return nil, opened(d.dir, err)
	}
	if err := d.listen(a, settings, file); err != nil {
		return nil, errors.Join(err, d.kernel.Close())
	}
	if detached {
		d.idle = idleTime
	}
	return d, nil
}

// scratch makes the place of a daemon's temporary files, and removes what dead
// daemons of the same data directory left of theirs. A host that has no other place
// for them, as a small container, has the data directory.
func scratch(dir string) (string, error) {
	sum := sha256.Sum256([]byte(dir))
	prefix := fmt.Sprintf("kern-%x-", sum[:3])
	for _, at := range []string{os.TempDir(), dir} {
		old, _ := filepath.Glob(filepath.Join(at, prefix+"*"))
		for _, name := range old {
			_ = os.RemoveAll(name) // another user's is not ours to remove
		}
	}
	name, err := os.MkdirTemp("", prefix)
	if err != nil {
		name, err = os.MkdirTemp(dir, prefix)
	}
	if err != nil {
		return "", err
	}
	return name, os.Setenv("TMPDIR", name)
}

// opened says what to do about a journal that did not open.
func opened(dir string, err error) error {
	var damage *journal.Damage
	switch {
	case errors.As(err, &damage):
		return &abi.Error{Code: abi.StorageBroken, Message: err.Error(),
			Hint: "nothing was changed; bring back a copy of " + dir + ", or begin with another data directory"}
	case errors.Is(err, journal.ErrLocked):
		return &abi.Error{Code: abi.StorageBroken, Message: err.Error(), Hint: "a program that opened it as a library has it; wait for its end, or use another --data"}
	}
	return fmt.Errorf("the data directory cannot be opened: %w", err)
}

func (d *daemon) listen(a *app, settings config.Settings, file string) (err error) {
	if d.listener, err = api.Listen(d.dir); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	if d.gate, err = openGate(d.kernel, d.dir, settings.Gateway, ctx); err != nil {
		return errors.Join(err, api.Unlisten(d.dir))
	}
	d.gate.http.ConnState = d.seen
	control := served(d.kernel)
	control.Keys, control.Request = d.gate, d.gate.request
	control.Stop = d.end
	control.About = api.About{Version: version, Pid: os.Getpid(), Data: d.dir, Socket: api.SocketOf(d.dir), Config: file,
		Started: time.Now().UTC(), Settings: settings.View(a.getenv)}
	d.http = api.NewServer(ctx, control.Handler())
	d.http.ConnState = d.seen
	return nil
}

// served is a kernel as the control API serves it.
func served(k *host.Kernel) *api.API {
	return &api.API{
		Kernel: k, Views: k, Files: spaces{k},
		Spawn: func(ctx context.Context, r api.Run) (abi.Pid, error) { return k.SpawnSpec(ctx, host.Spec(r)) },
		Fork: func(ctx context.Context, pid abi.Pid, f api.Fork) (any, error) {
			return k.Fork(ctx, pid, host.Fork(f))
		},
		Wait:    func(ctx context.Context, pid abi.Pid) error { _, err := k.Kernel.Wait(ctx, pid); return err },
		Result:  func(pid abi.Pid) (any, error) { return k.Result(pid) },
		Replay:  replay(k),
		Verify:  k.Verify,
		Records: k.Records,
		Traffic: k.Traffic,
	}
}

// end asks the daemon to end.
func (d *daemon) end() { d.stopOnce.Do(func() { close(d.stop) }) }

// seen keeps count of connections, so that an idle daemon knows that it is.
func (d *daemon) seen(c net.Conn, s http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s {
	case http.StateNew:
		d.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(d.conns, c)
	}
	if d.quiet != nil {
		d.quiet.Reset(d.idle)
	}
}

// nothingToDo ends the daemon if nobody is connected and no process lives.
func (d *daemon) nothingToDo() {
	d.mu.Lock()
	busy := len(d.conns) > 0
	d.mu.Unlock()
	if living, _ := d.kernel.Recent(0); !busy && len(living) == 0 {
		d.end()
		return
	}
	d.mu.Lock()
	d.quiet.Reset(d.idle)
	d.mu.Unlock()
}

// endTime is how long requests that are being answered may hold up the end.
const endTime = 10 * time.Second

// run serves until a signal comes or somebody asks it to stop.
func (d *daemon) run(ctx context.Context, interrupts <-chan os.Signal) error {
	defer d.life.Close()
	if d.idle > 0 {
		d.mu.Lock()
		d.quiet = time.AfterFunc(d.idle, d.nothingToDo)
		d.mu.Unlock()
		defer d.quiet.Stop()
	}
	d.gate.serve()
	failed := make(chan error, 1)
	go func() { failed <- d.http.Serve(d.listener) }()
	var err error
	select {
	case <-interrupts:
	case <-d.stop:
	case <-ctx.Done():
	case err = <-failed:
	}
	err = errors.Join(err, api.Unlisten(d.dir)) // nobody finds us any more
	d.gate.Rest()
	d.cancel()
	short, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	for _, s := range []*http.Server{d.http, d.gate.http} {
		if s.Shutdown(short) != nil {
			_ = s.Close()
		}
	}
	return errors.Join(err, api.UnlistenAt(d.dir, gateway.SocketFile), d.kernel.Close(), os.RemoveAll(d.scratch))
}

func stopDaemonCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop-daemon",
		Short: "End the daemon; processes go on when it is started again",
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), startTime)
			defer cancel()
			c, dir, err := a.running(ctx)
			if dir == "" {
				return err
			}
			if err != nil {
				a.note("kern: no daemon serves %s", dir)
				return nil
			}
			defer c.Close()
			starting, err := lock(ctx, filepath.Join(dir, startLock)) // or its heir may be there before we have seen its end
			if err != nil {
				return err
			}
			defer starting.Close()
			if err := c.Stop(ctx); err != nil && !errors.Is(err, api.ErrLost) {
				return err
			}
			life, err := lock(ctx, filepath.Join(dir, lifeLock)) // its end gives it free
			if err != nil {
				return fmt.Errorf("the daemon was asked to end and has not: %w", err)
			}
			return life.Close()
		},
	}
}
