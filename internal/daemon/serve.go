package daemon

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

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/journal"
)

// DetachedFlag marks a kern serve that a client started in the background. When such
// a daemon is ready, it releases the start lock on descriptor 4, and then reports on
// descriptor 3. It stops by itself after idleTime.
const DetachedFlag = "detached"

// idleTime is the time after which a detached daemon stops, if no process lives and
// no client is connected.
const idleTime = 10 * time.Minute

// Options say how a daemon runs.
type Options struct {
	Detached   bool             // a client started it and waits for its report
	Interrupts <-chan os.Signal // each stops the daemon
}

// Serve runs the daemon of the directory until a client, an interrupt or ctx stops
// it.
func (d *Directory) Serve(ctx context.Context, o Options) error {
	report := func(error) {}
	var err error
	if o.Detached {
		err = takeSecrets(os.NewFile(5, "secrets"))
		pipe, starting := os.NewFile(3, "ready"), os.NewFile(4, StartLock)
		syscall.CloseOnExec(4) // else a tool would inherit the start lock and keep it
		report = func(err error) {
			_ = starting.Close()
			_ = json.NewEncoder(pipe).Encode(readyOf(err))
			_ = pipe.Close() // the client may be gone
		}
	}
	var s *server
	if err == nil {
		s, err = d.open(ctx, o)
	}
	report(err)
	if err != nil {
		return err
	}
	if !o.Detached {
		d.Note(fmt.Sprintf("serving %s (process %d); Ctrl-C or kern stop-daemon stops it", s.dir, os.Getpid()))
	}
	return s.run(ctx, o.Interrupts)
}

// A server is a kernel with its control socket and its gateway.
type server struct {
	dir      string
	kernel   *host.Kernel
	listener net.Listener
	http     *http.Server
	gateway  *host.GatewayServer
	cancel   context.CancelFunc // ends the requests that wait
	stop     chan struct{}      // closed by a client or the idle timer to stop the daemon
	stopOnce sync.Once
	life     *os.File      // the lock of the directory
	scratch  string        // the directory for temporary files of tools and sandboxes
	idle     time.Duration // stop after this long without work; 0: never

	mu        sync.Mutex
	conns     map[net.Conn]struct{}
	idleTimer *time.Timer
}

// open locks the data directory, opens its journal and listens. It returns before
// the first request is served.
func (d *Directory) open(ctx context.Context, o Options) (_ *server, err error) {
	s := &server{stop: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	if s.dir, err = d.Path(); err != nil {
		return nil, err
	}
	if err := makeDirectory(s.dir); err != nil {
		return nil, err
	}
	settings, file, err := d.Settings()
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if !o.Detached { // else the client holds the start lock and shows the warnings
		starting, err := d.claim(short, s.dir)
		if err != nil {
			return nil, err
		}
		defer starting.Close()
		d.warn(settings)
	}
	// An older daemon that still shuts down holds this lock.
	if s.life, err = Lock(short, filepath.Join(s.dir, LifeLock)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(s.scratch)
			s.life.Close()
		}
	}()
	// The memory is hidden before Open starts tools, because they run as the same user.
	if err := host.Conceal(); err != nil && runtime.GOOS == "linux" {
		return nil, fmt.Errorf("the daemon cannot hide its memory, which holds the providers' keys, from tools: %w", err)
	}
	if s.scratch, err = makeScratch(s.dir); err != nil {
		return nil, err
	}
	if s.kernel, err = host.Open(host.Config{Dir: s.dir, Getenv: d.Getenv, Settings: settings}); err != nil {
		return nil, explainOpen(s.dir, err)
	}
	if err := s.listen(d, settings, file); err != nil {
		return nil, errors.Join(err, s.kernel.Close())
	}
	if o.Detached {
		s.idle = idleTime
	}
	return s, nil
}

// claim takes the start lock, and refuses if a daemon serves the directory.
func (d *Directory) claim(ctx context.Context, dir string) (*os.File, error) {
	starting, err := Lock(ctx, filepath.Join(dir, StartLock))
	if err != nil {
		return nil, err
	}
	if c, err := api.Dial(ctx, api.SocketOf(dir), d.Version); err == nil {
		c.Close()
		starting.Close()
		return nil, &abi.Error{Code: abi.InvalidCall, Message: "a daemon already serves " + dir, Hint: "stop it with: kern stop-daemon"}
	}
	return starting, nil
}

