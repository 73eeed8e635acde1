// Package gateway is the HTTP server that programs use in place of a provider of
// models. A program runs under a kernel without a changed line, because the gateway
// speaks the formats of OpenAI and Anthropic. Every request is a system call of a
// process.
//
// Each key belongs to one process. The limits of the process bind every request with
// the key, and its journal records every request. When the process ends, the key
// opens nothing any more.
//
// A request becomes a call of the row model. The kernel reserves its bound before
// the gateway sends it on. Each tool call in an answer becomes a call of the row
// tool before the program sees it whole. A call that the kernel refuses
// becomes a text of the answer. A call that is admitted ends with the result that a later
// request brings. The journal stores the text of a request by content, so the size
// of a stored conversation grows with its length, and not with the square of it.
//
// The gateway promises:
//
//   - It sends to a provider only what the kernel admitted and recorded. It gives
//     the program the end of an answer only after the kernel recorded the answer.
//
//   - It passes the body of a request unchanged, with two exceptions. A limit on
//     money or tokens sets or lowers the output maximum, and a stream of Chat is
//     asked for its usage. It passes an answer byte for byte. Only an answer that
//     ended at a lowered maximum gets a member, kern, that names the limit.
//
//   - Keys of providers never leave the gateway, and keys of the gateway are never
//     sent on. A program cannot choose the account that a provider's key pays from.
//
//   - A client without a valid key learns nothing.
//
// The files:
//
//	gateway.go    the path of a request: its origin, its process, its endpoint
//	body.go       the body of a request, and the budget of its bytes
//	refuse.go     requests that are refused before their body is read
//	connections.go the bound on connections
//	endpoints.go  the endpoints that ask no model
//	key.go        keys and children
//	hold.go       processes that end when no client holds them
//	session.go    a process as the gateway sees it: call numbers, pending tool calls
//	upstream.go   a request to a model: its bound, and how it runs
//	routes.go     the cached routes of a model
//	tools.go      a tool call that the program carries out
//	stored.go     conversations stored by content
//	said.go       what an answer says, for the watchdog
//	learned.go    what earlier requests used, as a bound for later ones
//	answer.go     the answer on its way to the program
//	error.go      errors in the format of the client
//	headers.go    the headers that are sent on, and the headers that are not
//	listen.go     addresses
//	deadline.go   the time that a client has to read
package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/live"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/syscalls"
)

// Kernel is the part of the kernel that the gateway uses.
type Kernel interface {
	Do(ctx context.Context, c abi.Call) abi.Result
	DoVia(ctx context.Context, c abi.Call, via any) abi.Result
	View
}

// View is the part of [Kernel] that reads processes.
type View interface {
	Where(pid abi.Pid) (kernel.Where, error)
	Info(pid abi.Pid) (kernel.Info, error)
	State
}

// State is the part of [View] that reads usage, limits, ends, blobs and orders.
type State interface {
	Stands(pid abi.Pid) (used abi.Usage, left abi.Limits)
	Ending(pid abi.Pid) *abi.Error
	Bytes(d abi.Data) ([]byte, error)
	Orders(ctx context.Context, pid abi.Pid, was kernel.Orders) (kernel.Orders, error)
}

// Config configures a gateway. All fields but Attempts, Live and Pulse are required.
type Config struct {
	Kernel    Kernel
	Ring      *Ring // the keys that are in the journal
	Models    provider.Config
	Spawn     func(ctx context.Context, p abi.Agent, k Key) (abi.Pid, error)
	Attempts  int // at a model before its error is the answer; 0: five
	MinOutput abi.MinOutput
	Live      *live.Channel // gets text as it streams; nil: no channel does
	Pulse     time.Duration // between two heartbeats of a stream that is held back; 0: ten seconds

	// Away returns how long a resource is still in backoff.
	Away func(resource string) time.Duration

	Bytes int64 // of requests that one tree of processes may store in the journal; 0: 1 GiB
}

// A Gateway serves programs. It is safe for concurrent use.
type Gateway struct {
	cfg         Config
	storedBlobs storedBlobs // blobs that the journal already has
	learned     learnedBounds
	answered    answered
	routes      routeCache
	holds
	base atomic.Pointer[string]

	ctx    context.Context // of open tool calls
	cancel context.CancelFunc
	open   sync.WaitGroup

	sessions sessionTable
	budget   *budget
}

// New returns the gateway of a kernel, with the keys that its journal holds.
func New(cfg Config) *Gateway {
	if cfg.Attempts == 0 {
		cfg.Attempts = 5
	}
	if cfg.Pulse == 0 {
		cfg.Pulse = 10 * time.Second
	}
	g := &Gateway{cfg: cfg, budget: newBudget(cfg.Bytes)}
	g.routes.cfg = cfg.Models
	g.storedBlobs.Max, g.learned.Max, g.learned.heard.Max, g.answered.Max = maxRemembered, maxRemembered, maxRemembered>>6, maxRemembered
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.kernel, g.end = cfg.Kernel, func(pid abi.Pid, a syscalls.ExitArgs) error { return g.End(g.ctx, pid, a) }
	cfg.Ring.miss(g)
	return g
}

