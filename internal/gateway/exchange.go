package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/sys"
	"github.com/kern-run/kern/internal/wire"
	"github.com/kern-run/kern/model"
)

// unknownMax is how many output tokens are reserved for a model whose maximum
// is not known.
const unknownMax = 16_384

// An exchange is a request to a model: it came from a program, and its answer
// goes there. It is for one goroutine, that of the call.
type exchange struct {
	g      *Gateway
	visit  *visit
	q      *wire.Request
	call   abi.Call
	chain  chain
	routes []*model.Endpoint
	at     int         // the route in use
	header http.Header // to send
	path   string      // the query of the request, to put behind the path

	attempt             // in hand, or the last
	begun    bool       // the client has the head of the answer
	whole    []byte     // an answer that is not streamed, until it is written down
	tail     []byte     // the last events of a stream, likewise
	refused  *abi.Error // of a tool call that the answer asks for
	carried  bool       // what the tools gave is booked
	told     bool       // the answer ends with an error of the provider's
	gone     bool       // the client does not read any more
	failure  *reply     // the provider's last word that was an error
	deadline time.Time
}

// An attempt is one try at a route.
type attempt struct {
	bound  wire.Bound
	meter  *wire.Meter
	start  time.Time
	first  time.Duration
	stream bool
	ended  bool // the provider said that this is all
}

// A reply is an answer that is an error, as it came.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// exchange makes one of a request that was read.
func (g *Gateway) exchange(v *visit, q *wire.Request) (*exchange, error) {
	routes, err := g.ways.find(q.Face.Vendor(), q.Model)
	if err != nil {
		return nil, &abi.Error{Code: abi.UnknownModel, Message: err.Error(), Where: "/model"}
	}
	x := &exchange{g: g, visit: v, q: q, routes: routes, chain: g.known.store(q)}
	x.header = outbound(v.r.Header)
	x.path = query(v.r.URL.RawQuery)
	own := v.inPath && credential(v.r.Header)
	if !own || routes[0].Keyed() {
		anonymous(x.header)
	}
	for _, e := range routes {
		if e.Usual() && !e.Keyed() && !own {
			return nil, &abi.Error{Code: abi.ModelAuth, Message: fmt.Sprintf("the daemon has no key for %s, and the request brings none of its own", e.Name),
				Hint: "set its variable for the daemon or key_env in kern.yaml, or put Kern's key into the base URL and leave the program its own: kern key show"}
		}
	}
	return x, nil
}

// resource is what a request waits for its turn at: for the daemon's key, or
// for the credential that it brings itself.
func resource(r *model.Endpoint, h http.Header) string {
	if r.Keyed() {
		return sys.Resource(r.Facts, "")
	}
	return sys.Resource(r.Facts, cmp.Or(h.Get("Authorization"), h.Get("X-Api-Key")))
}

func (x *exchange) route() *model.Endpoint { return x.routes[x.at] }

// Plan implements [sys.Relay]: what the request may take at most, by the route
// that is tried next.
func (x *exchange) Plan(v kernel.View) (pl kernel.Plan, e *abi.Error) {
	r := x.route()
	f := r.Facts
	q := x.q.WithModel(r.Model)
	q.Count = model.CounterOf(f.Provider, r.Model)
	x.q = q
	b := q.Bound()
	x.bound = b
	pl = kernel.Plan{Effect: abi.Irreversible, Intent: true, Attempts: x.g.cfg.Attempts, Held: true, Parts: x.chain.parts, Blobs: x.chain.fresh,
		Subject: subject(x.chain.parts), Price: abi.Price(f.Price), Window: int64(f.Window), Resource: resource(r, x.header)}
	if v.Term {
		if pl.Last = len(q.Tools) == 0; !pl.Last {
			return pl, &abi.Error{Code: abi.ProcessEnding, Message: "the process was asked to finish, and may speak once more without tools"}
		}
	}
	if e := x.payable(v, &f); e != nil {
		return pl, e
	}
	in := b.Input
	if !b.Known {
		in = max(in, int64(f.Window)-b.Least)
	}
	if pl.Context = in; !b.Known {
		pl.Context = b.Input // the window is not what the request is known to fill
	}
	pl.Reserve = abi.Usage{abi.Money: b.CostOf(in, f.Price), abi.Tokens: in, abi.InputTokens: in, abi.Steps: 1, abi.ModelCalls: 1}
	if !x.carried {
		pl.Reserve[abi.OutputBytes] = x.brought()
	}
	if b.Choices > 0 {
		pl.Elastic = x.elastic(&f, in)
	}
	return pl, nil
}

