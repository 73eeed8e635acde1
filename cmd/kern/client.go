package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// withProcess is withDaemon for the process that the first argument names.
func withProcess(ctx context.Context, d *daemon.Directory, args []string, f func(c *api.Client, pid abi.Pid) error) error {
	pid, err := onePid(args)
	if err != nil {
		return err
	}
	return withDaemon(ctx, d, func(c *api.Client) error { return f(c, pid) })
}

// report makes a request to the daemon, and prints the answer as JSON or with
// show.
func report[T any](ctx context.Context, t *cli.Terminal, d *daemon.Directory, asJSON bool, request func(c *api.Client) (T, error), show func(*cli.Terminal, T) error) error {
	return withDaemon(ctx, d, func(c *api.Client) error {
		v, err := request(c)
		switch {
		case err != nil:
			return err
		case asJSON:
			return t.JSON(v)
		}
		return show(t, v)
	})
}

// onePid reads the first argument as a pid.
func onePid(args []string) (abi.Pid, error) {
	if len(args) == 0 {
		return 0, cli.Usage("kern ps lists the processes", "expected a pid")
	}
	return parsePid(args[0])
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
