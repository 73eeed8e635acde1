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
	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

// An upstreamCall is a request of a program to a model. It is a call of the row
// model. Only the goroutine of that call uses it.
type upstreamCall struct {
	g      *Gateway
	body   *format.Request
	call   abi.Call
	stored storedRequest
	header http.Header // the headers to send
	query  string      // the query of the request, with its question mark
	own    bool        // the request carries a credential of its own

	routes []*provider.Endpoint
	picker quota.RoutePicker // picks the route of each attempt

	bound  format.Bound // on the present route
	free   bool         // no limit binds the output
	pays   bool         // the program's own credential pays for the attempt
	learns lesson       // what learn remembers of a whole answer

	raw       []byte // the body as it came; nil after release
	shortened bool   // the journal has only the beginning of the body

	answer        programAnswer
	asked         asked
	resultsBooked bool // the OutputBytes of the tool results in the request are booked
}

// newUpstreamCall makes a call of a parsed request. It returns an error if no route
// can serve the request.
func (g *Gateway) newUpstreamCall(v *inbound, q *format.Request) (*upstreamCall, error) {
	routes, err := g.routes.find(q.Format.Vendor(), q.Model)
	if errors.Is(err, provider.ErrNoKey) {
		return nil, &abi.Error{Code: abi.ModelAuth, Message: err.Error(), Hint: "the daemon reads variables when it starts: end it with kern stop-daemon, and start it with a command that has this variable"}
	}
	if err != nil {
		return nil, &abi.Error{Code: abi.UnknownModel, Message: err.Error(), Where: "/model"}
	}
	c := &upstreamCall{g: g, body: q, stored: g.storedBlobs.store(v.session.pid, q)}
	c.answer = programAnswer{g: g, inbound: v}
	c.header = outbound(v.r.Header)
	if betas := c.header["Anthropic-Beta"]; len(betas) > 0 { // beta features change how many tokens a body takes
		c.stored.betas = strings.Join(betas, ",")
		c.stored.common = append(c.stored.common, abi.HashOf([]byte(c.stored.betas)))
	}
	c.query = query(v.r.URL.RawQuery)
	if c.own = v.own && credential(c.header); !c.own { // the daemon's key pays, so the program must not name an account
		anonymous(c.header)
	}
	if e := routes[0]; e.Wants() && !c.own {
		return nil, &abi.Error{Code: abi.ModelAuth, Message: fmt.Sprintf("the daemon has no key for %s, and the request brings none of its own", e.Name),
			Hint: "set its variable for the daemon or key_env in kern.yaml, or put Kern's key into the base URL and leave the program its own: kern key new prints both"}
	}
	// A fallback that needs a credential of the program is no fallback, because Run
	// shows that credential to the first route only.
	c.routes = slices.DeleteFunc(slices.Clone(routes), func(e *provider.Endpoint) bool { return e != routes[0] && e.Wants() })
	c.picker.Of = len(c.routes)
	return c, nil
}

// route returns the route of the next or present attempt.
func (c *upstreamCall) route() *provider.Endpoint { return c.routes[c.picker.At] }

// resource names the bucket in which the request waits for its turn. The credential
// in the name is the daemon's key, or the credential that the request carries.
func resource(r *provider.Endpoint, h http.Header) string {
	if r.Keyed() {
		return syscalls.Resource(r.Facts, "")
	}
	return syscalls.Resource(r.Facts, cmp.Or(h.Get("Authorization"), h.Get("X-Api-Key")))
}

// Plan implements [syscalls.External]. It picks the next route and reserves the most
// that the request can use on it.
func (c *upstreamCall) Plan(v kernel.View) (pl kernel.Plan, e *abi.Error) {
	other := c.picker.Choose(func(at int) time.Duration {
		return syscalls.Away(&v, at, &c.routes[at].Facts, resource(c.routes[at], c.header), c.g.cfg.Away)
	})
	r := c.route()
	c.prepare(v.Pid)
	c.asked = c.g.answered.askedIn(v.Pid, c)
	c.free = !v.Limited && !v.Counted
	pl = kernel.Plan{Effect: abi.Irreversible, Intent: true, Attempts: c.g.cfg.Attempts, Held: true, Parts: c.stored.parts, Blobs: c.stored.fresh,
		Subject: subject(c.stored.parts[:c.stored.named]), Source: kernel.Source{Resource: resource(r, c.header), Other: other}}
	// After term the process has one call left: last words, which offer no tools.
	if v.Term {
		if pl.Last = len(c.body.Tools) == 0; !pl.Last {
			return pl, &abi.Error{Code: abi.ProcessEnding, Message: "the process was asked to finish, and may speak once more without tools"}
		}
	}
	if e := c.refuseUnbounded(v, &r.Facts); e != nil {
		return pl, e
	}
	syscalls.ReserveRequest(&pl, &c.bound, &r.Facts, c.g.cfg.MinOutput)
	if !c.resultsBooked {
		pl.Reserve[abi.OutputBytes] = resultBytes(c.body)
	}
	return pl, nil
}

