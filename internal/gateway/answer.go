package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/format"
)

// A programAnswer is the answer of a model on its way to the program. It is the
// [provider.Client] of an attempt.
type programAnswer struct {
	g       *Gateway
	inbound *inbound
	call    abi.Call
	pays    bool // the program's own credential pays for the attempt
	lowered *abi.Ceiling

	meter   *format.Meter
	stream  bool
	begun   bool          // the program has the head of the answer
	spoke   time.Time     // the time of the last write to the program
	gone    bool          // the program no longer reads
	whole   []byte        // an answer without a stream, kept until the kernel recorded it
	tail    []byte        // the last events of a stream, kept until the kernel recorded the answer
	failed  bool          // the answer ends with an error of the provider
	refusal *abi.Error    // the error of a refused tool call of the answer
	failure *failureReply // the last error answer of the provider
}

// A failureReply is an error answer of a provider, unchanged.
type failureReply struct {
	status int
	header http.Header
	body   []byte
}

// restart prepares the answer for the next attempt.
func (a *programAnswer) restart(pays bool, lowered *abi.Ceiling) {
	a.spoke, a.meter, a.stream, a.pays, a.lowered = time.Now(), nil, false, pays, lowered
}

// open sets the headers of the answer. If the answer is a stream, the program gets
// them at once.
func (a *programAnswer) open(resp *http.Response, from *provider.Attempt) {
	a.meter, a.stream = from.Meter(), from.Streamed()
	h := a.inbound.w.Header()
	copyShown(h, resp.Header, a.pays)
	h.Set(pidHeader, strconv.FormatInt(int64(a.call.Pid), 10))
	h.Set(callHeader, strconv.FormatUint(a.call.N, 10))
	if a.lowered != nil {
		h.Set(loweredHeader, a.lowered.String())
	}
	if a.stream {
		a.setStanding(h)
		a.begun = true
		a.inbound.w.WriteHeader(http.StatusOK)
		a.flush()
	}
}

// Pass implements [provider.Client]. It keeps back the last events of a stream, and all
// of an answer without a stream, until the kernel recorded the answer. Of a lowered
// answer it keeps back the event with the stop reason too, because that event may
// have to name the limit.
func (a *programAnswer) Pass(b []byte, last bool) {
	switch {
	case !a.stream:
		a.whole = append(a.whole, b...)
	case last, a.lowered != nil && a.meter.Said():
		a.tail = append(a.tail, b...)
	default:
		a.write(b, false)
	}
}

// Admit implements [provider.Client]. It turns the tool calls of an answer into system
// calls, because the program sees only tool calls that the kernel admitted.
func (a *programAnswer) Admit(ctx context.Context, calls []format.Call) (map[int]string, error) {
	pulse := time.NewTicker(a.g.cfg.Pulse)
	defer pulse.Stop()
	refused, e := a.g.startTools(ctx, a.inbound.session, calls, heartbeat{pulse.C, a.beat})
	if e != nil {
		a.refusal = e
		return nil, e
	}
	if len(refused) > 0 && a.inbound.format == format.Responses {
		var ids []string
		for i := range refused {
			ids = append(ids, calls[i].ID)
		}
		a.inbound.session.withhold(a.meter.Seen().ID, ids)
	}
	return refused, nil
}

// Held implements [provider.Client]. It sends a heartbeat if one is due.
func (a *programAnswer) Held() {
	if time.Since(a.spoke) >= a.g.cfg.Pulse {
		a.beat()
	}
}

// Gone implements [provider.Client]. It reports whether the program no longer reads.
func (a *programAnswer) Gone() bool { return a.gone }

// beat sends a comment while a stream is held back, because programs close a
// connection that is silent for minutes. Every reader of event streams skips comments.
func (a *programAnswer) beat() {
	if a.stream {
		a.write([]byte(": kern holds a tool call\n\n"), false)
	}
}

// write sends the program a part of its answer. It does not flush the last part,
// because the server sends that part with the end of the HTTP message. A program
// that does not read for writeTime is gone.
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

// finish sends the program the end of its answer, after the kernel recorded the
// answer. The end is the part that was kept back, or an error.
func (a *programAnswer) finish(res abi.Result) {
	e := res.Err
	if e == nil {
		e = a.refusal
	}
	switch end := a.g.cfg.Kernel.Ending(a.call.Pid); {
	case e == nil, a.failed:
		a.complete(res.Cut)
	case end != nil && slices.Contains([]abi.Code{abi.Interrupted, abi.OutcomeUnknown, abi.ProcessExited}, e.Code):
		a.cut(end)
	case a.echoes(res, e):
		a.echo()
	default:
		a.cut(e)
	}
}

// echoes reports whether the program gets the provider's own error in place of e.
func (a *programAnswer) echoes(res abi.Result, e *abi.Error) bool {
	switch {
	case a.failure == nil, a.begun, res.Outcome == abi.Refused, e.Code == abi.Interrupted, e.Code == abi.OutcomeUnknown:
		return false
	}
	return a.failure.status != http.StatusTooManyRequests || e.Code != abi.ModelBadRequest
}

// complete sends the part of a whole answer that was kept back. An answer that a
// limit cut says so in its headers or its last comment, and in the member kern.
func (a *programAnswer) complete(cut *abi.Ceiling) {
	end, note := a.tail, ""
	if !a.stream {
		end = a.whole
	}
	if cut != nil {
		value, _ := json.Marshal(map[string]any{"cut": cut}) // texts and numbers always encode
		end, note = a.inbound.format.Annotate(end, a.stream, "kern", value), cut.String()
	}
	if a.stream {
		h := http.Header{}
		a.setStanding(h)
		if note != "" {
			note = " cut at " + note
		}
		a.write(append([]byte(": kern pid="+strconv.FormatInt(int64(a.call.Pid), 10)+" call="+strconv.FormatUint(a.call.N, 10)+
			" spent "+h.Get(spentHeader)+" left "+h.Get(leftHeader)+note+"\n\n"), end...), true)
		return
	}
	h := a.inbound.w.Header()
	a.setStanding(h)
	if note != "" {
		h.Set(cutHeader, note)
	}
	h.Set("Content-Length", strconv.Itoa(len(end)))
	a.write(end, true)
}

// cut ends an answer with an error. If the program already has the head of a stream,
// the error is an event of the stream; otherwise the error replaces the answer.
func (a *programAnswer) cut(e *abi.Error) {
	if a.begun {
		a.write(a.meter.Cut(e.Code, e.Message, e.Hint), true)
		return
	}
	h := a.inbound.w.Header()
	for name := range h { // drop the provider's headers, because the program does not get that answer
		if !isOwnHeader(name) {
			h.Del(name)
		}
	}
	h.Set(callHeader, strconv.FormatUint(a.call.N, 10))
	a.inbound.fail(e)
}

// echo sends the program the provider's own error, unchanged.
func (a *programAnswer) echo() {
	h := a.inbound.w.Header()
	copyShown(h, a.failure.header, a.pays)
	a.setStanding(h)
	h.Set(callHeader, strconv.FormatUint(a.call.N, 10))
	a.inbound.w.WriteHeader(a.failure.status)
	a.write(a.failure.body, true)
}

// setStanding puts the usage of the process and the rest of its limits into h.
func (a *programAnswer) setStanding(h http.Header) { setStanding(a.g.cfg.Kernel, a.call.Pid, h) }
