package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/provider/relay"
	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

// An upstreamCall is a request of a program to a model. It is a call of the row
// model, and is for the goroutine of that call.
type upstreamCall struct {
	g      *Gateway
	body   *format.Request
	call   abi.Call
	stored storedRequest
	header http.Header // to send
	query  string      // of the request, with its question mark
	own    bool        // it brings a credential of its own

	routes []*provider.Endpoint
	picker quota.RoutePicker // says which of them is asked

	bound  format.Bound // by the route in hand
	free   bool         // no limit binds the output
	pays   bool         // the program's own credential opens the route
	learns abi.Hash     // the name under which the input of a whole answer is learned

	answer        programAnswer
	resultsBooked bool // OutputBytes of the tool results in the request are booked
}

// newUpstreamCall makes a call of a request that was read.
func (g *Gateway) newUpstreamCall(v *inbound, q *format.Request) (*upstreamCall, error) {
	routes, err := g.routes.find(q.Format.Vendor(), q.Model)
	if errors.Is(err, provider.ErrNoKey) {
		return nil, &abi.Error{Code: abi.ModelAuth, Message: err.Error(), Hint: "the daemon reads variables when it starts: end it with kern stop-daemon, and start it with a command that has this variable"}
	}
	if err != nil {
		return nil, &abi.Error{Code: abi.UnknownModel, Message: err.Error(), Where: "/model"}
	}
	c := &upstreamCall{g: g, body: q, stored: g.storedBlobs.store(q)}
	c.answer = programAnswer{g: g, inbound: v}
	c.header = outbound(v.r.Header)
	if betas := c.header["Anthropic-Beta"]; len(betas) > 0 { // they change what a body takes
		c.stored.common = append(c.stored.common, abi.HashOf([]byte(strings.Join(betas, ","))))
	}
	c.query = query(v.r.URL.RawQuery)
	if c.own = v.own && credential(c.header); !c.own { // a credential that stays here pays for nothing
		anonymous(c.header)
	}
	if e := routes[0]; e.Wants() && !c.own {
		return nil, &abi.Error{Code: abi.ModelAuth, Message: fmt.Sprintf("the daemon has no key for %s, and the request brings none of its own", e.Name),
			Hint: "set its variable for the daemon or key_env in kern.yaml, or put Kern's key into the base URL and leave the program its own: kern key new prints both"}
	}
	c.routes = slices.DeleteFunc(slices.Clone(routes), func(e *provider.Endpoint) bool { return e != routes[0] && e.Wants() })
	c.picker.Of = len(c.routes)
	return c, nil
}

// route is where the request goes now.
func (c *upstreamCall) route() *provider.Endpoint { return c.routes[c.picker.At] }

// resource is what the request waits for its turn at: the daemon's key, or the
// credential that the request brings itself.
func resource(r *provider.Endpoint, h http.Header) string {
	if r.Keyed() {
		return syscalls.Resource(r.Facts, "")
	}
	return syscalls.Resource(r.Facts, cmp.Or(h.Get("Authorization"), h.Get("X-Api-Key")))
}

// Plan implements [syscalls.External]: what the request may use at most by the
// route that is tried next.
func (c *upstreamCall) Plan(v kernel.View) (pl kernel.Plan, e *abi.Error) {
	other := c.picker.Choose(func(at int) time.Duration {
		return syscalls.Away(&v, at, &c.routes[at].Facts, resource(c.routes[at], c.header), c.g.cfg.Away)
	})
	r := c.route()
	c.prepare(v.Pid)
	c.free = !v.Limited && !v.Counted
	pl = kernel.Plan{Effect: abi.Irreversible, Intent: true, Attempts: c.g.cfg.Attempts, Held: true, Parts: c.stored.parts, Blobs: c.stored.fresh,
		Subject: subject(c.stored.parts), Source: kernel.Source{Resource: resource(r, c.header), Other: other}}
	if v.Term {
		if pl.Last = len(c.body.Tools) == 0; !pl.Last {
			return pl, &abi.Error{Code: abi.ProcessEnding, Message: "the process was asked to finish, and may speak once more without tools"}
		}
	}
	if e := c.refuseUnbounded(v, &r.Facts); e != nil {
		return pl, e
	}
	syscalls.ReserveRequest(&pl, &c.bound, &r.Facts)
	if !c.resultsBooked {
		pl.Reserve[abi.OutputBytes] = resultBytes(c.body)
	}
	return pl, nil
}