// makeScratch makes the directory for temporary files, and sets TMPDIR to it. It
// removes the directories that dead daemons of the same data directory left. If the
// host has no writable temporary directory, as in a small container, it uses the
// data directory.
func makeScratch(dir string) (string, error) {
	sum := sha256.Sum256([]byte(dir))
	prefix := fmt.Sprintf("kern-%x-", sum[:3])
	for _, at := range []string{os.TempDir(), dir} {
		old, _ := filepath.Glob(filepath.Join(at, prefix+"*"))
		for _, name := range old {
			_ = os.RemoveAll(name) // files of another user stay, because this fails for them
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

// explainOpen adds advice to the error of a journal that did not open.
func explainOpen(dir string, err error) error {
	var damage *journal.Damage
	switch {
	case errors.As(err, &damage):
		return &abi.Error{Code: abi.StorageBroken, Message: err.Error(), Hint: damage.Hint()}
	case errors.Is(err, journal.ErrLocked):
		return &abi.Error{Code: abi.StorageBroken, Message: err.Error(), Hint: "a program that embeds Kern has it open; wait until that program ends, or use another --data"}
	}
	return fmt.Errorf("the data directory cannot be opened: %w", err)
}

// listen opens the control socket and the gateway.
func (s *server) listen(d *Directory, settings config.Settings, file string) (err error) {
	if s.listener, err = api.Listen(s.dir); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if s.gateway, err = host.OpenGateway(ctx, s.kernel, s.dir, settings.Gateway); err != nil {
		return errors.Join(err, api.Unlisten(s.dir))
	}
	if s.gateway.Moved != "" {
		d.Note(s.gateway.Moved)
	}
	bound := s.gateway.HTTP.ConnState
	s.gateway.HTTP.ConnState = func(c net.Conn, state http.ConnState) {
		bound(c, state)
		s.countConn(c, state)
	}
	control := s.kernel.API()
	control.Keys, control.Stored.Request = s.gateway, s.gateway.StoredRequest
	control.Stop = s.requestStop
	control.About = api.About{Version: d.Version, Pid: os.Getpid(), Data: s.dir, Socket: api.SocketOf(s.dir), Config: file,
		Started: time.Now().UTC(), Settings: settings.View(d.Getenv), Moved: s.gateway.Moved}
	s.http = api.NewHTTPServer(ctx, control.Handler())
	s.http.ConnState = s.countConn
	return nil
}

// requestStop makes run return.
func (s *server) requestStop() { s.stopOnce.Do(func() { close(s.stop) }) }

// countConn updates the set of open connections, and restarts the idle timer.
func (s *server) countConn(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	}
	if s.idleTimer != nil {
		s.idleTimer.Reset(s.idle)
	}
}

// stopIfIdle stops the daemon if no client is connected and no process lives. Else
// it restarts the idle timer.
func (s *server) stopIfIdle() {
	s.mu.Lock()
	busy := len(s.conns) > 0
	s.mu.Unlock()
	if living, _ := s.kernel.Recent(0); !busy && len(living) == 0 {
		s.requestStop()
		return
	}
	s.mu.Lock()
	s.idleTimer.Reset(s.idle)
	s.mu.Unlock()
}

// ShutdownTime is the time that a stopping daemon gives to running requests.
const ShutdownTime = 10 * time.Second

// run serves until an interrupt or a client stops the daemon.
func (s *server) run(ctx context.Context, interrupts <-chan os.Signal) error {
	defer s.life.Close()
	if s.idle > 0 {
		s.mu.Lock()
		s.idleTimer = time.AfterFunc(s.idle, s.stopIfIdle)
		s.mu.Unlock()
		defer s.idleTimer.Stop()
	}
	s.gateway.Serve()
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	var err error
	select {
	case <-interrupts:
	case <-s.stop:
	case <-ctx.Done():
	case err = <-failed:
	}
	// The socket goes first, so that a new client starts the next daemon, which waits
	// for the life lock.
	err = errors.Join(err, api.Unlisten(s.dir))
	s.kernel.Gateway.Rest()
	s.cancel()
	short, cancel := context.WithTimeout(context.Background(), ShutdownTime)
	defer cancel()
	for _, h := range []*http.Server{s.http, s.gateway.HTTP} {
		if h.Shutdown(short) != nil {
			_ = h.Close()
		}
	}
	return errors.Join(err, api.UnlistenAt(s.dir, gateway.SocketFile), s.kernel.Close(), os.RemoveAll(s.scratch))
}
