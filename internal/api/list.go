package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// MoreHeader says how many processes a list of the recent ones leaves out.
const MoreHeader = "Kern-More"

const (
	maxRecent = 1000 // exited processes in a list of recent ones
	pageLen   = 200  // processes in one piece of a long list
)

// processes answers with a list of the processes that want selects, between head
// and tail. With ?recent=N the list has the living processes, the last N that
// exited, the last N children of each living one, and all ancestors. A list of all
// is sent in pieces, because it can be of any length.
func (srv *Server) processes(w http.ResponseWriter, r *http.Request, head, tail string, want func(*kernel.Info) bool) error {
	if err := query(r, "recent", "name", "newest"); err != nil {
		return err
	}
	if name := r.URL.Query().Get("name"); name != "" {
		all := want
		want = func(i *kernel.Info) bool { return i.Name == name && all(i) }
	}
	if only, err := flag(r, "newest"); err != nil {
		return err
	} else if only {
		pid := newest(srv.Views.After)
		want = func(i *kernel.Info) bool { return i.Pid == pid }
	}
	l := &listing{server: srv, w: w, now: time.Now(), b: []byte(head), want: want}
	if s := r.URL.Query().Get("recent"); r.URL.Query().Has("recent") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxRecent {
			return expected("/recent", s, "a number from 0 to "+strconv.Itoa(maxRecent))
		}
		list, more := srv.Views.Recent(n)
		w.Header().Set(MoreHeader, strconv.Itoa(more))
		if err := l.add(list); err != nil {
			return err
		}
		return l.send(tail)
	}
	for pid, page := abi.Pid(0), srv.Views.After(0, pageLen); len(page) > 0; page = srv.Views.After(pid, pageLen) {
		pid = page[len(page)-1].Pid
		err := l.add(page)
		if err == nil {
			err = l.send("")
		}
		if err != nil || r.Context().Err() != nil {
			return err
		}
	}
	return l.send(tail)
}

// newest returns the newest process that has no parent; 0 if there is none.
func newest(after func(pid abi.Pid, n int) []kernel.Info) (pid abi.Pid) {
	for page := after(0, pageLen); len(page) > 0; page = after(page[len(page)-1].Pid, pageLen) {
		for i := range page {
			if page[i].Parent == 0 {
				pid = page[i].Pid
			}
		}
	}
	return pid
}

// A listing is a list of processes that is being sent.
type listing struct {
	server *Server
	w      http.ResponseWriter
	now    time.Time
	want   func(*kernel.Info) bool
	b      []byte // not sent yet
	some   bool   // a process was added
	begun  bool   // something was sent
}

func (l *listing) add(list []kernel.Info) error {
	for i := range list {
		if !l.want(&list[i]) {
			continue
		}
		p, err := l.server.view(&list[i], l.now)
		var b []byte
		if err == nil {
			b, err = plain(p)
		}
		if err != nil && l.begun {
			panic(http.ErrAbortHandler) // tells the client that the list is incomplete
		} else if err != nil {
			return err
		}
		if l.some {
			l.b = append(l.b, ',')
		}
		l.b, l.some = append(l.b, b...), true
	}
	return nil
}

// plain encodes v as JSON, and leaves <, > and & in texts as they are.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// send sends the processes added so far.
func (l *listing) send(tail string) error {
	if !l.begun {
		l.w.Header().Set("Content-Type", "application/json")
		l.begun = true
	}
	_, _ = l.w.Write(append(l.b, tail...))
	l.b = l.b[:0]
	return nil
}

// List lists every process, by pid. It decodes them one by one, because the list
// can be long.
func (c *Client) List(ctx context.Context) ([]Process, error) {
	return c.list(ctx, "")
}

// Named lists the processes of a name, by pid.
func (c *Client) Named(ctx context.Context, name string) ([]Process, error) {
	return c.list(ctx, "?name="+url.QueryEscape(name))
}

// Newest lists the newest process that has no parent, if there is any process.
func (c *Client) Newest(ctx context.Context) ([]Process, error) { return c.list(ctx, "?newest=1") }

func (c *Client) list(ctx context.Context, query string) (list []Process, err error) {
	res, err := c.conn.request(ctx, "GET", procsPath+query, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	d := json.NewDecoder(&answer{ctx, res.Body})
	_, err = d.Token()
	for err == nil && d.More() {
		var p Process
		err = d.Decode(&p)
		list = append(list, p)
	}
	if err == nil {
		_, err = d.Token()
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// CopyList writes the list of every process to w as it arrives. It never holds the
// whole list.
func (c *Client) CopyList(ctx context.Context, w io.Writer) error {
	return c.conn.copyTo(ctx, procsPath, w)
}

// CopyList writes the list of every process with a key to w, with the addresses
// of the gateway.
func (c KeyClient) CopyList(ctx context.Context, w io.Writer) error {
	return c.conn.copyTo(ctx, keysPath, w)
}

func (c *connection) copyTo(ctx context.Context, path string, w io.Writer) error {
	res, err := c.request(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(w, &answer{ctx, res.Body})
	return err
}

// An answer is a body that ends whole or with an error.
type answer struct {
	ctx  context.Context
	body io.Reader
}

func (a *answer) Read(b []byte) (int, error) {
	n, err := a.body.Read(b)
	switch {
	case a.ctx.Err() != nil:
		return n, a.ctx.Err()
	case err != nil && err != io.EOF:
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return n, err
}

// Recent lists the living processes, the last n that exited, the last n children of
// each living one, and all ancestors, by pid. more counts the other processes.
func (c *Client) Recent(ctx context.Context, n int) (list []Process, more int, err error) {
	res, err := c.conn.request(ctx, "GET", procsPath+"?recent="+strconv.Itoa(n), nil)
	if err != nil {
		return nil, 0, err
	}
	if more, err = strconv.Atoi(res.Header.Get(MoreHeader)); err != nil {
		res.Body.Close()
		return nil, 0, err
	}
	err = readInto(ctx, res, &list)
	return list, more, err
}
