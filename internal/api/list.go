package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// MoreHeader says how many processes a list of the recent ones leaves out.
const MoreHeader = "Kern-More"

const (
	maxRecent = 1000 // processes that exited, in a list of the recent ones
	pageLen   = 200  // processes that are looked at before what is known of them is sent
)

// processes answers with a list of those processes that are wanted, between head
// and tail: with all there are, or with ?recent=N with those that live, the N
// that exited last, the N last children of each that lives, and all above those.
// There is no end to those that exited, so they go out as they are read.
func (srv *Server) processes(w http.ResponseWriter, r *http.Request, head, tail string, want func(*kernel.Info) bool) error {
	if err := query(r, "recent"); err != nil {
		return err
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

// A listing is a list of processes on its way out.
type listing struct {
	server *Server
	w      http.ResponseWriter
	now    time.Time
	want   func(*kernel.Info) bool
	b      []byte // to be sent
	some   bool   // a process is in it
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
			panic(http.ErrAbortHandler) // so the client sees that this is not the whole list
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

// plain is v as JSON, without changing what stands in texts: programs read it, and
// people.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// send sends what there is. A client that went away hears nothing.
func (l *listing) send(tail string) error {
	if !l.begun {
		l.w.Header().Set("Content-Type", "application/json")
		l.begun = true
	}
	_, _ = l.w.Write(append(l.b, tail...))
	l.b = l.b[:0]
	return nil
}

// List lists every process, by pid. It reads one after the other: what was said of
// all of them is long.
func (c *Client) List(ctx context.Context) (list []Process, err error) {
	res, err := c.conn.request(ctx, "GET", procsPath, nil)
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
	if err == nil { // else the end of the list is not what is missing
		_, err = d.Token()
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// CopyList writes the list of every process to w as it comes. There is no end to
// them, so it is never held whole.
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

// An answer is read to its end, or is an error.
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

// Recent lists the processes that live, the n that exited last, the n last children
// of each that lives, and all above those, by pid. More is how many others there
// are.
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
