package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/internal/syscalls"
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
	q      *format.Request
	call   abi.Call
	chain  chain
	header http.Header // to send
	path   string      // the query of the request, to put behind the path
	own    bool        // it brings a credential of its own

	routes  []*provider.Endpoint
	way     quota.RoutePicker // which of them it goes by
	attempt                   // in hand, or the last
	begun   bool              // the client has the head of the answer
	whole   []byte            // an answer that is not streamed, until it is written down
	tail    []byte            // the last events of a stream, likewise
	refused *abi.Error        // of a tool call that the answer asks for
	carried bool              // what the tools gave is booked
	told    bool              // the answer ends with an error of the provider's
	gone    bool              // the client does not read any more
	failure *reply            // the provider's last word that was an error
}

// An attempt is one try at a route.
type attempt struct {
	bound  format.Bound
	free   bool // no limit binds what it may say
	pays   bool // it is the program's own credential that opens the route
	meter  *format.Meter
	start  time.Time
	first  time.Duration
	stream bool
	ended  bool // the provider said that this is all
	lesson abi.Hash
	spoke  time.Time // when the client was last written to
	over   bool      // the provider has nothing more on its way
}

// A reply is an answer that is an error, as it came.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// exchange makes one of a request that was read.
func (g *Gateway) exchange(v *visit, q *format.Request) (*exchange, error) {
	routes, err := g.ways.find(q.Face.Vendor(), q.Model)
	if errors.Is(err, provider.ErrNoKey) {
		return nil, &abi.Error{Code: abi.ModelAuth, Message: err.Error(), Hint: "variables are read where the daemon starts: end it with kern stop-daemon, and let a command start it that has this one"}
	}
	if err != nil {
		return nil, &abi.Error{Code: abi.UnknownModel, Message: err.Error(), Where: "/model"}
	}
	x := &exchange{g: g, visit: v, q: q, chain: g.known.store(q)}
	x.header = outbound(v.r.Header)
	if betas := x.header["Anthropic-Beta"]; len(betas) > 0 { // they change what a body takes
		x.chain.rest = append(x.chain.rest, abi.HashOf([]byte(strings.Join(betas, ","))))
	}
	x.path = query(v.r.URL.RawQuery)
	if x.own = v.own && credential(x.header); !x.own { // one that stays here pays for nothing
		anonymous(x.header)
	}
	if e := routes[0]; e.Wants() && !x.own {
		return nil, &abi.Error{Code: abi.ModelAuth, Message: fmt.Sprintf("the daemon has no key for %s, and the request brings none of its own", e.Name),
			Hint: "set its variable for the daemon or key_env in kern.yaml, or put Kern's key into the base URL and leave the program its own: kern key new prints both"}
	}
	x.routes = slices.DeleteFunc(slices.Clone(routes), func(e *provider.Endpoint) bool { return e != routes[0] && e.Wants() })
	x.way.Of = len(x.routes)
	return x, nil
}

// route is where the request goes now.
func (x *exchange) route() *provider.Endpoint { return x.routes[x.way.At] }

// resource is what the request waits for its turn at: for the daemon's key, or
// for the credential that it brings itself.
func resource(r *provider.Endpoint, h http.Header) string {
	if r.Keyed() {
		return syscalls.Resource(r.Facts, "")
	}
	return syscalls.Resource(r.Facts, cmp.Or(h.Get("Authorization"), h.Get("X-Api-Key")))
}

// Plan implements [syscalls.External]: what the request may take at most, by the route
// that is tried next.
func (x *exchange) Plan(v kernel.View) (pl kernel.Plan, e *abi.Error) {
	g := x.g
	other := x.way.Choose(func(at int) time.Duration {
		return syscalls.Away(&v, at, &x.routes[at].Facts, resource(x.routes[at], x.header), g.cfg.Away)
	})
	r := x.route()
	f := r.Facts
	b, in := x.bounded(v.Pid)
	q := x.q
	x.bound, x.free = b, !v.Limited && !v.Counted
	pl = kernel.Plan{Effect: abi.Irreversible, Intent: true, Attempts: g.cfg.Attempts, Held: true, Parts: x.chain.parts, Blobs: x.chain.fresh,
		Subject: subject(x.chain.parts), Source: kernel.Source{Resource: resource(r, x.header), Other: other}}
	if v.Term {
		if pl.Last = len(q.Tools) == 0; !pl.Last {
			return pl, &abi.Error{Code: abi.ProcessEnding, Message: "the process was asked to finish, and may speak once more without tools"}
		}
	}
	if e := x.payable(v, &f); e != nil {
		return pl, e
	}
	p := f.At(in)
	pl.Context, pl.Price = in, abi.Price(p)
	pl.Reserve = abi.Usage{abi.Money: b.CostOf(in, p), abi.Tokens: in, abi.InputTokens: in, abi.Steps: 1, abi.ModelCalls: 1}
	if !x.carried {
		pl.Reserve[abi.OutputBytes] = brought(q)
	}
	if b.Choices > 0 {
		pl.Elastic = elastic(&b, &f, in)
	}
	return pl, nil
}