// prepare makes the request ready for the route in hand, and bounds it.
func (c *upstreamCall) prepare(pid abi.Pid) {
	r := c.route()
	c.body = relay.Prepare(c.body, r)
	c.body.Learned = c.g.learned.of(pid, r.Facts.Name, &c.stored)
	c.bound = c.body.Bound()
}

// refuseUnbounded refuses what no limit could hold.
func (c *upstreamCall) refuseUnbounded(v kernel.View, f *model.Facts) *abi.Error {
	b := &c.bound
	switch {
	case v.Limited && !f.Priced:
		return syscalls.Unpriced(f, time.Now())
	case (v.Limited || v.Counted) && len(b.Extras) > 0:
		return unboundedExtra(b.Extras[0])
	case (v.Limited || v.Counted) && !b.Known && f.Window == 0:
		return &abi.Error{Code: abi.UnknownPrice, Message: "there is a limit on money or tokens, and the request has no bound: " + b.Why,
			Hint: "set the model's window in kern.yaml, and all of it will be reserved"}
	case !b.Known && f.Window == 0 && limitsContext(c.g.cfg.Kernel, v.Pid):
		return &abi.Error{Code: abi.LimitContext, Message: "there is a limit on context, and the request has no bound: " + b.Why, Hint: "ask without it, or under a key without such a limit"}
	}
	return nil
}

// unboundedExtra is the refusal of something that is paid for by another measure
// than tokens.
func unboundedExtra(e tariff.Extra) *abi.Error {
	hint := "ask without it, or under a key without such a limit"
	if e.Field != "" {
		hint += fmt.Sprintf("; where it costs nothing kern.yaml can say so, with free: [%s] of the provider", e.Field)
	}
	return &abi.Error{Code: abi.UnknownPrice, Message: fmt.Sprintf("there is a limit on money or tokens, and %s has no bound: %s", e.Name, e.Why), Where: e.Where, Hint: hint}
}

// limitsContext reports a limit on the context of one request.
func limitsContext(k View, pid abi.Pid) bool {
	i, err := k.Info(pid)
	_, set := i.Limits.Get(abi.Context)
	return set || err != nil
}

// resultBytes is how much the tools gave that the model has not read yet.
func resultBytes(q *format.Request) (n int64) {
	for _, r := range q.Results() {
		n += int64(len(r.Text))
	}
	return n
}