// Close cancels every open tool call and waits until the kernel has ended all of them.
func (g *Gateway) Close() {
	g.cancel()
	g.Rest()
	g.open.Wait()
}

// The gateway's own headers. The gateway sends none of them on.
const (
	headers       = "X-Kern-"
	KeyHeader     = "X-Kern-Key"     // the key, for a request with a credential of its own
	ChildHeader   = "X-Kern-Child"   // the name of the child that makes the request
	LimitsHeader  = "X-Kern-Limits"  // the limits of that child; read only when the gateway creates it
	pidHeader     = "X-Kern-Pid"     // in answers: the process
	callHeader    = "X-Kern-Call"    // in answers: the number of the call
	spentHeader   = "X-Kern-Spent"   // in answers: the usage of the process so far
	leftHeader    = "X-Kern-Left"    // in answers: what remains of each limit
	warningHeader = "X-Kern-Warning" // in answers: the warning of the watchdog
	loweredHeader = "X-Kern-Lowered" // in answers: the output maximum that a limit lowered
	boundHeader   = "X-Kern-Bound"   // in counts of tokens: the most that the provider may bill
	cutHeader     = "X-Kern-Cut"     // in whole answers: the answer ended at that maximum
)

// An endpoint is a path that the gateway serves.
type endpoint struct {
	method string
	format format.Format // of answers and errors; empty: errorFormat guesses it
	serve  func(g *Gateway, v *inbound)
}

var endpoints = map[string]endpoint{
	"/chat/completions":       {"POST", format.Chat, (*Gateway).relayed},
	"/responses":              {"POST", format.Responses, (*Gateway).relayed},
	"/embeddings":             {"POST", format.Embeddings, (*Gateway).relayed},
	"/messages":               {"POST", format.Messages, (*Gateway).relayed},
	"/messages/count_tokens":  {"POST", format.Messages, (*Gateway).counted},
	"/responses/input_tokens": {"POST", format.Responses, (*Gateway).counted},
	"/models":                 {"GET", "", (*Gateway).models},
	"/kern/v1/keys":           {"POST", format.Chat, (*Gateway).derive},
	"/kern/v1/self":           {"GET", format.Chat, (*Gateway).self},
}

// An inbound is a request of a program on its way through the gateway.
type inbound struct {
	w       http.ResponseWriter
	r       *http.Request
	format  format.Format
	kernel  State
	session *session
	rest    string // the name of a model in the path, after the path of the endpoint
	own     bool   // the key is in the path or in KeyHeader, so other credentials are the program's own

	budget *budget
	held   int64 // bytes of the body that are taken from the budget
	whole  bool  // the body was read
}

// ServeHTTP implements [http.Handler]. It checks the origin of the request, finds
// its process by the key, and calls the endpoint at its path.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &inbound{w: &deadlineWriter{ResponseWriter: w}, r: r, kernel: g.cfg.Kernel, budget: g.budget}
	v.hurry()
	defer v.giveBack()
	key, path := splitPath(r.URL.Path)
	if name, ok := strings.CutPrefix(path, "/models/"); ok {
		path, v.rest = "/models", name
	}
	// The format comes first, because every error below is written in it.
	in, there := endpoints[path]
	if v.format = in.format; v.format == "" {
		v.format = errorFormat(r)
	}
	if e := foreign(r); e != nil {
		v.fail(e)
		return
	}
	if key == "" {
		key = r.Header.Get(KeyHeader)
	}
	if v.own = key != ""; !v.own {
		key = keyOf(r.Header)
	}
	// The key comes before the path, because a client without a key learns nothing.
	pid, ok := g.cfg.Ring.find(key)
	if !ok {
		v.fail(badKey)
		return
	}
	defer serving(r)()
	switch e := spent(g.cfg.Kernel, pid); {
	case e != nil:
		v.fail(e)
		return
	case !there:
		v.fail(&abi.Error{Code: abi.UnknownRow, Message: "there is nothing at this path; expected /v1/chat/completions, /v1/responses, /v1/responses/input_tokens, /v1/embeddings, /v1/models, /v1/messages or /v1/messages/count_tokens"})
		return
	case r.Method != in.method:
		w.Header().Set("Allow", in.method)
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			v.fail(noSocket)
			return
		}
		v.fail(&abi.Error{Code: abi.InvalidCall, Message: "expected the method " + in.method})
		return
	}
	if err := g.enter(v, pid); err != nil {
		v.fail(err)
		return
	}
	in.serve(g, v)
}

