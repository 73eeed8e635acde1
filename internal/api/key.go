package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/provider"
)

// KeyService is the gateway, as far as the control API speaks of it.
type KeyService interface {
	New(ctx context.Context, k Key) (KeyInfo, error)
	End(ctx context.Context, pid abi.Pid, e KeyEnd) error
	Has(i *kernel.Info) bool // the process has a key
	Where() GatewayAddress
	Hold(ctx context.Context, pid abi.Pid, tell func(kernel.Orders) error) error
}

// A GatewayAddress is where programs outside come in.
type GatewayAddress struct {
	OpenAI    string `json:"openai_base_url"`
	Anthropic string `json:"anthropic_base_url"`
	Socket    string `json:"socket"`
}

// A Key is a request for a process that a program outside reaches with a key.
type Key struct {
	Name     string       `json:"name,omitempty"`
	Limits   abi.Limits   `json:"limits,omitzero"`
	Account  string       `json:"account,omitempty"`
	Priority int          `json:"priority"`
	Watchdog abi.Watchdog `json:"watchdog,omitzero"` // strict when nothing is said: a warning cannot reach the model
	Parent   abi.Pid      `json:"parent,omitempty"`  // a process with a key, whose child it is; 0: none
	Hold     bool         `json:"hold,omitempty"`    // it ends when nobody holds it any more; see [Client.Hold]
}

// KeyInfo is a new key. The key itself is said this once.
type KeyInfo struct {
	Pid       abi.Pid                 `json:"pid"`
	Key       string                  `json:"key"`
	OpenAI    string                  `json:"openai_base_url"`
	Anthropic string                  `json:"anthropic_base_url"`
	InPath    string                  `json:"base_with_key"` // the address with the key in it: with /v1 behind it for OpenAI's format, as it is for Anthropic's
	Socket    string                  `json:"socket"`
	Ways      map[string]provider.Way `json:"ways"` // by format, openai and anthropic
}

// A KeyEnd ends the process of a key as its program ended: done with an output,
// or failed with an error; a code such as LIMIT_MONEY says which limit made it
// stop, and is believed if a call was refused with it.
type KeyEnd struct {
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	Code   abi.Code        `json:"code,omitempty"`
}

// A keyHandler answers requests about keys.
type keyHandler struct{ server *Server }

func (k *Key) check() error {
	if err := priority(&k.Priority); err != nil {
		return err
	}
	if err := enforceable(&k.Limits); err != nil {
		return err
	}
	switch w := k.Watchdog; {
	case len(k.Name) > 64:
		return expected("/name", k.Name, "at most 64 bytes")
	case !slices.Contains([]string{"", "smart", "strict", "off"}, w.Profile):
		return expected("/watchdog/profile", w.Profile, "smart, strict or off")
	case w.Repeat != 0 && w.Repeat < 2:
		return expected("/watchdog/repeat", strconv.Itoa(w.Repeat), "2 or more")
	case k.Parent != 0 && k.Account != "":
		return expected("/account", k.Account, "none: a child is booked on its parent")
	}
	return nil
}

func (h keyHandler) create(w http.ResponseWriter, r *http.Request) (any, error) {
	var k Key
	if err := decode(w, r, maxRequest, &k); err != nil {
		return nil, err
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	return h.server.Keys.New(r.Context(), k)
}

// KeyList is the processes that have keys, and where the gateway is.
type KeyList struct {
	Gateway GatewayAddress `json:"gateway"`
	Keys    []Process      `json:"keys"`
}

func (h keyHandler) list(w http.ResponseWriter, r *http.Request) (any, error) {
	where, err := json.Marshal(h.server.Keys.Where())
	if err != nil {
		return nil, err
	}
	return nil, h.server.processes(w, r, `{"gateway":`+string(where)+`,"keys":[`, "]}\n", h.server.Keys.Has)
}

func (h keyHandler) end(ctx context.Context, pid abi.Pid, e *KeyEnd) (any, error) {
	i, err := h.server.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	if !h.server.Keys.Has(&i) {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no key: its loop ends it", pid)}
	}
	return done{true}, h.server.Keys.End(ctx, pid, *e)
}

// show describes a process that has a key.
func (h keyHandler) show(_ http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	i, err := h.server.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	if !h.server.Keys.Has(&i) {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no key", pid), Hint: "kern key list -a lists those that have one"}
	}
	return h.server.view(&i, time.Now())
}

// hold answers at once, and stays until the client goes. What is ordered of the
// process comes as lines of JSON, its end as the last.
func (h keyHandler) hold(w http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	_, err := h.server.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, c: http.NewResponseController(w)}
	if err := s.c.Flush(); err != nil {
		return nil, nil // the client is gone
	}
	var last kernel.Orders
	var once sync.Once
	err = h.server.Keys.Hold(r.Context(), pid, func(o kernel.Orders) error {
		if last = o; o.Term || o.Exit != "" {
			once.Do(func() { go rouse(r.Context()) })
		}
		return s.line(o)
	})
	switch {
	case err == nil && last.Exit != "":
		<-r.Context().Done() // it goes when the end is carried out
	case err != nil && s.err == nil:
		_ = s.line(failure{asError(err)}) // if somebody is there to read it
	}
	return nil, nil
}