// maxField is how a provider's Chat calls the output maximum, where its own
// name tells; empty: as that of the model does.
func maxField(provider string) string {
	_, host, _ := strings.Cut(provider, "@")
	if provider == "openai" || strings.Contains(host, ".azure.com") || strings.HasSuffix(host, ".api.openai.com") {
		return "max_completion_tokens"
	}
	return ""
}

// bounded is what the request may take at most by the route in hand, and how
// much of that is input: all of the window where it cannot be known, for there
// are models that take it full, and say the less.
func (x *exchange) bounded(pid abi.Pid) (b format.Bound, in int64) {
	r := x.route()
	x.q = x.q.WithModel(r.Model)
	x.q.Count = catalog.CounterOf(r.Facts.Provider, r.Model)
	x.q.MaxField, x.q.Free = maxField(r.Facts.Provider), r.Free
	x.q.Mutes = r.Facts.Provider == "anthropic" // and not another at that format
	x.q.Learned = x.g.lessons.of(pid, r.Facts.Name, &x.chain)
	if b = x.q.Bound(); b.Known {
		return b, b.Input
	}
	return b, max(b.Input, int64(r.Facts.Window))
}

// payable refuses what no limit could hold.
func (x *exchange) payable(v kernel.View, f *model.Facts) *abi.Error {
	b := &x.bound
	switch {
	case v.Limited && !f.Priced:
		return syscalls.Unpriced(f, time.Now())
	case (v.Limited || v.Counted) && len(b.Extras) > 0:
		return unbounded(b.Extras[0])
	case (v.Limited || v.Counted) && !b.Known && f.Window == 0:
		return &abi.Error{Code: abi.UnknownPrice, Message: "there is a limit on money or tokens, and the request has no bound: " + b.Why,
			Hint: "set the model's window in kern.yaml, and all of it will be reserved"}
	case !b.Known && f.Window == 0 && narrow(x.g.cfg.Kernel, v.Pid):
		return &abi.Error{Code: abi.LimitContext, Message: "there is a limit on context, and the request has no bound: " + b.Why, Hint: "ask without it, or under a key without such a limit"}
	}
	return nil
}

// unbounded is the refusal of what no limit could hold.
func unbounded(e tariff.Extra) *abi.Error {
	hint := "ask without it, or under a key without such a limit"
	if e.Field != "" {
		hint += fmt.Sprintf("; where it costs nothing kern.yaml can say so, with free: [%s] of the provider", e.Field)
	}
	return &abi.Error{Code: abi.UnknownPrice, Message: fmt.Sprintf("there is a limit on money or tokens, and %s has no bound: %s", e.Name, e.Why), Where: e.Where, Hint: hint}
}

// narrow says that there is a limit on the context of one request.
func narrow(k View, pid abi.Pid) bool {
	i, err := k.Info(pid)
	_, set := i.Limits.Get(abi.Context)
	return set || err != nil
}

// elastic is the output: as much as was asked for, or as the model can give, or
// as is left. What the input leaves of the window is known from below only, so
// it does not lower what was asked, nor the rest to nothing.
func elastic(b *format.Bound, f *model.Facts, in int64) kernel.Elastic {
	hi := b.Output
	if hi == 0 {
		hi = cmp.Or(int64(f.MaxOutput), unknownMax) * b.Choices
		if room := int64(f.Window); room > 0 {
			hi = min(hi, max(room-in, room/16)*b.Choices)
		}
	}
	lo := max(b.Least, min(int64(f.MinOutput)*b.Choices, hi))
	return kernel.Elastic{Unit: abi.OutputTokens, Min: lo, Max: max(lo, hi), Price: f.At(in).Output, Tokens: true}
}

