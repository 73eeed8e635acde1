package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/provider/relay"
)

// A programAnswer is the answer of a model on its way to the program. It is the
// [relay.Client] of an attempt.
type programAnswer struct {
	g       *Gateway
	inbound *inbound
	call    abi.Call
	pays    bool // the program's own credential opened the route

	meter   *format.Meter
	stream  bool
	begun   bool          // the program has the head of the answer
	spoke   time.Time     // when the program was last written to
	gone    bool          // the program does not read any more
	whole   []byte        // an answer that is not streamed, until it is recorded
	tail    []byte        // the last events of a stream, likewise
	failed  bool          // the answer ends with an error of the provider
	refusal *abi.Error    // of a tool call that the answer asks for
	failure *failureReply // the last answer of the provider that was an error
}

// A failureReply is an answer of a provider that is an error, as it came.
type failureReply struct {
	status int
	header http.Header
	body   []byte
}

// restart prepares for another attempt.
func (a *programAnswer) restart(pays bool) {
	a.spoke, a.meter, a.stream, a.pays = time.Now(), nil, false, pays
}

// open gives the program the head of an answer that is streamed.
func (a *programAnswer) open(resp *http.Response, from *relay.Attempt) {
	a.meter, a.stream = from.Meter(), from.Streamed()
	h := a.inbound.w.Header()
	copyShown(h, resp.Header, a.pays)
	h.Set(pidHeader, strconv.FormatInt(int64(a.call.Pid), 10))
	h.Set(callHeader, strconv.FormatUint(a.call.N, 10))
	if a.stream {
		a.setStanding(h)
		a.begun = true
		a.inbound.w.WriteHeader(http.StatusOK)
		a.flush()
	}
}

// Pass implements [relay.Client]. Of a stream the last events are kept back.
func (a *programAnswer) Pass(b []byte, last bool) {
	switch {
	case !a.stream:
		a.whole = append(a.whole, b...)
	case last:
		a.tail = append(a.tail, b...)
	default:
		a.write(b, false)
	}
}

// Admit implements [relay.Client]: it makes calls of the tool calls of an answer,
// so that they may be seen.
func (a *programAnswer) Admit(ctx context.Context, calls []format.Call) error {
	pulse := time.NewTicker(a.g.cfg.Pulse)
	defer pulse.Stop()
	if e := a.g.startTools(ctx, a.inbound.session, calls, heartbeat{pulse.C, a.beat}); e != nil {
		a.refusal = e
		return e
	}
	return nil
}

// Held implements [relay.Client].
func (a *programAnswer) Held() {
	if time.Since(a.spoke) >= a.g.cfg.Pulse {
		a.beat()
	}
}

// Gone implements [relay.Client].
func (a *programAnswer) Gone() bool { return a.gone }

// beat tells the program that there is more to come while a stream is held back,
// because programs give up on a connection that says nothing for minutes. Every
// reader of events leaves out a comment.
func (a *programAnswer) beat() {
	if a.stream {
		a.write([]byte(": kern holds a tool call\n\n"), false)
	}
}

// write gives the program a part of its answer. The last one goes when the
// request ends, together with what HTTP puts behind it. A program that does not
// read for writeTime is gone.
func (a *programAnswer) write(b []byte, last bool) {
	if a.gone || len(b) == 0 {
		return
	}
	a.spoke = time.Now()
	if _, err := a.inbound.w.Write(b); err != nil {
		a.gone = true
	} else if !last {
		a.flush()
	}
}

func (a *programAnswer) flush() {
	if http.NewResponseController(a.inbound.w).Flush() != nil {
		a.gone = true
	}
}

// finish gives the program the end of its answer, now that it is recorded: what
// was kept back, or why there is none.
func (a *programAnswer) finish(res abi.Result) {
	e := res.Err
	if e == nil {
		e = a.refusal
	}
	switch end := a.g.cfg.Kernel.Ending(a.call.Pid); {
	case e == nil, a.failed:
		a.complete()
	case end != nil && slices.Contains([]abi.Code{abi.Interrupted, abi.OutcomeUnknown, abi.ProcessExited}, e.Code):
		a.cut(end)
	case a.echoes(res, e):
		a.echo()
	default:
		a.cut(e)
	}
}

// echoes reports that the program gets the provider's own error in place of e.
func (a *programAnswer) echoes(res abi.Result, e *abi.Error) bool {
	switch {
	case a.failure == nil, a.begun, res.Outcome == abi.Refused, e.Code == abi.Interrupted, e.Code == abi.OutcomeUnknown:
		return false
	}
	return a.failure.status != http.StatusTooManyRequests || e.Code != abi.ModelBadRequest
}

// complete ends an answer that is whole.
func (a *programAnswer) complete() {
	if a.stream {
		h := http.Header{}
		a.setStanding(h)
		a.write(append([]byte(": kern pid="+strconv.FormatInt(int64(a.call.Pid), 10)+" call="+strconv.FormatUint(a.call.N, 10)+
			" spent "+h.Get(spentHeader)+" left "+h.Get(leftHeader)+"\n\n"), a.tail...), true)
		return
	}
	h := a.inbound.w.Header()
	a.setStanding(h)
	h.Set("Content-Length", strconv.Itoa(len(a.whole)))
	a.write(a.whole, true)
}

// cut ends an answer with an error: in its middle, or in its place.
func (a *programAnswer) cut(e *abi.Error) {
	if a.begun {
		a.write(a.meter.Cut(e.Code, e.Message, e.Hint), true)
		return
	}
	h := a.inbound.w.Header()
	for name := range h { // of an answer that is not given
		if !isOwnHeader(name) {
			h.Del(name)
		}
	}
	h.Set(callHeader, strconv.FormatUint(a.call.N, 10))
	a.inbound.fail(e)
}

// echo gives the program the provider's own error, as it came.
func (a *programAnswer) echo() {
	h := a.inbound.w.Header()
	copyShown(h, a.failure.header, a.pays)
	a.setStanding(h)
	h.Set(callHeader, strconv.FormatUint(a.call.N, 10))
	a.inbound.w.WriteHeader(a.failure.status)
	a.write(a.failure.body, true)
}

// setStanding says what the process used and what is left.
func (a *programAnswer) setStanding(h http.Header) { setStanding(a.g.cfg.Kernel, a.call.Pid, h) }
