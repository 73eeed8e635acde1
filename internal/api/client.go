package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/quota"
)

// A Client makes requests to the daemon. It is safe for concurrent use.
type Client struct {
	conn *connection

	Keys       KeyClient
	Workspaces WorkspaceClient
	Accounts   AccountClient
	Forks      ForkClient
}

// A connection sends requests to the daemon.
type connection struct {
	version string // of this program; a daemon of another version can only be stopped
	http    http.Client
	silence
}

// ErrLost means that the connection broke, because the daemon died. The request may
// have been carried out.
var ErrLost = errors.New("the daemon ended during the request")

// A VersionError is a daemon of another version.
type VersionError struct{ Daemon, Client string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the daemon has version %s, and this program has version %s", e.Daemon, e.Client)
}

// dialTime is how long a daemon may take to accept a connection.
const dialTime = 5 * time.Second

// Dial connects to the daemon behind a socket.
func Dial(ctx context.Context, socket, version string) (*Client, error) {
	d := net.Dialer{Timeout: dialTime}
	first, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &connection{version: version}
	held := make(chan net.Conn, 1)
	held <- first
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case conn := <-held:
				return conn, nil
			default:
				return d.DialContext(ctx, "unix", socket)
			}
		},
	}
	return newClient(c), nil
}

func newClient(c *connection) *Client {
	return &Client{conn: c, Keys: KeyClient{c}, Workspaces: WorkspaceClient{c}, Accounts: AccountClient{c}, Forks: ForkClient{c}}
}

// OnSilence sets what is called, once, when a request waits and the daemon answers
// nothing at all, because it is stopped or hangs.
func (c *Client) OnSilence(f func()) { c.conn.silence.tell = f }

// Close closes the connection to the daemon.
func (c *Client) Close() { c.conn.http.CloseIdleConnections() }

func (c *connection) request(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://kern"+path, body)
	if err != nil {
		return nil, err
	}
	stop := c.watch(ctx, &c.http)
	res, err := c.http.Do(r)
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrLost, errors.Unwrap(err))
	}
	if v := res.Header.Get(VersionHeader); v != c.version && path != stopPath && path != aboutPath {
		res.Body.Close()
		return nil, &VersionError{v, c.version}
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, readError(ctx, res)
	}
	return res, nil
}

// readError reads an answer that is an error.
func readError(ctx context.Context, res *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(res.Body, maxRequest))
	var f failure
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", ErrLost, err)
	case json.Unmarshal(b, &f) != nil || f.Err == nil:
		return fmt.Errorf("the daemon answered %s: %s", res.Status, abi.Clip(string(b)))
	}
	return f.Err
}

// call makes a request and reads the answer into out.
func (c *connection) call(ctx context.Context, method, path string, in, out any) error {
	res, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	return readInto(ctx, res, out)
}

// readInto reads an answer into out.
func readInto(ctx context.Context, res *http.Response, out any) error {
	defer res.Body.Close()
	b, err := io.ReadAll(&answer{ctx, res.Body})
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// ask is call for an answer of type T.
func ask[T any](ctx context.Context, c *connection, method, path string, in any) (T, error) {
	var out T
	err := c.call(ctx, method, path, in, &out)
	return out, err
}

const (
	aboutPath = "/v1/daemon"
	stopPath  = "/v1/daemon/stop"
	procsPath = "/v1/processes"
	acctsPath = "/v1/accounts"
	keysPath  = "/v1/keys"
)

func procPath(pid abi.Pid, what string) string {
	p := procsPath + "/" + strconv.FormatInt(int64(pid), 10)
	if what != "" {
		p += "/" + what
	}
	return p
}

// About asks the daemon about itself, whatever its version.
func (c *Client) About(ctx context.Context) (About, error) {
	return ask[About](ctx, c.conn, "GET", aboutPath, nil)
}

// Stop asks the daemon to end, whatever its version.
func (c *Client) Stop(ctx context.Context) error { return c.conn.call(ctx, "POST", stopPath, nil, nil) }

// Spawn starts a process.
func (c *Client) Spawn(ctx context.Context, r abi.Run) (abi.Pid, error) {
	s, err := ask[Started](ctx, c.conn, "POST", procsPath, r)
	return s.Pid, err
}

// Show describes a process.
func (c *Client) Show(ctx context.Context, pid abi.Pid) (Process, error) {
	return ask[Process](ctx, c.conn, "GET", procPath(pid, ""), nil)
}

// Result reads the result of a process into out. With wait it waits for the exit,
// else the result may be preliminary.
func (c *Client) Result(ctx context.Context, pid abi.Pid, wait bool, out any) error {
	path := procPath(pid, "result")
	if wait {
		path += "?wait=1"
	}
	return c.conn.call(ctx, "GET", path, nil, out)
}

// Signal sends a signal.
func (c *Client) Signal(ctx context.Context, pid abi.Pid, s Signal) error {
	return c.conn.call(ctx, "POST", procPath(pid, "signal"), s, nil)
}

// Decide answers the question of a call.
func (c *Client) Decide(ctx context.Context, pid abi.Pid, d Decision) error {
	return c.conn.call(ctx, "POST", procPath(pid, "decide"), d, nil)
}

// Change changes limits or the priority of a process.
func (c *Client) Change(ctx context.Context, pid abi.Pid, ch Change) (Process, error) {
	return ask[Process](ctx, c.conn, "PATCH", procPath(pid, ""), ch)
}

// Replay folds the journal of a process again and compares.
func (c *Client) Replay(ctx context.Context, pid abi.Pid, p Replay) (abi.ReplayResult, error) {
	return ask[abi.ReplayResult](ctx, c.conn, "POST", procPath(pid, "replay"), p)
}

// Verify checks every record of a process.
func (c *Client) Verify(ctx context.Context, pid abi.Pid) (Verified, error) {
	return ask[Verified](ctx, c.conn, "POST", procPath(pid, "verify"), nil)
}

// Traffic returns the use of the limits of providers.
func (c *Client) Traffic(ctx context.Context) ([]quota.Snapshot, error) {
	return ask[[]quota.Snapshot](ctx, c.conn, "GET", "/v1/traffic", nil)
}

// Records reads the records of a process after record n, and with follow also new
// ones until the process exits. f gets each record and its line of JSON. If the
// connection breaks the error is [ErrLost]: continue after the last record.
func (c *Client) Records(ctx context.Context, pid abi.Pid, n uint64, follow bool, f func(r *abi.Record, line []byte) error) error {
	path := procPath(pid, "records") + "?after=" + strconv.FormatUint(n, 10)
	if follow {
		path += "&follow=1"
	}
	return c.conn.readLines(ctx, path, func(line []byte) error {
		var r abi.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("a record that cannot be read: %w: %s", err, abi.Clip(string(line)))
		}
		return f(&r, line)
	})
}

// readLines calls f with each line of an answer as it arrives.
func (c *connection) readLines(ctx context.Context, path string, f func([]byte) error) error {
	res, err := c.request(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b := bufio.NewReaderSize(res.Body, 64<<10)
	for {
		line, err := b.ReadBytes('\n')
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == io.EOF && len(line) == 0:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		var e failure
		if bytes.HasPrefix(line, []byte(`{"error":`)) && json.Unmarshal(line, &e) == nil && e.Err != nil {
			return e.Err
		}
		if err := f(line); err != nil {
			return err
		}
	}
}
