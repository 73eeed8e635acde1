// Package gateway lets programs that were written for a provider of models run
// under a kernel, without a changed line: it speaks the formats of OpenAI and
// Anthropic, and every request that enters is a system call of a process.
//
// A key is a process: its limits bind what comes with the key, its journal has
// it all, and when the process ends the key opens nothing any more. A request
// becomes a call of the row model, with its worst case reserved before it is
// sent on; the tool calls in an answer become calls of the row tool before the
// program sees them whole, and end with the results that later requests bring.
// The text of a request is stored by content, so that a conversation costs what
// it is long, and not the square of it.
//
// It promises:
//
//   - nothing is sent to a provider that the kernel has not admitted and
//     written down, and an answer's end is given when it is written down too;
//
//   - the body of a request passes as it came, but for the output maximum where
//     a limit on money or tokens sets or lowers it, and for the usage that a
//     stream of Chat is asked for; an answer passes byte for byte;
//
//   - keys of providers do not leave, keys of this gateway are not sent on, and
//     whose account a provider's key is used for is not the program's to say;
//
//   - a client without a good key learns nothing.
//
//     gateway.go   the way of a request: where it comes from, whose it is
//     key.go       keys and children
//     session.go   a process, as the gateway sees it: numbers, open tool calls
//     exchange.go  a request to a model: what it may take, and how it runs
//     wish.go      a tool call that the program carries out
//     chain.go     conversations stored by content
//     learn.go     what requests took, for those that come after
//     answer.go    headers, errors
//     listen.go    addresses
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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

// Kernel is what the gateway asks of the kernel.
type Kernel interface {
	Do(ctx context.Context, c abi.Call) abi.Result
	DoVia(ctx context.Context, c abi.Call, via any) abi.Result
	View
}

// View is what it looks at.
type View interface {
	Where(pid abi.Pid) (kernel.Where, error)
	Info(pid abi.Pid) (kernel.Info, error)
	State
}

// State is how processes stand.
type State interface {
	Stands(pid abi.Pid) (used abi.Usage, left abi.Limits)
	Ending(pid abi.Pid) *abi.Error
	Bytes(d abi.Data) ([]byte, error)
	Orders(ctx context.Context, pid abi.Pid, was kernel.Orders) (kernel.Orders, error)
}

// Config is what a gateway is handed. All but Attempts and Pulse is needed.
type Config struct {
	Kernel   Kernel
	Ring     *Ring // the keys that are in the journal
	Models   provider.Config
	Spawn    func(ctx context.Context, p abi.Agent, k Key) (abi.Pid, error)
	Attempts int           // at a model before its error is the answer; 0: five
	Live     *live.Channel // where text is published as it streams; nil: nowhere
	Pulse    time.Duration // of a stream that is held back; 0: ten seconds

	// Away is how long nothing comes of waiting for a resource.
	Away func(resource string) time.Duration
}

// A Gateway serves programs. It is safe for concurrent use.
type Gateway struct {
	cfg         Config
	storedBlobs storedBlobs // in the journal, so that they are not given to it again
	learned     learnedBounds
	routes      routeCache
	holds
	base atomic.Pointer[string]

	ctx    context.Context // of open tool calls
	cancel context.CancelFunc
	open   sync.WaitGroup

	mu       sync.Mutex
	sessions map[abi.Pid]*session
	sweep    int // at how many sessions those that have ended are forgotten
}

// New returns the gateway of a kernel, with the keys that were found in its journal.
func New(cfg Config) *Gateway {
	if cfg.Attempts == 0 {
		cfg.Attempts = 5
	}
	if cfg.Pulse == 0 {
		cfg.Pulse = 10 * time.Second
	}
	g := &Gateway{cfg: cfg, sessions: make(map[abi.Pid]*session)}
	g.routes.cfg = cfg.Models
	g.storedBlobs.Max, g.learned.Max = maxRemembered, maxRemembered
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.kernel, g.end = cfg.Kernel, func(pid abi.Pid, a syscalls.ExitArgs) error { return g.End(g.ctx, pid, a) }
	cfg.Ring.miss(g)
	return g
}

// Close waits until no call is open; the kernel has ended them.
func (g *Gateway) Close() {
	g.cancel()
	g.Rest()
	g.open.Wait()
}

// The gateway's own headers. None of them is sent on.
const (
	headers       = "X-Kern-"
	KeyHeader     = "X-Kern-Key"     // the key, of a request with a credential of its own
	ChildHeader   = "X-Kern-Child"   // the name of a child of the key's process, which makes the request
	LimitsHeader  = "X-Kern-Limits"  // its limits, when it is made
	pidHeader     = "X-Kern-Pid"     // of answers: the process,
	callHeader    = "X-Kern-Call"    // the number of the call,
	spentHeader   = "X-Kern-Spent"   // what the process took so far,
	leftHeader    = "X-Kern-Left"    // what is left of what is limited,
	warningHeader = "X-Kern-Warning" // and what the watchdog says
)

// Bounds of a request.
const (
	maxBody  = 64 << 20
	bodyTime = 60 * time.Second
)