// rouseTime is how often a client is woken that has not done what was ordered.
const rouseTime = time.Second

// rouse wakes the client of a request until it goes: one that sleeps, as a job
// does after Ctrl-Z, cannot hear that its program is to end, and what that has
// started elsewhere does not sleep.
func rouse(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	for {
		wake(c)
		select {
		case <-ctx.Done():
			return
		case <-time.After(rouseTime):
		}
	}
}

var errOver = errors.New("the process has ended")

// Hold stays with a process of a key that wants to be held, until it ends: then
// nil. Those that run its program hold it, so that it ends when they are gone,
// and hear what is ordered of it; also while nothing can be written.
func (c KeyClient) Hold(ctx context.Context, pid abi.Pid, heard func(kernel.Orders)) error {
	var o kernel.Orders
	err := c.conn.readLines(ctx, keysPath+"/"+strconv.FormatInt(int64(pid), 10)+"/hold", func(line []byte) error {
		o = kernel.Orders{}
		if err := json.Unmarshal(line, &o); err != nil {
			return err
		}
		heard(o)
		if o.Exit != "" {
			return errOver
		}
		return nil
	})
	switch {
	case errors.Is(err, errOver):
		return nil
	case err == nil:
		return ErrLost
	}
	return err
}

// A KeyClient makes requests about keys.
type KeyClient struct{ conn *connection }

// New makes a process and its key.
func (c KeyClient) New(ctx context.Context, k Key) (KeyInfo, error) {
	return ask[KeyInfo](ctx, c.conn, "POST", keysPath, k)
}

// End ends the process of a key as its program ended.
func (c KeyClient) End(ctx context.Context, pid abi.Pid, e KeyEnd) error {
	return c.conn.call(ctx, "POST", keysPath+"/"+strconv.FormatInt(int64(pid), 10)+"/exit", e, nil)
}

// List lists the processes that have keys: the living ones, or all.
func (c KeyClient) List(ctx context.Context, all bool) (KeyList, error) {
	path := keysPath
	if !all {
		path += "?recent=0"
	}
	return ask[KeyList](ctx, c.conn, "GET", path, nil)
}

// Show describes a process that has a key, also after its exit.
func (c KeyClient) Show(ctx context.Context, pid abi.Pid) (Process, error) {
	return ask[Process](ctx, c.conn, "GET", keysPath+"/"+strconv.FormatInt(int64(pid), 10), nil)
}

// request writes what a call asked, as it came.
func (h keyHandler) request(w http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	n, err := strconv.ParseUint(r.PathValue("call"), 10, 64)
	if err != nil || n == 0 {
		return nil, expected("/call", r.PathValue("call"), "the number of a call")
	}
	b, err := h.server.Request(pid, n)
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b) // a client that went away hears nothing
	}
	return nil, err
}

// Request reads the request of a call that came with a key, unchanged.
func (c KeyClient) Request(ctx context.Context, pid abi.Pid, call uint64) (json.RawMessage, error) {
	return ask[json.RawMessage](ctx, c.conn, "GET", fmt.Sprintf("%s/%d/calls/%d", keysPath, pid, call), nil)
}