// Run implements [syscalls.External]: the request goes to the provider, and what
// comes goes to the program as it comes. The received part is settled, however
// it ends.
func (c *upstreamCall) Run(ctx context.Context, j *kernel.Job) kernel.Done {
	r := c.route()
	c.pays = c.own && c.picker.At == 0 && !r.Keyed()
	header, query := c.header, c.query
	if !c.pays { // what a program shows the first route is not for others, nor for a provider that knows the daemon
		header, query = maps.Clone(header), impersonal(query)
		anonymous(header)
	}
	c.answer.restart(c.pays)
	a := &relay.Attempt{Endpoint: r, Request: c.body, Bound: c.bound, Granted: j.Granted, Unlimited: c.free, Header: header, Query: query, Client: &c.answer,
		OnText: func(piece string) {
			c.g.cfg.Live.Publish(abi.LiveItem{Kind: abi.LiveText, Pid: c.call.Pid, Call: c.call.N, Attempt: j.Attempt, Text: piece})
		}}
	defer a.Close()
	resp, e := a.Send(ctx)
	if e != nil {
		return c.lost(ctx, j, a, e)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 { // some servers answer with 201, and bill that too
		return c.refused(j, a, resp)
	}
	c.release(j)
	fail := a.Open(resp)
	if fail == nil {
		c.answer.open(resp, a)
		fail = a.Read(ctx, resp)
	}
	return c.settled(ctx, j, a, fail)
}

// release lets go of the request, now that the provider has it: an answer may
// take long, and there may be many.
func (c *upstreamCall) release(j *kernel.Job) {
	if s := &c.stored; c.body.Steady() && !c.bound.Elsewhere && len(s.links) > 0 {
		c.learns = prefixName(c.call.Pid, c.route().Facts.Name, s.common, s.links[len(s.links)-1])
	}
	c.body, c.stored.prefix = nil, prefix{}
	c.stored.fresh, j.Plan.Blobs, c.header, c.answer.failure = nil, nil, nil, nil
}

// settled is what the attempt came to.
func (c *upstreamCall) settled(ctx context.Context, j *kernel.Job, a *relay.Attempt, fail error) (d kernel.Done) {
	o := a.Outcome(fail)
	s := &o.Seen
	d.First = o.First
	j.Plan.Attempts = 0 // the provider took the request: there is no second try
	d.Usage = c.booked(j, o.Usage, o.Hour)
	if o.Whole {
		c.learn(s)
	}
	var refused *abi.Error // of a tool call
	gone := c.answer.gone || ctx.Err() != nil
	syscalls.Hear(&d, o.Broken(gone || errors.As(fail, &refused), fail), o.Quota, s.Usage.CacheRead)
	var me *model.Error
	switch {
	case refused != nil: // the answer itself is there
		d.Value = c.value(s)
	case s.Failure != nil: // the provider's own word, which the client has
		c.answer.failed, d.Err = true, syscalls.ModelError(s.Failure)
	case fail == nil && o.Whole:
		d.Value = c.value(s)
	case !o.Known:
		d.Err = &abi.Error{Code: abi.OutcomeUnknown, Message: "the answer was cut off, and what it took until then cannot be known"}
	case ctx.Err() != nil && !o.Whole, c.answer.gone:
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the answer was cut off by a signal, a limit, or the program", Got: abi.Clip(s.Text)}
	case errors.Is(fail, relay.ErrOver):
		d.Err = &abi.Error{Code: abi.LimitOutputTokens, Message: fmt.Sprintf("the model gave more than the %d tokens it was granted", j.Granted), Got: abi.Clip(s.Text)}
	case errors.As(fail, &me):
		d.Err = syscalls.ModelError(me)
	default:
		d.Err = &abi.Error{Code: abi.ModelNetwork, Message: "the answer broke off"}
	}
	return d
}

// booked is the usage in the units of accounts. Tokens that the provider's cache
// keeps for an hour cost twice their input price.
func (c *upstreamCall) booked(j *kernel.Job, u model.Usage, hour int64) abi.Usage {
	f := c.route().Facts
	b := syscalls.Booked(j, &f, u)
	if hour > 0 {
		p, v := f.At(b[abi.InputTokens]), u
		v.CacheWrite -= hour
		b[abi.Money] = p.Cost(v) + model.Price{Input: 2 * p.Input}.Cost(model.Usage{Input: hour})
	}
	b[abi.OutputBytes], c.resultsBooked = j.Plan.Reserve[abi.OutputBytes], true
	return b
}

// lost is a request that found no answer. Where nobody saw it, it used nothing.
func (c *upstreamCall) lost(ctx context.Context, j *kernel.Job, a *relay.Attempt, e *model.Error) kernel.Done {
	d := kernel.Done{Err: &abi.Error{Code: abi.ModelNetwork, Message: e.Error()}}
	switch {
	case e.Usage != nil: // nobody saw it
	case ctx.Err() != nil:
		d.Err = &abi.Error{Code: abi.OutcomeUnknown, Message: "the request was sent, and stopped before an answer came"}
	default:
		d.Usage = c.booked(j, a.Unanswered(), 0)
	}
	if syscalls.Hear(&d, e, model.Quota{}, 0); ctx.Err() != nil {
		d.Feedback = quota.Feedback{Status: quota.Cut}
	}
	syscalls.Failed(&d, &c.picker, e)
	return d
}

// refused is an answer that is an error. Providers do not bill those.
func (c *upstreamCall) refused(j *kernel.Job, a *relay.Attempt, resp *http.Response) kernel.Done {
	body, e := a.Refusal(resp)
	e.Message = conceal(e.Message, c.header)
	c.answer.failure = nil
	if body != nil {
		c.answer.failure = &failureReply{resp.StatusCode, resp.Header, body}
	}
	d := kernel.Done{Err: syscalls.ModelError(e), Usage: abi.Usage{abi.Steps: j.Plan.Reserve[abi.Steps], abi.ModelCalls: 1}}
	syscalls.Hear(&d, e, model.Quota{}, 0)
	syscalls.Failed(&d, &c.picker, e)
	return d
}

// value is what is recorded of an answer.
func (c *upstreamCall) value(s *format.Seen) json.RawMessage {
	r := syscalls.Reply{Text: s.Text, Stop: s.Stop}
	if c.picker.At > 0 {
		r.Model = c.route().Facts.Name
	}
	for _, t := range s.Calls {
		r.Calls = append(r.Calls, model.ToolCall{ID: t.ID, Name: t.Name, Args: t.Args})
	}
	b, _ := json.Marshal(r) // texts always can
	return b
}

// subject is what tells one request from another.
func subject(parts []abi.Hash) []byte {
	var b []byte
	for i := range parts {
		b = append(b, parts[i][:]...)
	}
	return b
}
