// Package daemon runs the daemon of a data directory, and finds it for clients.
//
// One daemon owns a data directory: it holds the journal, serves the control
// API on a socket and runs the gateway. A client that finds no daemon starts
// one in the background, and all clients started at the same moment share it.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
)

// A Directory names a data directory and its configuration, and reaches the
// daemon that owns it.
type Directory struct {
	Data    string // the path; empty: KERN_DATA, else kern in the XDG state directory
	Config  string // the configuration file; empty: KERN_CONFIG, else the first that exists of two
	Version string // of this program, which refuses a daemon of another version
	Getenv  func(string) string
	Note    func(text string) // shows a warning to the person
}

// A ConfigError is a data directory or configuration that the person must fix.
type ConfigError struct{ Message, Advice string }

func (e *ConfigError) Error() string { return e.Message }

// Hint returns the advice for the person.
func (e *ConfigError) Hint() string { return e.Advice }

func configError(advice, format string, args ...any) error {
	return &ConfigError{fmt.Sprintf(format, args...), advice}
}

// Path returns the absolute path of the data directory. It does not create the
// directory.
func (d *Directory) Path() (string, error) {
	dir := d.Data
	if dir == "" {
		dir = d.Getenv("KERN_DATA")
	}
	if dir == "" {
		state, err := stateHome(d.Getenv)
		if err != nil {
			return "", configError("name one with --data DIR or KERN_DATA", "no data directory: %v", err)
		}
		dir = filepath.Join(state, "kern")
	}
	return filepath.Abs(dir)
}

// configFile returns the path of the configuration file. It sets named if the person
// chose the file. Only a chosen file must exist.
func (d *Directory) configFile(dir string) (file string, named bool, err error) {
	if file = d.Config; file == "" {
		file = d.Getenv("KERN_CONFIG")
	}
	if file != "" {
		file, err = filepath.Abs(file)
		return file, true, err
	}
	file = filepath.Join(dir, "kern.yaml")
	if _, err := os.Stat(file); err == nil {
		return file, false, nil
	}
	if home, err := configHome(d.Getenv); err == nil {
		other := filepath.Join(home, "kern", "kern.yaml")
		if _, err := os.Stat(other); err == nil {
			return other, false, nil
		}
	}
	return file, false, nil
}

// Settings reads the configuration file. It returns the path of the file even if it
// cannot read the file.
func (d *Directory) Settings() (config.Settings, string, error) {
	dir, err := d.Path()
	if err != nil {
		return config.Settings{}, "", err
	}
	file, named, err := d.configFile(dir)
	if err != nil {
		return config.Settings{}, file, err
	}
	if named {
		if _, err := os.Stat(file); err != nil {
			return config.Settings{}, file, configError("name an existing file with --config or KERN_CONFIG, or leave both out", "%v", err)
		}
	}
	s, err := config.ReadSettings(file)
	if errors.Is(err, fs.ErrPermission) {
		return s, file, configError("name a directory of your own with --data or KERN_DATA", "the data directory or its configuration belongs to another user: %v", err)
	}
	if err != nil {
		return s, file, configError("kern help config lists every key of kern.yaml", "%v", err)
	}
	return s, file, nil
}

// Dial connects to the daemon. It fails if no daemon runs.
func (d *Directory) Dial(ctx context.Context) (*api.Client, error) {
	dir, err := d.Path()
	if err != nil {
		return nil, err
	}
	return d.dial(ctx, dir)
}

// dial connects to the daemon of dir, and tells the person if the daemon does not
// answer.
func (d *Directory) dial(ctx context.Context, dir string) (*api.Client, error) {
	c, err := api.Dial(ctx, api.SocketOf(dir), d.Version)
	if err == nil && d.Note != nil {
		c.OnSilence(func() { d.Note(silent(dir)) })
	}
	return c, err
}

// silent says that the daemon does not answer, and what to do.
func silent(dir string) string {
	pid := holder(dir)
	if pid == "" {
		return "the daemon of " + dir + " does not answer"
	}
	return fmt.Sprintf("the daemon (process %s) does not answer; if it was stopped, kill -CONT %s continues it; else kill -9 %s ends it, and the next command starts it again", pid, pid, pid)
}

// holder returns the operating-system pid in the lock of a data directory; empty if
// the file has none.
func holder(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "lock"))
	pid := strings.TrimSpace(string(b))
	if _, bad := strconv.Atoi(pid); err != nil || bad != nil {
		return ""
	}
	return pid
}

// Holder returns the operating-system pid of the program that has the journal of a
// directory open; empty if none has.
func Holder(dir string) string {
	name := filepath.Join(dir, "lock")
	if _, err := os.Stat(name); err != nil {
		return ""
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // only one try
	f, err := Lock(ctx, name)
	if err != nil {
		return holder(dir)
	}
	f.Close()
	return ""
}

// Connect connects to the daemon, and starts a daemon if none runs. If the person
// chose a configuration file, Connect refuses a daemon that runs with another.
func (d *Directory) Connect(ctx context.Context) (*api.Client, error) {
	dir, err := d.Path()
	if err != nil {
		return nil, err
	}
	c, err := d.dial(ctx, dir)
	if err != nil {
		if c, err = d.start(ctx, dir); err != nil {
			return nil, err
		}
	}
	file, named, err := d.configFile(dir)
	if err != nil || !named {
		return c, err
	}
	about, err := c.About(ctx)
	if err == nil && about.Config != file {
		err = configError("stop it first, with: kern stop-daemon", "the daemon of %s runs with the configuration %s, not with %s", dir, about.Config, file)
	}
	return c, err
}

// Outdated describes the first setting that changed since the daemon started: the
// configuration file, the address of the gateway, or the key of the named provider.
// It is empty if nothing changed.
func (d *Directory) Outdated(ctx context.Context, c *api.Client, provider string) string {
	const restart = "; kern stop-daemon stops the daemon, and the next command starts it with the new settings"
	about, err := c.About(ctx)
	if err != nil {
		return ""
	}
	s, file, err := d.Settings()
	if err != nil {
		return fmt.Sprintf("the daemon runs with the settings of its start, but now: %v%s", err, restart)
	}
	var started config.SettingsView
	if b, err := json.Marshal(about.Settings); err != nil || json.Unmarshal(b, &started) != nil {
		return ""
	}
	now := s.View(d.Getenv)
	if now.Sum != started.Sum {
		return file + " changed since the daemon started" + restart
	}
	if about.Moved != "" {
		return about.Moved
	}
	if key, ok := strings.CutPrefix(now.Providers[provider].Key, "from "); ok && strings.HasPrefix(started.Providers[provider].Key, "not there") {
		return key + " is set here, but was not set where the daemon started" + restart
	}
	return ""
}

// NoteOutdated shows the text of [Directory.Outdated] to the person.
func (d *Directory) NoteOutdated(ctx context.Context, c *api.Client, provider string) {
	if s := d.Outdated(ctx, c, provider); s != "" {
		d.Note(s)
	}
}