// payable refuses what no limit could hold.
func (x *exchange) payable(v kernel.View, f *model.Facts) *abi.Error {
	b := &x.bound
	switch {
	case v.Limited && !f.Priced:
		return &abi.Error{Code: abi.UnknownPrice, Message: "there is a money limit, and no price is known for " + f.Name, Hint: "set its price in kern.yaml, under the provider's models"}
	case (v.Limited || v.Counted) && len(b.Extras) > 0:
		return &abi.Error{Code: abi.UnknownPrice, Message: fmt.Sprintf("there is a limit on money or tokens, and %s has no bound: %s", b.Extras[0].Name, b.Extras[0].Why),
			Where: b.Extras[0].Where, Hint: "ask without it, or under a key without such a limit"}
	case (v.Limited || v.Counted) && !b.Known && f.Window == 0:
		return &abi.Error{Code: abi.UnknownPrice, Message: "there is a limit on money or tokens, and the request has no bound: " + b.Why,
			Hint: "set the model's window in kern.yaml, and all of it will be reserved"}
	}
	return nil
}

// elastic is the output: as much as was asked for, or as the model can give, or
// as is left.
func (x *exchange) elastic(f *model.Facts, in int64) kernel.Elastic {
	b := &x.bound
	hi := b.Output
	if most := int64(f.MaxOutput) * b.Choices; hi == 0 || most > 0 && hi > most {
		hi = most
	}
	if hi == 0 {
		hi = unknownMax * b.Choices
	}
	lo := max(b.Least, min(int64(f.MinOutput)*b.Choices, hi))
	if f.Window > 0 && b.Known {
		hi = min(hi, (int64(f.Window)-in)*b.Choices)
	}
	return kernel.Elastic{Unit: abi.OutputTokens, Min: lo, Max: max(lo, hi), Price: f.Price.Output, Tokens: true}
}

// brought is how much the tools gave that the model has not read yet.
func (x *exchange) brought() (n int64) {
	for _, r := range x.q.Results() {
		n += int64(len(r.Text))
	}
	return n
}

// Run implements [sys.Relay]: the request goes to the provider, and what comes
// goes to the program as it comes. What was received is settled, however it
// ends.
func (x *exchange) Run(ctx context.Context, j *kernel.Job) kernel.Done {
	x.attempt = attempt{bound: x.bound, start: time.Now()}
	up, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	patience := &lull{cancel: cancel}
	defer context.AfterFunc(ctx, patience.begin)()
	r := x.route()
	h := x.header
	if x.at > 0 { // what the program shows the first is not for the others
		h = h.Clone()
		anonymous(h)
	}
	resp, err := r.Post(up, pathOf[x.q.Face]+x.path, h, x.q.Bytes(j.Granted))
	if err != nil {
		return x.lost(ctx, j, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return x.turnedAway(j, resp)
	}
	x.lighten(j)
	x.stream = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	x.meter = x.q.Meter(x.stream)
	x.meter.Hold = true
	x.head(resp)
	fail := x.receive(ctx, j, resp.Body, patience)
	d := x.settled(ctx, j, fail)
	sys.Hear(&d, nil, model.ReadQuota(resp.Header, time.Now()))
	return d
}

// lighten lets go of the request, now that the provider has it: an answer may
// take long, and there may be many.
func (x *exchange) lighten(j *kernel.Job) {
	x.q = wire.Answered(x.q)
	x.chain.fresh, j.Plan.Blobs, x.header, x.failure = nil, nil, nil, nil
}

// lull gives a request that was stopped a moment for what is on its way: as
// long as something comes, and not for long.
type lull struct {
	cancel context.CancelFunc
	mu     sync.Mutex
	timer  *time.Timer
	until  time.Time
}

// How long a stopped answer may be silent before it is cut off, and how long it
// may go on.
const (
	silence = 25 * time.Millisecond
	goOn    = 300 * time.Millisecond
)

func (l *lull) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		return
	}
	l.until = time.Now().Add(goOn)
	l.timer = time.AfterFunc(silence, l.cancel)
}

