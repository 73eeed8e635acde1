package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
)

// Files of a data directory, beside those of the journal. The two locks are
// never removed.
const (
	StartLock = "start.lock"  // held by the client that starts a daemon
	LifeLock  = "daemon.lock" // held by a daemon as long as it lives
	LogFile   = "daemon.log"
)

// startTime is the longest start of a daemon. The time covers folding a long journal
// and waiting for an older daemon to end.
const startTime = 60 * time.Second

// start starts a daemon. If several clients try at the same moment, one starts the
// daemon and the others wait.
func (d *Directory) start(ctx context.Context, dir string) (*api.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := makeDirectory(dir); err != nil {
		return nil, err
	}
	s, _, err := d.Settings()
	if err != nil {
		return nil, err
	}
	slow := time.AfterFunc(slowStart, func() { d.Note(startsSlowly(dir)) })
	defer slow.Stop()
	starting, err := Lock(ctx, filepath.Join(dir, StartLock))
	if err != nil {
		return nil, fmt.Errorf("the daemon of %s cannot be started: %w", dir, err)
	}
	defer starting.Close()
	// Another client may have started the daemon while this one waited.
	if c, err := d.dial(ctx, dir); err == nil {
		return c, nil
	}
	if err := d.launch(ctx, dir, starting, s.Secrets(d.Getenv)); err != nil {
		return nil, err
	}
	d.warn(s)
	return d.dial(ctx, dir)
}

// slowStart is the time after which the person hears that the daemon is not ready.
const slowStart = 3 * time.Second

// startsSlowly says what a start waits for.
func startsSlowly(dir string) string {
	s := "the daemon of " + dir + " is not ready yet: it reads the journal, or an older daemon still ends"
	if pid := holder(dir); pid != "" {
		s += " (process " + pid + " holds the directory)"
	}
	return s + "; its log is " + filepath.Join(dir, LogFile)
}

func makeDirectory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return configError("name a writable directory with --data or KERN_DATA", "cannot make the data directory: %v", err)
	}
	return nil
}

// warn shows settings that are valid but probably not intended.
func (d *Directory) warn(s config.Settings) {
	for _, w := range s.Warnings(d.Getenv) {
		d.Note(w)
	}
}

// ready is the one line that a daemon writes to the client that started it.
type ready struct {
	Usage bool       `json:"usage,omitempty"` // Err is a [ConfigError]
	Err   *abi.Error `json:"error"`
}

// readyOf returns the report of a daemon whose start returned err.
func readyOf(err error) ready {
	var c *ConfigError
	var e *abi.Error
	switch {
	case err == nil:
		return ready{}
	case errors.As(err, &e):
		return ready{Err: e}
	case errors.As(err, &c):
		return ready{Usage: true, Err: &abi.Error{Code: abi.StorageBroken, Message: c.Message, Hint: c.Advice}}
	}
	return ready{Err: &abi.Error{Code: abi.StorageBroken, Message: err.Error(), Hint: "kern doctor checks this host and its configuration"}}
}

// launch starts a daemon in a session of its own, and waits until it is ready. The
// daemon keeps no file of this client open but the log, the pipe and the start lock.
// It inherits the start lock, so that no client starts a second daemon if this one
// ends too early. Variables with secrets go through a pipe, because /proc shows the
// environment of a process.
func (d *Directory) launch(ctx context.Context, dir string, starting *os.File, secrets []string) error {
	self, err := executable()
	if err != nil {
		return err
	}
	file, named, err := d.configFile(dir)
	if err != nil {
		return err
	}
	args := []string{"kern", "serve", "--" + DetachedFlag, "--data", dir}
	if named {
		args = append(args, "--config", file)
	}
	log, err := openLog(dir)
	if err != nil {
		return err
	}
	defer log.Close()
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close()
	defer to.Close()
	env, hidden := splitSecrets(os.Environ(), secrets)
	given, err := fillPipe(hidden)
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: self, Dir: dir, Env: env, Stderr: log, ExtraFiles: []*os.File{to, starting, given}, SysProcAttr: ownSession(), Args: args}
	err = cmd.Start()
	_ = given.Close()
	if err != nil {
		return fmt.Errorf("the daemon cannot be started: %w", err)
	}
	go func() { _ = cmd.Wait() }() // else a daemon that ends before this client leaves a zombie
	// Only the daemon holds the pipe now, so the read below ends if the daemon ends.
	_ = to.Close()
	stop := context.AfterFunc(ctx, func() { _ = from.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReader(from).ReadBytes('\n')
	var r ready
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the daemon was started and is not ready: %w%s", ctx.Err(), logTail(dir))
	case err != nil || json.Unmarshal(line, &r) != nil:
		return &startError{"the daemon ended before it was ready" + logTail(dir)}
	case r.Err != nil && r.Usage:
		return configError(r.Err.Hint, "%s", r.Err.Error())
	case r.Err != nil:
		return r.Err
	}
	return nil
}

