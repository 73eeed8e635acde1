package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// Keys is the gateway, as far as the control API speaks of it.
type Keys interface {
	New(ctx context.Context, k Key) (KeyInfo, error)
	End(ctx context.Context, pid abi.Pid, e KeyEnd) error
	Has(i *kernel.Info) bool // the process has a key
	Where() Gateway
	Hold(ctx context.Context, pid abi.Pid) error
}

// A Gateway is where programs outside come in.
type Gateway struct {
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
	Pid       abi.Pid         `json:"pid"`
	Key       string          `json:"key"`
	OpenAI    string          `json:"openai_base_url"`
	Anthropic string          `json:"anthropic_base_url"`
	InPath    string          `json:"base_with_key"` // the address with the key in it: with /v1 behind it for OpenAI's format, as it is for Anthropic's
	Socket    string          `json:"socket"`
	Own       map[string]bool `json:"own"` // by format, openai and anthropic: requests need no credential of the program's own
}

// A KeyEnd ends the process of a key as its program ended: done with an output,
// or failed with an error; a code such as LIMIT_MONEY says which limit made it
// stop, and is believed if a call was refused with it.
type KeyEnd struct {
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	Code   abi.Code        `json:"code,omitempty"`
}

// keys are what can be asked of keys.
type keys struct{ *API }

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

func (a keys) newKey(w http.ResponseWriter, r *http.Request) (any, error) {
	var k Key
	if err := decode(w, r, maxRequest, &k); err != nil {
		return nil, err
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	return a.Keys.New(r.Context(), k)
}

// KeyList is the processes that have keys, and where the gateway is.
type KeyList struct {
	Gateway Gateway   `json:"gateway"`
	Keys    []Process `json:"keys"`
}

func (a keys) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := query(r); err != nil {
		return nil, err
	}
	list := KeyList{Gateway: a.Keys.Where(), Keys: []Process{}}
	infos, now := a.Views.List(), time.Now()
	for i := range infos {
		if !a.Keys.Has(&infos[i]) {
			continue
		}
		p, err := a.view(&infos[i], now)
		if err != nil {
			return nil, err
		}
		list.Keys = append(list.Keys, p)
	}
	return list, nil
}

func (a keys) endKey(w http.ResponseWriter, r *http.Request) (any, error) {
	pid, err := pidOf(r)
	if err != nil {
		return nil, err
	}
	var e KeyEnd
	if err := decode(w, r, maxRequest, &e); err != nil {
		return nil, err
	}
	i, err := a.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	if !a.Keys.Has(&i) {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no key: its loop ends it", pid)}
	}
	return done{true}, a.Keys.End(r.Context(), pid, e)
}

// hold answers at once, and stays until the process ends or the client goes.
func (a keys) hold(w http.ResponseWriter, r *http.Request) (any, error) {
	pid, err := pidOf(r)
	if err != nil {
		return nil, err
	}
	if _, err := a.Views.Info(pid); err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return nil, nil // the client is gone
	}
	_ = a.Keys.Hold(r.Context(), pid) // the end of the answer says it
	return nil, nil
}

// Hold stays with a process of a key that wants to be held, until it ends: then
// nil. Those that run its program hold it, so that it ends when they are gone.
func (c *Client) Hold(ctx context.Context, pid abi.Pid) error {
	res, err := c.request(ctx, "GET", keysPath+"/"+strconv.FormatInt(int64(pid), 10)+"/hold", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch _, err = io.Copy(io.Discard, res.Body); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

// NewKey makes a process and its key.
func (c *Client) NewKey(ctx context.Context, k Key) (i KeyInfo, err error) {
	return i, c.call(ctx, "POST", keysPath, k, &i)
}

// EndKey ends the process of a key as its program ended.
func (c *Client) EndKey(ctx context.Context, pid abi.Pid, e KeyEnd) error {
	return c.call(ctx, "POST", keysPath+"/"+strconv.FormatInt(int64(pid), 10)+"/exit", e, nil)
}

// Keys lists the processes that have keys.
func (c *Client) Keys(ctx context.Context) (l KeyList, err error) {
	return l, c.call(ctx, "GET", keysPath, nil, &l)
}

// request writes what a call asked, as it came.
func (k keys) request(w http.ResponseWriter, r *http.Request) (any, error) {
	pid, err := pidOf(r)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(r.PathValue("call"), 10, 64)
	if err != nil || n == 0 {
		return nil, expected("/call", r.PathValue("call"), "the number of a call")
	}
	b, err := k.Request(pid, n)
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b) // a client that went away hears nothing
	}
	return nil, err
}

// Request reads what a call with a key asked, as it came.
func (c *Client) Request(ctx context.Context, pid abi.Pid, call uint64) (b json.RawMessage, err error) {
	return b, c.call(ctx, "GET", fmt.Sprintf("%s/%d/calls/%d", keysPath, pid, call), nil, &b)
}
