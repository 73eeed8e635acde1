package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

// withDaemon connects to the daemon, and runs f with the connection.
func withDaemon(ctx context.Context, d *daemon.Directory, f func(c *api.Client) error) error {
	c, err := d.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// askDaemon is withDaemon for requests that may be made again. If the daemon ends
// meanwhile it is started again, and the person does not notice.
func askDaemon(ctx context.Context, t *cli.Terminal, d *daemon.Directory, f func(c *api.Client) error) error {
	s, err := openSession(ctx, t, d)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Do(ctx, f)
}

// openSession is a session for short requests, which survives any end of the daemon.
func openSession(ctx context.Context, t *cli.Terminal, d *daemon.Directory) (*cli.Session, error) {
	s := &cli.Session{Term: t, Connect: d.Connect, Quiet: true, Persist: true}
	return s, s.Open(ctx)
}

// withProcess is withDaemon for the process that the first argument names.
func withProcess(ctx context.Context, d *daemon.Directory, args []string, f func(c *api.Client, pid abi.Pid) error) error {
	return withDaemon(ctx, d, func(c *api.Client) error {
		pid, err := findProcess(ctx, c, firstOf(args))
		if err != nil {
			return err
		}
		return f(c, pid)
	})
}

// askProcess is withProcess for requests that may be made again, see [askDaemon].
func askProcess(ctx context.Context, t *cli.Terminal, d *daemon.Directory, args []string, f func(c *api.Client, pid abi.Pid) error) error {
	return askDaemon(ctx, t, d, func(c *api.Client) error {
		pid, err := findProcess(ctx, c, firstOf(args))
		if err != nil {
			return err
		}
		return f(c, pid)
	})
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// eachProcess calls f with each process that the arguments name. It goes on after
// an error, and prints all errors but the last, which it returns.
func eachProcess(ctx context.Context, t *cli.Terminal, d *daemon.Directory, args []string, f func(s *cli.Session, pid abi.Pid) error) error {
	s, err := openSession(ctx, t, d)
	if err != nil {
		return err
	}
	defer s.Close()
	var last error
	for _, name := range args {
		var pid abi.Pid
		err := s.Do(ctx, func(c *api.Client) (err error) { pid, err = findProcess(ctx, c, name); return err })
		if err == nil {
			err = f(s, pid)
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		var x *exitError
		if errors.As(last, &x) {
			t.Complain(x.err)
		} else {
			t.Complain(last)
		}
		last = err
	}
	return last
}

// report makes a request that may be made again, and prints the answer as JSON or
// with show.
func report[T any](ctx context.Context, t *cli.Terminal, d *daemon.Directory, asJSON bool, request func(c *api.Client) (T, error), show func(*cli.Terminal, T) error) error {
	var v T
	err := askDaemon(ctx, t, d, func(c *api.Client) (err error) { v, err = request(c); return err })
	switch {
	case err != nil:
		return err
	case asJSON:
		return t.JSON(v)
	}
	return show(t, v)
}

// copyOnce copies an answer to the output. It is asked for again only while nothing
// of it was printed.
func copyOnce(ctx context.Context, t *cli.Terminal, d *daemon.Directory, request func(c *api.Client, w io.Writer) error) error {
	printed := &counter{w: t.Out}
	return askDaemon(ctx, t, d, func(c *api.Client) error {
		err := request(c, printed)
		if printed.n > 0 && errors.Is(err, api.ErrLost) {
			err = &abi.Error{Code: abi.DaemonGone, Message: "the daemon ended in the middle of the list", Hint: "ask again; the next command starts it"}
			return &exitError{exitFailed, err}
		}
		return err
	})
}

// A counter counts the bytes that it passes on.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}

// lastName names the newest process that no other process started.
const lastName = "last"

// processArgs explains to the help of a command what names a process.
const processArgs = `A process is named by its pid, by its name (the living process of that name, else
the last one), or by the word last: the newest process that was started by hand.`

// findProcess returns the process that an argument names: a pid, the word last, or
// a name.
func findProcess(ctx context.Context, c *api.Client, name string) (abi.Pid, error) {
	if name == "" {
		return 0, cli.Usage("kern ps lists the processes", "expected a process: a pid, a name or last")
	}
	if pid, err := parsePid(name); err == nil {
		return pid, nil
	}
	if name == lastName {
		list, err := c.Newest(ctx)
		if err == nil && len(list) == 0 {
			err = cli.Usage("start one with: kern run", "there is no last process, because none was started")
		}
		if err != nil {
			return 0, err
		}
		return list[0].Pid, nil
	}
	list, err := c.Named(ctx, name)
	if err != nil {
		return 0, err
	}
	living := slices.DeleteFunc(slices.Clone(list), func(p api.Process) bool { return p.State == abi.Exited })
	switch {
	case len(living) == 1:
		return living[0].Pid, nil
	case len(living) > 1:
		var pids []string
		for _, p := range living {
			pids = append(pids, fmt.Sprint(p.Pid))
		}
		return 0, cli.Usage("name them by pid: "+strings.Join(pids, " "), "%d living processes are named %q", len(living), name)
	case len(list) > 0:
		return list[len(list)-1].Pid, nil
	}
	return 0, cli.Usage("kern ps -a lists the processes", "there is no process %q, expected a pid, the name of a process, or last", name)
}

func parsePid(s string) (abi.Pid, error) {
	var n int64
	if _, err := fmt.Sscanf(s+"\n", "%d\n", &n); err != nil || n < 1 || strings.ContainsAny(s, "+ _") {
		return 0, cli.Usage("kern ps lists the processes", "%q is not a pid", s)
	}
	return abi.Pid(n), nil
}

// asUsage makes a usage error of a mistake in a file that the command line
// names.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	var u *cli.UsageError
	if errors.As(err, &u) {
		return err
	}
	hint := "correct it and try again; nothing was started"
	if errors.Is(err, fs.ErrNotExist) {
		hint = "check the path; a relative path starts at the working directory, or in an agent file at the directory of that file"
	}
	return cli.Usage(hint, "%s", strings.TrimPrefix(err.Error(), "open "))
}