// A startError is a daemon that died before it was ready. It is an [api.ErrLost], so
// a request that may be made again is.
type startError struct{ message string }

func (e *startError) Error() string { return e.message }

// Is makes the error an [api.ErrLost].
func (e *startError) Is(target error) bool { return target == api.ErrLost }

// splitSecrets splits an environment into the variables without a secret, and those
// that hold one.
func splitSecrets(env, secrets []string) (plain, hidden []string) {
	for _, v := range env {
		if slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(v, s) }) {
			hidden = append(hidden, v)
		} else {
			plain = append(plain, v)
		}
	}
	return plain, hidden
}

// maxSecrets is less than a pipe holds, so that a client need not live until the daemon
// reads them.
const maxSecrets = 60 << 10

// fillPipe returns a pipe from which the variables can be read.
func fillPipe(hidden []string) (*os.File, error) {
	b, err := json.Marshal(hidden)
	if err != nil {
		return nil, err
	}
	if len(b) > maxSecrets {
		return nil, configError("put the keys into files, and name them with key_file in kern.yaml", "the variables with keys of providers have %d bytes, expected at most %d", len(b), maxSecrets)
	}
	given, give, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if _, err = give.Write(b); err == nil {
		err = give.Close()
	}
	return given, err
}

// takeSecrets sets the variables that the client hid.
func takeSecrets(given *os.File) error {
	defer given.Close()
	var hidden []string
	if err := json.NewDecoder(given).Decode(&hidden); err != nil {
		return fmt.Errorf("the client that starts this daemon sent no secrets: %w", err)
	}
	for _, v := range hidden {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops the daemon and waits for its end. It reports false if no daemon runs.
func (d *Directory) Stop(ctx context.Context) (stopped bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	dir, err := d.Path()
	if err != nil {
		return false, err
	}
	c, err := d.Dial(ctx)
	if err != nil {
		return false, nil
	}
	defer c.Close()
	// Hold the start lock, so that no other daemon starts before this one has ended.
	starting, err := Lock(ctx, filepath.Join(dir, StartLock))
	if err != nil {
		return false, err
	}
	defer starting.Close()
	if err := c.Stop(ctx); err != nil && !errors.Is(err, api.ErrLost) {
		return false, err
	}
	life, err := Lock(ctx, filepath.Join(dir, LifeLock)) // waits until the daemon has ended
	if err != nil {
		return false, fmt.Errorf("the daemon was asked to stop and still runs: %w", err)
	}
	return true, life.Close()
}

// maxLog is the size above which the next start renames the daemon's log and begins
// another.
const maxLog = 1 << 20

func openLog(dir string) (*os.File, error) {
	name := filepath.Join(dir, LogFile)
	if i, err := os.Stat(name); err == nil && i.Size() > maxLog {
		if err := os.Rename(name, name+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// logTail quotes the end of the daemon's log for an error message.
func logTail(dir string) string {
	f, err := os.Open(filepath.Join(dir, LogFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	if i, err := f.Stat(); err == nil && i.Size() > 2048 {
		_, _ = f.Seek(-2048, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return "; its log " + f.Name() + " is empty"
	}
	return "; its log " + f.Name() + " ends with:\n" + string(b)
}
