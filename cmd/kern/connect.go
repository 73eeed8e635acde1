package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
)

// Files of a data directory, beside those of the journal. Who starts a daemon
// holds startLock, a daemon holds lifeLock as long as it lives; both are never
// removed.
const (
	startLock = "start.lock"
	lifeLock  = "daemon.lock"
	logFile   = "daemon.log"
)

// startTime is how long a daemon may take to start. One that goes on with a
// long journal needs a while; so does one that waits for another to end.
const startTime = 60 * time.Second

// dataDir is the data directory. It is not made.
func (a *app) dataDir() (string, error) {
	dir := a.data
	if dir == "" {
		dir = a.getenv("KERN_DATA")
	}
	if dir == "" {
		state, err := stateHome(a.getenv)
		if err != nil {
			return "", usage("say where with --data DIR, or in KERN_DATA", "no data directory: %v", err)
		}
		dir = filepath.Join(state, "kern")
	}
	return filepath.Abs(dir)
}

// settingsFile is the configuration file of a data directory, and whether it
// was asked for by name.
func (a *app) settingsFile(dir string) (file string, named bool, err error) {
	if file = a.config; file == "" {
		file = a.getenv("KERN_CONFIG")
	}
	if file != "" {
		file, err = filepath.Abs(file)
		return file, true, err
	}
	file = filepath.Join(dir, "kern.yaml")
	if _, err := os.Stat(file); err == nil {
		return file, false, nil
	}
	if home, err := configHome(a.getenv); err == nil {
		other := filepath.Join(home, "kern", "kern.yaml")
		if _, err := os.Stat(other); err == nil {
			return other, false, nil
		}
	}
	return file, false, nil
}

// settings reads the configuration file.
func (a *app) settings(dir string) (config.Settings, string, error) {
	file, named, err := a.settingsFile(dir)
	if err != nil {
		return config.Settings{}, file, err
	}
	if named {
		if _, err := os.Stat(file); err != nil {
			return config.Settings{}, file, usage("name a file that is there with --config or KERN_CONFIG, or none", "%v", err)
		}
	}
	s, err := config.ReadSettings(file)
	if errors.Is(err, fs.ErrPermission) {
		return s, file, usage("name one of your own with --data or KERN_DATA", "the data directory, or its configuration, is somebody else's: %v", err)
	}
	if err != nil {
		return s, file, usage("the keys of kern.yaml are providers, gateway, workspaces, prices and yield", "%v", err)
	}
	return s, file, nil
}

// connect finds the daemon of the data directory, and starts it when there is
// none.
func (a *app) connect(ctx context.Context) (*api.Client, error) {
	dir, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	c, err := api.Dial(ctx, api.SocketOf(dir), version)
	if err != nil {
		if c, err = a.start(ctx, dir); err != nil {
			return nil, err
		}
	}
	return c, a.sameConfig(ctx, c, dir)
}

// withDaemon runs f with a client of the daemon.
func withDaemon(a *app, ctx context.Context, f func(c *api.Client) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// report asks the daemon something, and prints the answer as JSON or shows it.
func report[T any](a *app, ctx context.Context, asJSON bool, what func(c *api.Client) (T, error), show func(*app, T) error) error {
	return withDaemon(a, ctx, func(c *api.Client) error {
		v, err := what(c)
		switch {
		case err != nil:
			return err
		case asJSON:
			return a.json(v)
		}
		return show(a, v)
	})
}

// sameConfig refuses a daemon that runs with another configuration than the
// one that was asked for by name.
func (a *app) sameConfig(ctx context.Context, c *api.Client, dir string) error {
	file, named, err := a.settingsFile(dir)
	if err != nil || !named {
		return err
	}
	about, err := c.About(ctx)
	if err == nil && about.Config != file {
		err = usage("end it first, with: kern stop-daemon", "the daemon of %s runs with the configuration %s, not with %s", dir, about.Config, file)
	}
	return err
}

// outdated says what the daemon was told otherwise, when it started, than it
// would be now: the configuration, or the key of a provider that is to be used.
func outdated(a *app, ctx context.Context, c *api.Client, provider string) string {
	const old = "; kern stop-daemon ends it, and the next command starts it anew"
	about, err := c.About(ctx)
	if err != nil {
		return ""
	}
	s, file, err := a.settings(about.Data)
	if err != nil {
		return fmt.Sprintf("the daemon runs with what it read when it started, and now %v%s", err, old)
	}
	var theirs config.SettingsView
	if b, err := json.Marshal(about.Settings); err != nil || json.Unmarshal(b, &theirs) != nil {
		return ""
	}
	mine := s.View(a.getenv)
	if mine.Sum != theirs.Sum {
		return file + " is not what the daemon read when it started" + old
	}
	if key, ok := strings.CutPrefix(mine.Providers[provider].Key, "from "); ok && strings.HasPrefix(theirs.Providers[provider].Key, "not there") {
		return key + " is here, and was not where the daemon started" + old
	}
	return ""
}

// noteOutdated prints what outdated says.
func noteOutdated(a *app, ctx context.Context, c *api.Client, provider string) {
	if s := outdated(a, ctx, c, provider); s != "" {
		a.note("kern: %s", clean(s))
	}
}

// start starts the daemon. Of several that try at the same time one starts it
// and the others wait for that.
func (a *app) start(ctx context.Context, dir string) (*api.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, usage("name a directory that can be written with --data or KERN_DATA", "the data directory cannot be made: %v", err)
	}
	s, _, err := a.settings(dir)
	if err != nil {
		return nil, err
	}
	starting, err := lock(ctx, filepath.Join(dir, startLock))
	if err != nil {
		return nil, fmt.Errorf("the daemon of %s cannot be started: %w", dir, err)
	}
	defer starting.Close()
	if c, err := api.Dial(ctx, api.SocketOf(dir), version); err == nil {
		return c, nil
	}
	if err := a.launch(ctx, dir, starting); err != nil {
		return nil, err
	}
	warn(a, s)
	return api.Dial(ctx, api.SocketOf(dir), version)
}

