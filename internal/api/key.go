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

// KeyService issues and ends keys. The gateway implements it.
type KeyService interface {
	New(ctx context.Context, k Key) (KeyInfo, error)
	End(ctx context.Context, pid abi.Pid, e KeyEnd) error
	Has(i *kernel.Info) bool // the process has a key
	Where() GatewayAddress
	Hold(ctx context.Context, pid abi.Pid, tell func(kernel.Orders) error) error
}

// A GatewayAddress is where programs reach the gateway.
type GatewayAddress struct {
	OpenAI    string `json:"openai_base_url"`
	Anthropic string `json:"anthropic_base_url"`
	Socket    string `json:"socket"`
}

// A Key is a request for a new key and its process.
type Key struct {
	Name     string       `json:"name,omitempty"`
	Limits   abi.Limits   `json:"limits,omitzero"`
	Account  string       `json:"account,omitempty"`
	Priority int          `json:"priority"`
	Watchdog abi.Watchdog `json:"watchdog,omitzero"` // default strict, because warnings cannot reach the model
	Parent   abi.Pid      `json:"parent,omitempty"`  // a process with a key that becomes the parent; 0: none
	Hold     bool         `json:"hold,omitempty"`    // the process ends when its last holder disconnects; see [KeyClient.Hold]
	Title    string       `json:"title,omitempty"`   // what runs with the key, for lists
}

// KeyInfo is a new key. No other answer has the key itself.
type KeyInfo struct {
	Pid       abi.Pid                 `json:"pid"`
	Key       string                  `json:"key"`
	OpenAI    string                  `json:"openai_base_url"`
	Anthropic string                  `json:"anthropic_base_url"`
	InPath    string                  `json:"base_with_key"` // base URL that contains the key; OpenAI's format needs /v1 after it
	Socket    string                  `json:"socket"`
	Ways      map[string]provider.Way `json:"ways"` // by format, openai and anthropic
}

// A KeyEnd ends the process of a key in the way that its program ended: done with
// an output, or failed with an error. A code such as LIMIT_MONEY names the limit
// that stopped it, and is accepted only if a call was refused with it.
type KeyEnd struct {
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	Code   abi.Code        `json:"code,omitempty"`
}

// A keyHandler answers requests about keys.
type keyHandler struct {
	server *Server
	held   *authority
}

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
	case len(k.Title) > abi.MaxTitle:
		return expected("/title", k.Title, fmt.Sprintf("at most %d bytes", abi.MaxTitle))
	case !slices.Contains([]string{"", "smart", "strict", "off"}, w.Profile):
		return expected("/watchdog/profile", w.Profile, "smart, strict or off")
	case w.Repeat != 0 && w.Repeat < 2:
		return expected("/watchdog/repeat", strconv.Itoa(w.Repeat), "2 or more")
	case k.Parent != 0 && k.Account != "":
		return expected("/account", k.Account, "none, because a child is charged to its parent")
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
	if err := checkParent(r.Context(), k.Parent); err != nil {
		return nil, err
	}
	i, err := h.server.Keys.New(r.Context(), k)
	if err == nil && k.Hold {
		h.held.holders.add(r.Context(), i.Pid) // before its program can make a request
	}
	return i, err
}

// KeyList is the list of processes with keys, and the addresses of the gateway.
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
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no key, so only its own loop ends it", pid)}
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
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("process %d has no key", pid), Hint: "kern key list -a lists the processes with keys"}
	}
	return h.server.view(&i, time.Now())
}

// hold answers at once and stays until the client disconnects. It sends the orders
// to the process as lines of JSON, its exit as the last.
func (h keyHandler) hold(w http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	_, err := h.server.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	h.held.holders.add(r.Context(), pid)
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, c: http.NewResponseController(w)}
	if err := s.c.Flush(); err != nil {
		return nil, nil // the client is gone
	}
	var last kernel.Orders
	var once sync.Once
	err = h.server.Keys.Hold(r.Context(), pid, func(o kernel.Orders) error {
		if last = o; o.Term || o.Exit != "" {
			once.Do(func() { go keepWaking(r.Context()) })
		}
		return s.line(o)
	})
	switch {
	case err == nil && last.Exit != "":
		<-r.Context().Done() // the client disconnects after its program ended
	case err != nil && s.err == nil:
		_ = s.line(failure{asError(err)}) // fails if the client is gone
	}
	return nil, nil
}

// wakeInterval is how often a client that has not obeyed is woken.
const wakeInterval = time.Second

// keepWaking continues the client of a request until it disconnects. A client that
// was stopped with Ctrl-Z could not read that its program must end.
func keepWaking(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	for {
		wake(c)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wakeInterval):
		}
	}
}

var errOver = errors.New("the process has ended")

// Hold keeps the process of a key alive, and calls heard with each order to it,
// also while the journal cannot be written. It returns nil when the process ends.
// A process that was made with [Key.Hold] ends when its holder is gone.
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

// request answers with the request of a call, unchanged.
func (h keyHandler) request(w http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	n, err := callNumber(r)
	if err != nil {
		return nil, err
	}
	b, err := h.server.Stored.Request(pid, n)
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b) // fails if the client is gone
	}
	return nil, err
}

// callNumber reads the call in the path of a request.
func callNumber(r *http.Request) (uint64, error) {
	n, err := strconv.ParseUint(r.PathValue("call"), 10, 64)
	if err != nil || n == 0 {
		return 0, expected("/call", r.PathValue("call"), "the number of a call")
	}
	return n, nil
}

// output answers with all that a tool printed in a call, as a text.
func (h keyHandler) output(_ http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	n, err := callNumber(r)
	if err != nil {
		return nil, err
	}
	b, err := h.server.Stored.Output(pid, n)
	return string(b), err
}

// Request reads the request of a call that came with a key, unchanged.
func (c KeyClient) Request(ctx context.Context, pid abi.Pid, call uint64) (json.RawMessage, error) {
	return ask[json.RawMessage](ctx, c.conn, "GET", fmt.Sprintf("%s/%d/calls/%d", keysPath, pid, call), nil)
}

// Output reads all that a tool printed in a call of any process.
func (c KeyClient) Output(ctx context.Context, pid abi.Pid, call uint64) (string, error) {
	return ask[string](ctx, c.conn, "GET", procPath(pid, fmt.Sprintf("/calls/%d/output", call)), nil)
}