// brought is how much the tools gave that the model has not read yet.
func brought(q *format.Request) (n int64) {
	for _, r := range q.Results() {
		n += int64(len(r.Text))
	}
	return n
}

// Run implements [syscalls.External]: the request goes to the provider, and what comes
// goes to the program as it comes. What was received is settled, however it
// ends.
func (x *exchange) Run(ctx context.Context, j *kernel.Job) kernel.Done {
	now := time.Now()
	r := x.route()
	x.attempt = attempt{bound: x.bound, free: x.free, pays: x.own && x.way.At == 0 && !r.Keyed(), start: now, spoke: now}
	up, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	patience := &lull{cancel: cancel}
	defer context.AfterFunc(ctx, patience.begin)()
	header, path := x.header, x.path
	if !x.pays { // what a program shows the first is not for others, nor for one that knows the daemon
		header, path = maps.Clone(header), impersonal(path)
		anonymous(header)
	}
	granted := j.Granted
	if x.free {
		granted = 0
	}
	resp, err := r.Post(up, pathOf[x.q.Face]+path, header, x.q.Bytes(granted))
	if err != nil {
		return x.lost(ctx, j, err)
	}
	defer resp.Body.Close()
	patience.open(resp.Body)
	if resp.StatusCode/100 != 2 { // there are servers that answer with 201, and bill that too
		return x.turnedAway(j, resp)
	}
	x.lighten(j)
	x.stream = streamed(resp.Header)
	x.meter = x.q.Meter(x.stream)
	x.meter.Hold = true
	fail := unreadable(resp.Header)
	if fail == nil {
		if x.head(resp); x.gone {
			patience.begin()
		}
		fail = x.receive(ctx, j, resp.Body, patience)
	}
	d := x.settled(ctx, j, fail)
	syscalls.Hear(&d, x.broke(x.gone || ctx.Err() != nil, fail), format.ReadQuota(resp.Header, time.Now()), x.meter.Seen().Usage.CacheRead)
	return d
}

// broke is what the provider did not bring to its end; nil where it did, or was
// stopped.
func (a *attempt) broke(stopped bool, fail error) *model.Error {
	var ke *abi.Error
	var me *model.Error
	switch s := a.meter.Seen(); {
	case s.Failure != nil:
		return s.Failure
	case fail == nil, a.ended, stopped, errors.As(fail, &ke), errors.As(fail, &me), errors.Is(fail, errOver):
		return nil
	}
	return &model.Error{Kind: model.Network}
}

// lighten lets go of the request, now that the provider has it: an answer may
// take long, and there may be many.
func (x *exchange) lighten(j *kernel.Job) {
	if c := &x.chain; x.q.Steady() && !x.bound.Elsewhere && len(c.links) > 0 {
		x.lesson = lesson(x.call.Pid, x.route().Facts.Name, c.rest, c.links[len(c.links)-1])
	}
	x.q, x.chain.past = format.Answered(x.q), past{}
	x.chain.fresh, j.Plan.Blobs, x.header, x.failure = nil, nil, nil, nil
}

// lull gives a request that was stopped a moment for what is on its way: as
// long as something comes, and not for long. A provider that can be told does
// not begin anything more, and the end of the answer says what it said. One
// whose model has come to its end is not told: it has only its count to give.
type lull struct {
	cancel context.CancelFunc
	mu     sync.Mutex
	body   io.Reader
	ending bool // nothing more is said, and the end is on its way
	over   bool // the last word has come
	timer  *time.Timer
	begun  time.Time
	until  time.Time
}

// How long a stopped answer may be silent before it is cut off, and how long it
// may go on. An end that is on its way is waited for. What has come already is
// read in any case: on a busy machine we may be late, and not the provider.
const (
	silence = 25 * time.Millisecond
	goOn    = 300 * time.Millisecond
	readOn  = 2 * time.Second
	catchUp = time.Minute
)

// open is told of the answer.
func (l *lull) open(body io.Reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body = body; l.timer != nil && l.timer.Stop() {
		l.hangUp()
	}
}

func (l *lull) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() {
		l.hangUp()
	}
}