// warn says what may not be meant in a configuration, where a daemon starts.
func warn(a *app, s config.Settings) {
	for _, w := range s.Warnings(a.getenv) {
		a.note("kern: %s", clean(w))
	}
}

// ready is the one line that a daemon says to who started it.
type ready struct {
	Usage bool       `json:"usage,omitempty"` // the error is in what was asked
	Err   *abi.Error `json:"error"`
}

// launch starts a daemon of its own session, which keeps nothing of ours open,
// and waits for its word. Until then the daemon holds starting too: should we
// end before, nobody starts another.
func (a *app) launch(ctx context.Context, dir string, starting *os.File) error {
	self, err := executable()
	if err != nil {
		return err
	}
	file, named, err := a.settingsFile(dir)
	if err != nil {
		return err
	}
	args := []string{"kern", "serve", "--" + detachedFlag, "--data", dir}
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
	cmd := &exec.Cmd{Path: self, Dir: dir, Stderr: log, ExtraFiles: []*os.File{to, starting}, SysProcAttr: ownSession(), Args: args}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the daemon cannot be started: %w", err)
	}
	go func() { _ = cmd.Wait() }() // should it end before us, it is not left as a zombie
	_ = to.Close()
	stop := context.AfterFunc(ctx, func() { _ = from.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReader(from).ReadBytes('\n')
	var r ready
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the daemon was started and is not ready: %w%s", ctx.Err(), tail(dir))
	case err != nil || json.Unmarshal(line, &r) != nil:
		return fmt.Errorf("the daemon ended before it was ready%s", tail(dir))
	case r.Err != nil && r.Usage:
		return usage(r.Err.Hint, "%s", r.Err.Error())
	case r.Err != nil:
		return r.Err
	}
	return nil
}

// maxLog is how large the daemon's log may be before it is begun anew; the old
// one is kept beside it.
const maxLog = 1 << 20

func openLog(dir string) (*os.File, error) {
	name := filepath.Join(dir, logFile)
	if i, err := os.Stat(name); err == nil && i.Size() > maxLog {
		if err := os.Rename(name, name+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// tail is the end of the daemon's log.
func tail(dir string) string {
	f, err := os.Open(filepath.Join(dir, logFile))
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

// running connects to the daemon if there is one, and starts none.
func (a *app) running(ctx context.Context) (c *api.Client, dir string, err error) {
	if dir, err = a.dataDir(); err != nil {
		return nil, dir, err
	}
	c, err = api.Dial(ctx, api.SocketOf(dir), version)
	return c, dir, err
}

// asUsage makes a mistake in a file that the command line names one of usage.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	var u *usageError
	if errors.As(err, &u) {
		return err
	}
	hint := "mend it and try again; nothing was started"
	if errors.Is(err, fs.ErrNotExist) {
		hint = "look at the name; relative ones begin at the working directory, and those in an agent file at that file"
	}
	return usage(hint, "%s", strings.TrimPrefix(err.Error(), "open "))
}