// heard is told that something came.
func (l *lull) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && time.Now().Before(l.until) {
		l.timer.Reset(silence)
	}
}

var buffers = sync.Pool{New: func() any { return new([2 << 10]byte) }}

// receive reads the answer to its end, or to where it must not go on. The
// client gets what may be shown as soon as it is there; what ends the answer
// waits until it is written down.
func (x *exchange) receive(ctx context.Context, j *kernel.Job, body io.Reader, patience *lull) error {
	pooled := buffers.Get().(*[2 << 10]byte)
	defer buffers.Put(pooled)
	buf := pooled[:]
	if !x.stream {
		buf = make([]byte, 32<<10) // it comes at once, and is soon gone
	}
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if x.first == 0 {
				x.first = time.Since(x.start)
			}
			stopped := ctx.Err() != nil || x.gone
			if stopped {
				patience.heard()
			}
			if len(x.whole)+n > maxBody {
				return errLong
			}
			forward, fail := x.meter.Write(buf[:n])
			if !stopped {
				x.pass(forward)
			}
			if fail != nil {
				return fail
			}
			if e := x.admit(ctx, stopped); e != nil {
				return e
			}
			if x.gone && !stopped {
				patience.begin()
			}
			if j.Granted > 0 && x.meter.Over(j.Granted) {
				return errOver
			}
		}
		switch {
		case err == io.EOF:
			rest, fail := x.meter.End()
			x.ended = fail == nil
			x.pass(rest)
			if e := x.admit(ctx, ctx.Err() != nil || x.gone); e != nil {
				return e
			}
			return fail
		case err != nil:
			return err
		}
	}
}

var (
	errOver = errors.New("the model gave more than it was granted")
	errLong = &model.Error{Kind: model.Malformed, Message: "the answer is larger than 64 MiB"}
)

// admit makes system calls of the tool calls of an answer that is whole, and
// lets them be seen: all, or none.
func (x *exchange) admit(ctx context.Context, stopped bool) error {
	if stopped || x.meter.Held() == 0 || !x.meter.Done() {
		return nil
	}
	calls := x.meter.Ready()
	if e := x.g.wishes(ctx, x.visit.session, calls); e != nil {
		x.refused = e
		return e
	}
	x.pass(x.meter.Release())
	return nil
}

// pass hands on what may be seen now. Of a stream the last event is kept back.
func (x *exchange) pass(b []byte) {
	switch {
	case len(b) == 0:
	case !x.stream:
		x.whole = append(x.whole, b...)
	case x.meter.Done() && x.meter.Held() == 0:
		x.tail = append(x.tail, b...)
	default:
		x.write(b)
	}
}

// settled is what the attempt came to.
func (x *exchange) settled(ctx context.Context, j *kernel.Job, fail error) (d kernel.Done) {
	s := x.meter.Seen()
	d.First = x.first
	j.Plan.Attempts = 0 // the provider took it: there is no second try
	stopped := ctx.Err() != nil && !x.ended
	d.Usage = x.booked(j, x.taken(j, &s), s.Hour)
	var me *model.Error
	var ke *abi.Error
	garbled := errors.As(fail, &me) && me.Kind == model.Malformed
	switch {
	case errors.As(fail, &ke): // a tool call was refused: the answer itself is there
		d.Value = value(&s)
		return d
	case s.Failure != nil: // the provider's own word, which the client has
		x.told, d.Err = true, sys.ModelError(s.Failure)
	case fail == nil && x.ended:
		d.Value = value(&s)
		return d
	case !s.Reported && (x.bound.Hidden || !x.stream || garbled):
		d.Err = &abi.Error{Code: abi.OutcomeUnknown, Message: "the answer was cut off, and what it took until then cannot be known"}
	case stopped || x.gone:
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the answer was cut off by a signal, a limit, or the program", Got: clip(s.Text)}
	case errors.Is(fail, errOver):
		d.Err = &abi.Error{Code: abi.LimitOutputTokens, Message: fmt.Sprintf("the model gave more than the %d tokens it was granted", j.Granted), Got: clip(s.Text)}
	case errors.As(fail, &me):
		d.Err = sys.ModelError(me)
	default:
		d.Err = &abi.Error{Code: abi.ModelNetwork, Message: "the answer broke off"}
	}
	return d
}