// hangUp and rest are called with l.mu held. No time runs while the provider is
// being told.
func (l *lull) hangUp() {
	d := goOn
	if l.ending = l.ending || l.body != nil && transport.HangUp(l.body); l.ending {
		d = readOn
	}
	l.begun = time.Now()
	l.until = l.begun.Add(d)
	l.timer = time.AfterFunc(l.rest(), l.cut)
}

// cut ends the answer, unless we have not read yet what has come.
func (l *lull) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	late, ok := l.body.(interface{ Unread() bool })
	if ok && !l.over && time.Since(l.begun) < catchUp && late.Unread() {
		l.timer.Reset(silence)
		return
	}
	l.cancel()
}

func (l *lull) rest() time.Duration {
	d := time.Until(l.until)
	if !l.ending {
		d = min(d, silence)
	}
	return max(0, d)
}

// said is told that the model has said all.
func (l *lull) said() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return
	}
	if l.ending = true; l.timer != nil && l.timer.Stop() {
		l.until = time.Now().Add(readOn)
		l.timer.Reset(l.rest())
	}
}

// last is told that the last word has come. How the body ends after that
// matters to the connection alone, which may carry another request.
func (l *lull) last() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	if l.over = true; l.timer == nil || l.timer.Stop() {
		l.ending, l.until = false, time.Now().Add(goOn)
		l.timer = time.AfterFunc(l.rest(), l.cut)
	}
}

// heard is told that something came.
func (l *lull) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && l.timer.Stop() {
		l.timer.Reset(l.rest())
	}
}

// Buffers for an answer that comes piece by piece, many at a time, and for one
// that comes at once and is soon gone.
var (
	pieces = sync.Pool{New: func() any { b := make([]byte, 2<<10); return &b }}
	wholes = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
)

// receive reads the answer to its end, or to where it must not go on. The
// client gets what may be shown as soon as it is there; what ends the answer
// waits until it is written down.
func (x *exchange) receive(ctx context.Context, j *kernel.Job, body io.Reader, patience *lull) error {
	pool := &wholes
	if x.stream {
		pool = &pieces
	}
	pooled := pool.Get().(*[]byte)
	defer pool.Put(pooled)
	buf := *pooled
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if x.first == 0 {
				x.first = time.Since(x.start)
			}
			stopped := ctx.Err() != nil || x.gone
			patience.heard()
			if len(x.whole)+n > maxBody {
				return errLong
			}
			forward, fail := x.meter.Write(buf[:n])
			if x.meter.Said() { // before a client knows, who may go then
				patience.said()
			}
			if !stopped {
				x.pass(forward)
			}
			if !stopped && x.meter.Held() > 0 && time.Since(x.spoke) >= x.g.cfg.Pulse {
				x.beat()
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
			if !x.free && j.Granted > 0 && x.meter.Over(j.Granted) {
				return errOver
			}
			if x.meter.Done() {
				patience.last()
			}
		}
		x.over = err == io.EOF || err == io.ErrUnexpectedEOF
		switch {
		case err == io.EOF:
			rest, fail := x.meter.End()
			x.ended = fail == nil
			x.pass(rest)
			if e := x.admit(ctx, ctx.Err() != nil || x.gone); e != nil {
				return e
			}
			return fail
		case err != nil && x.meter.Done(): // it said that this is all: how the body ends says nothing
			return nil
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
	pulse := time.NewTicker(x.g.cfg.Pulse)
	defer pulse.Stop()
	if e := x.g.wishes(ctx, x.visit.session, calls, waiting{pulse.C, x.beat}); e != nil {
		x.refused = e
		return e
	}
	x.pass(x.meter.Release())
	return nil
}

// beat tells the client of a stream that there is more to come, while it is
// held back: programs give up on a connection that says nothing for minutes.
// Every reader of events leaves out a comment.
func (x *exchange) beat() {
	if x.stream {
		x.write([]byte(": kern holds a tool call\n\n"), false)
	}
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
		x.write(b, false)
	}
}