// prepare adapts the request to the present route, and computes its bound there.
func (c *upstreamCall) prepare(pid abi.Pid) {
	r := c.route()
	c.body = provider.Prepare(c.body, r)
	c.body.Learned = c.g.learned.of(pid, r.Facts.Name, &c.stored)
	c.bound = c.body.Bound()
}

// refuseUnbounded returns an error for a request that could exceed a limit, because
// the request has no price or no bound.
func (c *upstreamCall) refuseUnbounded(v kernel.View, f *model.Facts) *abi.Error {
	b := &c.bound
	switch {
	case (v.Limited || v.Counted) && c.body.Silent && !c.body.Mutes:
		return &abi.Error{Code: abi.InvalidArguments, Message: "max_tokens is 0, expected at least 1: only Anthropic itself reads 0 as no output, and another server may read it as no maximum", Where: "/max_tokens"}
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

// unboundedExtra returns the error for a feature that the provider does not bill by
// tokens.
func unboundedExtra(e tariff.Extra) *abi.Error {
	hint := "ask without it, or under a key without such a limit"
	if e.Field != "" {
		hint += fmt.Sprintf("; where it costs nothing kern.yaml can say so, with free: [%s] of the provider", e.Field)
	}
	return &abi.Error{Code: abi.UnknownPrice, Message: fmt.Sprintf("there is a limit on money or tokens, and %s has no bound: %s", e.Name, e.Why), Where: e.Where, Hint: hint}
}

// limitsContext reports whether a process has a limit on the context of one request.
// It says yes if the process cannot be read.
func limitsContext(k View, pid abi.Pid) bool {
	i, err := k.Info(pid)
	_, set := i.Limits.Get(abi.Context)
	return set || err != nil
}

// resultBytes returns the size of the tool results that the model has not read yet.
func resultBytes(q *format.Request) (n int64) {
	for _, r := range q.Results() {
		n += int64(len(r.Text))
	}
	return n
}

// Run implements [syscalls.External]. It sends the request to the provider and passes
// the answer to the program as it arrives. Run settles the received part, however the
// answer ends.
func (c *upstreamCall) Run(ctx context.Context, j *kernel.Job) kernel.Done {
	r := c.route()
	c.pays = c.own && c.picker.At == 0 && !r.Keyed()
	header, query := c.header, c.query
	if !c.pays { // the program's credential is for the first route only, and not for a route with the daemon's key
		header, query = maps.Clone(header), impersonal(query)
		anonymous(header)
	}
	c.answer.restart(c.pays, j.Lowered)
	a := &provider.Attempt{Endpoint: r, Request: c.body, Bound: c.bound, Granted: j.Granted, Unlimited: c.free, Header: header, Query: query, Client: &c.answer,
		OnText: func(piece string) {
			c.g.cfg.Live.Publish(abi.LiveItem{Kind: abi.LiveText, Pid: c.call.Pid, Call: c.call.N, Attempt: j.Attempt, Text: piece})
		}}
	defer a.Close()
	resp, e := a.Send(ctx)
	if e != nil {
		return c.lost(ctx, j, a, e)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 { // some servers answer with 201 and bill it
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

// release frees the memory of the request once the provider has it, because many
// answers may stream for a long time. It keeps the name for learn.
func (c *upstreamCall) release(j *kernel.Job) {
	if s := &c.stored; c.bound.Steady && !c.bound.Elsewhere && len(s.links) > 0 {
		c.learns = s.lesson(c.call.Pid, c.route().Facts.Name)
	}
	c.body, c.raw, c.stored.prefix = nil, nil, prefix{}
	c.answer.inbound.giveBack()
	c.stored.fresh, j.Plan.Blobs, c.header, c.answer.failure = nil, nil, nil, nil
}

// settled returns the result and the usage of an attempt that the provider accepted.
// The order of its cases decides which of several errors the process sees.
func (c *upstreamCall) settled(ctx context.Context, j *kernel.Job, a *provider.Attempt, fail error) (d kernel.Done) {
	o := a.Outcome(fail)
	s := &o.Seen
	d.First = o.First
	j.Plan.Attempts = 0 // no second attempt, because the provider accepted the request
	d.Usage = c.booked(j, o.Usage, o.Hour)
	d.Claim = syscalls.Claimed(o.Claim)
	if o.Whole {
		if d.Claim == nil {
			c.learn(s)
		}
		c.g.answered.Put(c.asked.whole, struct{}{})
	}
	d.Cut = errors.Is(fail, provider.ErrOver) || provider.Reached(s.Stop, s.Reported, s.Output, j.Granted/max(1, c.bound.Choices))
	var refused *abi.Error // the refusal of a tool call
	gone := c.answer.gone || ctx.Err() != nil
	syscalls.Hear(&d, o.Broken(gone || errors.As(fail, &refused), fail), o.Quota, s.Usage.CacheRead)
	var me *model.Error
	switch {
	case refused != nil: // the answer is complete; only its tool call was refused
		d.Value = c.value(s)
	case s.Failure != nil: // the stream ended with the provider's own error, which the program has
		c.answer.failed, d.Err = true, syscalls.ModelError(s.Failure)
	case fail == nil && o.Whole:
		d.Value, d.Said = c.value(s), c.said(s.Text, len(s.Calls))
	case !o.Known:
		d.Err = &abi.Error{Code: abi.OutcomeUnknown, Message: "the answer was cut off, and what it took until then cannot be known"}
	case ctx.Err() != nil && !o.Whole, c.answer.gone:
		d.Err = &abi.Error{Code: abi.Interrupted, Message: "the answer was cut off by a signal, a limit, or the program", Got: abi.Clip(s.Text)}
	case errors.Is(fail, provider.ErrOver):
		d.Err = &abi.Error{Code: abi.LimitOutputTokens, Message: fmt.Sprintf("the model gave more than the %d tokens it was granted", j.Granted), Got: abi.Clip(s.Text)}
		if j.Lowered != nil {
			d.Err.Code = j.Lowered.Code()
		}
	case errors.As(fail, &me):
		d.Err = syscalls.ModelError(me)
	default:
		d.Err = &abi.Error{Code: abi.ModelNetwork, Message: "the answer broke off"}
	}
	return d
}

// booked converts the usage u to the units of accounts. hour is the number of tokens
// that the provider's cache keeps for an hour; they cost twice their input price.
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

// lost returns the result of a request without an answer. A request that did not
// reach the provider used nothing.
func (c *upstreamCall) lost(ctx context.Context, j *kernel.Job, a *provider.Attempt, e *model.Error) kernel.Done {
	d := kernel.Done{Err: &abi.Error{Code: abi.ModelNetwork, Message: e.Error()}}
	switch {
	case e.Usage != nil: // the request did not reach the provider
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

// refused returns the result of an error answer. Providers do not bill error answers.
func (c *upstreamCall) refused(j *kernel.Job, a *provider.Attempt, resp *http.Response) kernel.Done {
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

// value returns the part of an answer that the kernel records.
func (c *upstreamCall) value(s *format.Seen) json.RawMessage {
	r := syscalls.Reply{Text: s.Text, Stop: s.Stop}
	if c.picker.At > 0 {
		r.Model = c.route().Facts.Name
	}
	for _, t := range s.Calls {
		r.Calls = append(r.Calls, model.ToolCall{ID: t.ID, Name: t.Name, Args: t.Args})
	}
	b, _ := json.Marshal(r) // a value of texts always encodes
	return b
}

// subject returns the bytes that identify a request to the watchdog: the hashes of
// its parts, without those that were new to the journal.
func subject(parts []abi.Hash) []byte {
	var b []byte
	for i := range parts {
		b = append(b, parts[i][:]...)
	}
	return b
}