// taken is what the provider says that it took, and our own count where it
// says nothing, or that what came was nothing.
func (x *exchange) taken(j *kernel.Job, s *wire.Seen) model.Usage {
	u := s.Usage
	if !s.HasInput || u.Input+u.CacheRead+u.CacheWrite == 0 {
		u.Input = x.bound.Input
	}
	if u.Output == 0 {
		u.Output = int64(model.CountText(s.Text))
		for _, c := range s.Calls {
			u.Output += int64(model.CountText(c.Name) + model.CountText(c.Args))
		}
	}
	if !x.ended && !s.Reported {
		u.Output = min(j.Granted, u.Output+margin(u.Output))
	}
	return u
}

// margin is what may have been said and not yet have come when an answer was
// cut off: a sixteenth of it, and a few words.
func margin(n int64) int64 { return n/16 + 16 }

// booked is what was taken, in the units of accounts. What is kept in the
// provider's cache for an hour costs twice its input.
func (x *exchange) booked(j *kernel.Job, u model.Usage, hour int64) abi.Usage {
	p := x.route().Facts.Price
	b := sys.Booked(j, p, u)
	if hour > 0 {
		v := u
		v.CacheWrite -= hour
		b[abi.Money] = p.Cost(v) + model.Price{Input: 2 * p.Input}.Cost(model.Usage{Input: hour})
	}
	b[abi.OutputBytes], x.carried = j.Plan.Reserve[abi.OutputBytes], true
	return b
}

// lost is a request that found no answer. Where nobody saw it, it took nothing.
func (x *exchange) lost(ctx context.Context, j *kernel.Job, err error) kernel.Done {
	var me *model.Error
	d := kernel.Done{Err: &abi.Error{Code: abi.ModelNetwork, Message: err.Error()}}
	unsent := errors.As(err, &me) && me.Usage != nil
	switch {
	case unsent:
	case ctx.Err() != nil:
		d.Err = &abi.Error{Code: abi.OutcomeUnknown, Message: "the request was sent, and stopped before an answer came"}
	default:
		d.Usage = x.booked(j, model.Usage{Input: x.bound.Input}, 0)
	}
	x.next()
	return d
}

// turnedAway is an answer that is an error. Providers do not bill those.
func (x *exchange) turnedAway(j *kernel.Job, resp *http.Response) kernel.Done {
	const most = 256 << 10
	body, _ := io.ReadAll(io.LimitReader(resp.Body, most))
	r := x.route()
	me := r.Refusal(resp.StatusCode, resp.Header, body)
	me.Message = conceal(me.Message, x.visit.r.Header)
	x.failure = &reply{resp.StatusCode, resp.Header, []byte(r.Clean(string(body)))}
	if resp.StatusCode < http.StatusBadRequest { // a redirect: the program would follow it, and take Kern's key along
		x.failure = nil
	}
	d := kernel.Done{Err: sys.ModelError(me), Usage: abi.Usage{abi.Steps: j.Plan.Reserve[abi.Steps], abi.ModelCalls: 1}}
	sys.Hear(&d, me, model.Quota{})
	if me.Kind == model.Overloaded {
		x.next()
	}
	return d
}

// next is the route for another try.
func (x *exchange) next() { x.at = (x.at + 1) % len(x.routes) }