// An endpoint is a path that the gateway serves.
type endpoint struct {
	method string
	format format.Format // of errors too; empty: as the request looks
	serve  func(g *Gateway, v *inbound)
}

var endpoints = map[string]endpoint{
	"/chat/completions":      {"POST", format.Chat, (*Gateway).relayed},
	"/responses":             {"POST", format.Responses, (*Gateway).relayed},
	"/embeddings":            {"POST", format.Embeddings, (*Gateway).relayed},
	"/messages":              {"POST", format.Messages, (*Gateway).relayed},
	"/messages/count_tokens": {"POST", format.Messages, (*Gateway).counted},
	"/models":                {"GET", "", (*Gateway).models},
	"/kern/v1/keys":          {"POST", format.Chat, (*Gateway).derive},
	"/kern/v1/self":          {"GET", format.Chat, (*Gateway).self},
}

// An inbound is a request of a program on its way through the gateway.
type inbound struct {
	w       http.ResponseWriter
	r       *http.Request
	format  format.Format
	kernel  State
	session *session
	rest    string // of the path, behind that of the entrance
	own     bool   // the key stood beside the credentials, which are the program's own: in the path, or in a header of ours
}

// ServeHTTP implements [http.Handler]: where a request may come from, what it
// wants, its process, and then the endpoint that serves it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &inbound{w: &deadlineWriter{ResponseWriter: w}, r: r, kernel: g.cfg.Kernel}
	v.hurry()
	key, path := splitPath(r.URL.Path)
	if name, ok := strings.CutPrefix(path, "/models/"); ok {
		path, v.rest = "/models", name
	}
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
	pid, ok := g.cfg.Ring.find(key)
	if !ok {
		v.fail(badKey)
		return
	}
	switch e := spent(g.cfg.Kernel, pid); {
	case e != nil:
		v.fail(e)
		return
	case !there:
		v.fail(&abi.Error{Code: abi.UnknownRow, Message: "there is nothing at this path; expected /v1/chat/completions, /v1/responses, /v1/embeddings, /v1/models, /v1/messages or /v1/messages/count_tokens"})
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

// spent says why a key opens nothing any more; nil while it does. A revoked key is
// unknown. The program learns that its key came to a limit, and gets nothing else.
func spent(k State, pid abi.Pid) *abi.Error {
	e := k.Ending(pid)
	if e != nil && e.Code == abi.ProcessKilled {
		return badKey
	}
	return e
}

// enter finds the process of a visit: that of the key, or a child of it.
func (g *Gateway) enter(v *inbound, pid abi.Pid) (err error) {
	if v.session, err = g.session(pid); err != nil {
		return err
	}
	_, child := v.r.Header[ChildHeader]
	if _, limited := v.r.Header[LimitsHeader]; limited && !child { // they would hold nobody
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

// splitPath takes the key out of a path such as /k/KEY/v1/models, and what
// remains to the name of an entrance.
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

// keyOf is the key that a request shows in a header.
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

// errorFormat guesses in which format a request that is nowhere wants its error.
func errorFormat(r *http.Request) format.Format {
	if r.Header.Get("Anthropic-Version") != "" || r.Header.Get("X-Api-Key") != "" {
		return format.Messages
	}
	return format.Chat
}

// hurry bounds the time in which the body must come. The bound is taken away
// only when all of it is there: of a request that is refused before, the server
// still reads what follows, and would wait for it for ever.
func (v *inbound) hurry() {
	c, until := http.NewResponseController(v.w), time.Now().Add(bodyTime)
	_ = c.SetReadDeadline(until)  // a test's recorder has none
	_ = c.SetWriteDeadline(until) // the server itself asks for a body that waits to be asked for
}

// body reads what came, in the time and to the size that are allowed.
func (v *inbound) body() ([]byte, error) {
	if v.r.ContentLength > maxBody {
		return nil, tooLarge
	}
	if enc := v.r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: "expected a body that is not compressed", Got: abi.Clip(enc)}
	}
	b, err := readAll(http.MaxBytesReader(v.w, v.r.Body, maxBody), v.r.ContentLength)
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, tooLarge
	case err != nil:
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: "the request broke off"}
	}
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Time{}) // as above
	return b, nil
}

var tooLarge = &abi.Error{Code: abi.InvalidArguments, Message: "the request is larger than 64 MiB"}

// readAll is io.ReadAll for a body whose size was told, in one piece as far as
// that may be believed.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const believed = 1 << 20
	b := make([]byte, 0, max(512, min(size+1, believed)))
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// relayed serves a request to a model.
func (g *Gateway) relayed(v *inbound) {
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
	s := v.session
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
	x.answer.call = x.call
	res := g.cfg.Kernel.DoVia(v.r.Context(), x.call, x)
	switch {
	case !momentary(res):
		g.storedBlobs.add(x.stored.parts[x.stored.named:])
	case res.Err.Code == abi.Interrupted: // the client is still there, so the daemon is closing
		res.Err = closing
	}
	x.answer.finish(res)
}

var closing = &abi.Error{Code: abi.DaemonGone, Message: "the daemon is closing, and nothing was sent", Hint: "ask again when it is back"}

// momentary says that nothing of a call was written down.
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