var badKey = &abi.Error{Code: abi.BadKey, Message: "this needs the key of a process", Hint: "make one with: kern key new --money 5"}

// spent returns the reason that a key opens nothing any more; nil while the key is
// valid. A revoked key looks like an unknown key. A program learns only that its
// process ended, for example at a limit.
func spent(k State, pid abi.Pid) *abi.Error {
	e := k.Ending(pid)
	if e != nil && e.Code == abi.ProcessKilled {
		return badKey
	}
	return e
}

// enter finds the process of a request: the process of the key, or its named child.
func (g *Gateway) enter(v *inbound, pid abi.Pid) (err error) {
	if v.session, err = g.session(pid); err != nil {
		return err
	}
	_, child := v.r.Header[ChildHeader]
	if _, limited := v.r.Header[LimitsHeader]; limited && !child { // the limits would bind no process
		return &abi.Error{Code: abi.InvalidArguments, Message: "there are limits and no child: expected its name in " + ChildHeader + "; those of the key itself are lowered by kern key narrow", Where: LimitsHeader}
	} else if !child {
		return nil
	}
	l, err := readLimits(v.r.Header.Get(LimitsHeader))
	if err == nil {
		v.session, err = g.named(v.r.Context(), v.session, v.r.Header.Get(ChildHeader), l)
	}
	return err
}

// splitPath splits a path such as /k/KEY/v1/models into the key and the path of an
// endpoint.
func splitPath(path string) (key, rest string) {
	if after, ok := strings.CutPrefix(path, "/k/"); ok {
		key, path, _ = strings.Cut(after, "/")
		path = "/" + path
	}
	if strings.HasPrefix(path, "/kern/") {
		return key, path
	}
	if after, ok := strings.CutPrefix(path, "/v1/"); ok {
		path = "/" + after
	}
	return key, path
}

// keyOf returns the key in the credential headers of a request.
func keyOf(h http.Header) string {
	if k := h.Get("X-Api-Key"); strings.HasPrefix(k, keyPrefix) {
		return k
	}
	k := h.Get("Authorization")
	if scheme, after, ok := strings.Cut(k, " "); ok && strings.EqualFold(scheme, "Bearer") {
		k = after
	}
	return strings.TrimSpace(k)
}

// errorFormat guesses the error format of a request whose path has no format.
func errorFormat(r *http.Request) format.Format {
	if r.Header.Get("Anthropic-Version") != "" || r.Header.Get("X-Api-Key") != "" {
		return format.Messages
	}
	return format.Chat
}

// relayed serves a request to a model.
func (g *Gateway) relayed(v *inbound) {
	if e := v.refuseEarly(g.cfg.Kernel); e != nil {
		v.fail(e)
		return
	}
	body, err := v.body()
	if err != nil {
		v.fail(err)
		return
	}
	q, err := format.Parse(v.format, body)
	if err != nil {
		v.fail(err)
		return
	}
	// The results in the request end the tool calls of an earlier answer first,
	// because they may end the process.
	s := v.session
	if q, err = s.complete(q); err != nil {
		v.fail(err)
		return
	}
	warning, err := g.results(v.r.Context(), s, q)
	if err != nil {
		v.fail(err)
		return
	}
	x, err := g.newUpstreamCall(v, q)
	if err != nil {
		v.fail(err)
		return
	}
	if warning != "" {
		v.w.Header().Set(warningHeader, warning)
	}
	args, err := json.Marshal(syscalls.ModelArgs{Relay: &syscalls.Relayed{Format: string(q.Format), Model: q.Model, Messages: len(q.Messages)}})
	if err != nil {
		v.fail(err)
		return
	}
	x.call = abi.Call{Pid: s.pid, N: s.number(), Row: "model", Args: args}
	x.answer.call, x.raw = x.call, body
	fresh := x.stored.bytes()
	res := g.cfg.Kernel.DoVia(v.r.Context(), x.call, x)
	switch {
	case x.shortened: // the journal has none of the blobs
		fresh = maxRefused
	case !momentary(res):
		g.storedBlobs.add(x.stored.pid, x.stored.parts[x.stored.named:])
	case res.Err.Code == abi.Interrupted: // the client is still there, so the daemon is closing
		res.Err = closing
	}
	s.share.store(fresh)
	x.answer.finish(res)
}

var closing = &abi.Error{Code: abi.DaemonGone, Message: "the daemon is closing, and nothing was sent", Hint: "ask again when it is back"}

// momentary reports whether the kernel refused a call without recording it.
func momentary(r abi.Result) bool {
	if r.Outcome != abi.Refused || r.Err == nil {
		return false
	}
	switch r.Err.Code {
	case abi.DaemonGone, abi.Interrupted, abi.StorageFull, abi.StorageBroken, abi.UnknownProcess, abi.InvalidCall:
		return true
	}
	return false
}