// settled is what the attempt came to.
func (x *exchange) settled(ctx context.Context, j *kernel.Job, fail error) (d kernel.Done) {
	s := x.meter.Seen()
	d.First = x.first
	j.Plan.Attempts = 0 // the provider took it: there is no second try
	x.ended = x.ended || s.Done
	stopped := ctx.Err() != nil && !x.ended
	d.Usage = x.booked(j, x.taken(j, &s), s.Hour)
	if x.ended {
		x.learn(&s)
	}
	var me *model.Error
	var ke *abi.Error
	garbled := errors.As(fail, &me) && me.Kind == model.Malformed
	switch {
	case errors.As(fail, &ke): // a tool call was refused: the answer itself is there
		d.Value = x.value(&s)
		return d
	case s.Failure != nil: // the provider's own word, which the client has
		x.told, d.Err = true, syscalls.ModelError(s.Failure)
	case fail == nil && x.ended:
		d.Value = x.value(&s)
		return d
	case !s.Reported && (x.bound.Hidden || !x.stream || garbled || !x.over && s.Output == 0): // its pace is not known either
		d.Err = &abi.Error{Code: abi.OutcomeUnknown, Message: "the answer was cut off, and what it took until then cannot be known"}
	case stopped || x.gone:
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the answer was cut off by a signal, a limit, or the program", Got: clip(s.Text)}
	case errors.Is(fail, errOver):
		d.Err = &abi.Error{Code: abi.LimitOutputTokens, Message: fmt.Sprintf("the model gave more than the %d tokens it was granted", j.Granted), Got: clip(s.Text)}
	case errors.As(fail, &me):
		d.Err = syscalls.ModelError(me)
	default:
		d.Err = &abi.Error{Code: abi.ModelNetwork, Message: "the answer broke off"}
	}
	return d
}

// taken is what the provider says that it took, and our own bound or count where
// it says nothing, or that it was nothing.
func (x *exchange) taken(j *kernel.Job, s *format.Seen) model.Usage {
	u := s.Usage
	if !s.HasInput || u.Input+u.CacheRead+u.CacheWrite == 0 {
		u.Input = x.bound.Input
	}
	if !x.ended && !s.Reported {
		u.Output = max(u.Output, min(j.Granted, u.Output+x.margin(u.Output)))
	}
	return u
}

// margin is what may have been said and not yet have come when an answer of n
// tokens was cut off: a sixteenth of it, and a few words; and where the
// provider did not end it, what it says at its pace until it learns of that.
func (a *attempt) margin(n int64) int64 {
	const late = 500 * time.Millisecond
	m := n/16 + 16
	if !a.over {
		said := max(time.Millisecond, time.Since(a.start)-a.first)
		m += int64(float64(n) * float64(late) / float64(said))
	}
	return m
}

// booked is what was taken, in the units of accounts. What is kept in the
// provider's cache for an hour costs twice its input.
func (x *exchange) booked(j *kernel.Job, u model.Usage, hour int64) abi.Usage {
	f := x.route().Facts
	b := syscalls.Booked(j, &f, u)
	if hour > 0 {
		p, v := f.At(b[abi.InputTokens]), u
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
	unsent := errors.As(err, &me) && me.Usage != nil // Post gives no other kind of error
	switch {
	case unsent:
	case ctx.Err() != nil:
		d.Err = &abi.Error{Code: abi.OutcomeUnknown, Message: "the request was sent, and stopped before an answer came"}
	default:
		d.Usage = x.booked(j, model.Usage{Input: x.bound.Input}, 0)
	}
	if syscalls.Hear(&d, me, model.Quota{}, 0); ctx.Err() != nil {
		d.Heard = quota.Feedback{Status: quota.Cut}
	}
	syscalls.Failed(&d, &x.way, me)
	return d
}

// turnedAway is an answer that is an error. Providers do not bill those.
func (x *exchange) turnedAway(j *kernel.Job, resp *http.Response) kernel.Done {
	const most = 256 << 10
	body, _ := io.ReadAll(io.LimitReader(resp.Body, most))
	r := x.route()
	coded := unreadable(resp.Header) != nil
	if coded {
		body = nil
	}
	me := r.Refusal(resp.StatusCode, resp.Header, body)
	me.Message = conceal(me.Message, x.header)
	x.failure = &reply{resp.StatusCode, resp.Header, []byte(r.Clean(string(body)))}
	if coded || resp.StatusCode < http.StatusBadRequest { // a redirect: the program would follow it, and take Kern's key along
		x.failure = nil
	}
	d := kernel.Done{Err: syscalls.ModelError(me), Usage: abi.Usage{abi.Steps: j.Plan.Reserve[abi.Steps], abi.ModelCalls: 1}}
	syscalls.Hear(&d, me, model.Quota{}, 0)
	syscalls.Failed(&d, &x.way, me)
	return d
}
