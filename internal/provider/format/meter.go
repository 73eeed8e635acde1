package format

import (
	"bytes"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/model"
)

// Limits on an answer of a provider, in bytes unless noted. A longer answer is
// malformed.
const (
	maxEvent  = 8 << 20  // one event; the longest call of a model is many times shorter
	maxAnswer = 8 << 20  // text, thoughts and tool arguments of one answer
	maxWhole  = 64 << 20 // an answer that is not streamed, or the held bytes of a stream
	maxCalls  = 1024     // number of calls in one answer, and of items in Seen.Kept
	maxShown  = 4 << 10  // how much of an unreadable event the error quotes
)

// Meter reads an answer as it passes from the provider to the client.
// [Meter.Write] takes the bytes as they arrive, in pieces of any size, and
// returns the bytes for the client. For a stream it returns whole events at
// once. For an answer that is one JSON object, [Meter.End] returns all of it.
// Meter changes no event; it can only drop, hold or cut.
//
// With Hold set, Meter holds every byte from the first tool call on, until
// [Meter.Release]. So the kernel can admit the call before the client sees it.
// Meter never holds the text before the first tool call.
//
// A Meter is for one goroutine. The zero Meter is not usable: call [NewMeter].
type Meter struct {
	Hold bool // hold tool calls back
	Drop bool // drop the chunk that holds only the usage, because the client did not ask for it

	format Format
	stream bool
	split  splitter
	buf    []byte // the bytes of an incomplete event, or of an incomplete answer
	spare  []byte // the second buffer, because the caller may still use bytes of buf
	out    []byte // the result of Write or Release
	held   []byte // the bytes held until Release
	tap    tap
	lone   bool // the last event ended in a carriage return; a newline after it belongs to that event
	last   fate // the fate of the last event
	begun  bool // at least one byte arrived
	fail   error
	data   []byte // scratch space for the joined data lines of an event
	answer answer

	choices int // how many answers the request asked for; 0 counts as 1
}

// fate says where an event goes: to the client, to the held bytes, or nowhere.
type fate uint8

const (
	pass fate = iota
	hold
	drop
)

// NewMeter returns a Meter for an answer of format f. The caller takes stream from
// the content type of the answer, not from the request, because some servers never
// stream.
func NewMeter(f Format, stream bool) *Meter {
	return &Meter{format: f, stream: stream}
}

// OnText sets a function that Meter calls with each piece of text as it arrives.
// The live channel and the built-in loop use it. [Meter.Seen] has the same text.
func (m *Meter) OnText(f func(piece string)) { m.answer.onText = f }

// Meter returns a Meter for the answer to r. It drops the usage chunk of a Chat
// stream if the client did not ask for it.
func (r *Request) Meter(stream bool) *Meter {
	m := NewMeter(r.Format, stream)
	m.Drop = r.Format == Chat && r.Stream && !r.Usage
	m.answer.count = r.Count
	m.choices = int(r.Choices)
	if r.Format == Responses {
		m.answer.of = r.Billed()
	}
	return m
}

// Write reads p, the next bytes of the answer, and returns the bytes for the
// client. They are valid until the next call of a method of m.
//
// If the answer is malformed or over a limit, Write returns a [*model.Error].
// After an error m reads nothing more: end the stream with [Meter.Cut].
//
// An error that the provider sends within a stream is not an error of Write. It
// goes to the client unchanged, and [Seen] has it as Failure.
func (m *Meter) Write(p []byte) (forward []byte, err error) {
	if m.fail != nil {
		return nil, m.fail
	}
	m.begun = m.begun || len(p) > 0
	switch {
	case m.format == Embeddings:
		m.tap.write(p)
		return p, nil
	case !m.stream:
		if len(m.buf)+len(p) > maxWhole {
			return nil, m.broken("the answer is longer than %d bytes", maxWhole)
		}
		m.buf = append(m.buf, p...)
		return nil, nil
	}
	return m.events(p)
}

// broken marks the answer as malformed and ends the reading.
func (m *Meter) broken(format string, args ...any) error {
	m.fail = &model.Error{Kind: model.Malformed, Message: fmt.Sprintf(format, args...)}
	m.answer.malformed = m.fail.Error()
	return m.fail
}

// events reads the whole events of a stream and keeps an incomplete event for
// later. If all events pass, the result is a slice of the input, without a copy.
func (m *Meter) events(p []byte) ([]byte, error) {
	m.out = m.out[:0]
	// A newline after a final carriage return shares the fate of the last event.
	if m.lone && len(p) > 0 {
		if m.lone = false; p[0] == '\n' {
			m.settle(p[:1], m.last)
			p = p[1:]
		}
	}
	data := p
	if len(m.buf) > 0 {
		m.buf = append(m.buf, p...)
		data = m.buf
	}
	// from is where the unbroken run of passing events begins; at is the next event.
	from, at := 0, 0
	for {
		n, lone := m.split.end(data[at:])
		if n == 0 {
			break
		}
		event := data[at : at+n]
		f, err := m.event(event)
		if err != nil {
			m.out = append(m.out, data[from:at]...)
			return m.out, err
		}
		m.lone, m.last = lone, f
		if f != pass {
			m.out = append(m.out, data[from:at]...)
			from = at + n
			m.settle(event, f)
		}
		at += n
	}
	if len(m.held) > maxWhole || len(data)-at > maxEvent {
		m.out = append(m.out, data[from:at]...)
		return m.out, m.broken("an event is longer than %d bytes, or a call than %d", maxEvent, maxWhole)
	}
	if at == 0 && len(m.buf) > 0 { // the caller got no byte of buf, so buf need not move
		return m.out, nil
	}
	// The result may be a slice of buf, so the incomplete event moves to spare.
	m.keep(data[at:])
	if len(m.out) == 0 {
		return data[from:at], nil
	}
	m.out = append(m.out, data[from:at]...)
	return m.out, nil
}

// keep copies an incomplete event into the spare buffer, because the caller may
// still read the current buffer.
func (m *Meter) keep(rest []byte) {
	const small = 64 << 10
	if len(rest) == 0 && cap(m.buf) > small {
		m.buf = nil // free the memory: long events are rare and idle streams are many
	}
	m.spare = append(m.spare[:0], rest...)
	m.buf, m.spare = m.spare, m.buf[:0]
}

// settle appends the bytes of an event to out or to held, as its fate says.
func (m *Meter) settle(b []byte, f fate) {
	switch f {
	case pass:
		m.out = append(m.out, b...)
	case hold:
		m.held = append(m.held, b...)
	}
}

// event reads one event and returns its fate.
func (m *Meter) event(event []byte) (fate, error) {
	if m.answer.events++; m.answer.events == 1 {
		event = bytes.TrimPrefix(event, []byte("\ufeff"))
	}
	data := bytes.TrimSpace(eventData(event, &m.data))
	a := &m.answer
	a.idle, a.at = false, len(m.held)
	if len(data) > 0 {
		if err := m.read(data); err != nil {
			return pass, err
		}
	}
	switch {
	case a.failure != nil: // the held calls will never be complete
		m.held = m.held[:0]
		a.release(0, true)
	case a.idle && m.Drop:
		return drop, nil
	case m.Hold && a.waiting > 0:
		return hold, nil
	}
	return pass, nil
}

// read adds the data of one event to the answer and checks the limits.
func (m *Meter) read(data []byte) error {
	a := &m.answer
	if string(data) == "[DONE]" {
		a.close()
		a.done = true
		return nil
	}
	if bad := jsontext.Check(data, jsontext.Lenient); bad != nil {
		return m.broken("the provider's event is not JSON: %v: %s", bad, data[:min(len(data), maxShown)])
	}
	switch m.format {
	case Chat:
		a.chat(data)
	case Responses:
		a.response(data)
	case Messages:
		a.message(data)
	}
	switch {
	case len(a.list) > maxCalls:
		return m.broken("more than %d calls in one answer", maxCalls)
	case a.crowded:
		return m.broken("more than %d choices in one answer", maxChoices)
	case a.size > maxAnswer:
		return m.broken("the answer is longer than %d bytes", maxAnswer)
	}
	return nil
}

// End tells m that the answer has no more bytes. It returns the rest for the
// client: all of an answer that is one object, or the bytes after the last event
// of a stream. Held bytes stay held. An error means that the answer is incomplete.
func (m *Meter) End() (forward []byte, err error) {
	if m.fail != nil {
		return nil, m.fail
	}
	a := &m.answer
	rest, half := m.buf, false
	m.buf = nil
	switch {
	case m.format == Embeddings:
		m.tap.into(a)
	case m.stream && len(rest) == 0:
	case m.stream:
		// The last event may lack its blank line, or be cut in the middle.
		f, err := m.event(rest)
		if half = err != nil; half { // a cut event means nothing, and is not a malformed answer
			m.fail, a.malformed = nil, ""
			if m.Hold && a.waiting > 0 {
				f = hold
			}
		}
		if f != pass {
			m.settle(rest, f)
			rest = nil
		}
	default:
		// An object that was cut is a network error, reported below.
		if bad := jsontext.Check(rest, jsontext.Lenient); bad != nil && bad.Cut {
			break
		}
		if err := m.read(rest); err != nil {
			return rest, err
		}
		if a.close(); m.Hold && a.waiting > 0 {
			m.held, rest = rest, nil
		}
	}
	if (m.Said() || !m.stream && len(a.ends) > 0) && a.whole() {
		a.done = true // some servers send a stop reason and no end event
	}
	if !a.done && a.failure == nil {
		m.fail = &model.Error{Kind: model.Network, Message: "the answer was cut before its end"}
		if half { // the error event of Cut can follow only a whole event
			rest = nil
		}
		return rest, m.fail
	}
	return rest, nil
}

// Ready returns the complete calls that wait for [Meter.Release]. It is cheap.
func (m *Meter) Ready() []Call { return m.answer.ready() }

// Release returns the held bytes up to the first incomplete call. Call it again for
// the rest when that call is complete. The result is valid until the next call of a
// method of m.
func (m *Meter) Release() []byte {
	n := m.answer.release(len(m.held), false)
	m.out = append(m.out[:0], m.held[:n]...)
	m.held = m.held[:copy(m.held, m.held[n:])]
	return m.out
}

// Held returns how many bytes m holds.
func (m *Meter) Held() int { return len(m.held) }

// Cut returns the bytes that end a stream in the middle: an error event in the
// format of the client. The official libraries raise this error and do not retry.
// For an answer that is one object, Cut returns an error body.
//
// Cut drops the held bytes. The caller must write nothing after the result.
func (m *Meter) Cut(code abi.Code, message, hint string) []byte {
	m.held = nil
	if m.stream && m.format != Embeddings {
		return cut(m.format, m.answer.sequence+1, code, message, hint)
	}
	return ErrorBody(m.format, Status(code), code, message, hint)
}

// Seen describes an answer as far as it arrived.
type Seen struct {
	ID        string // the id that the provider gave the answer
	Model     string // the model name that the provider reports
	Text      string
	Calls     []Call // in the order they began; Whole marks the complete calls
	Stop      model.Stop
	Done      bool // the provider sent the end of the answer
	Begun     bool // at least one byte arrived
	Malformed string
	Failure   *model.Error // the error that the provider sent within the answer

	// Usage holds the reported amounts; Output is counted here while the report
	// is missing. Reported means that the count of output is final.
	Usage    model.Usage
	Reported bool
	HasInput bool  // the provider reported the input
	Output   int64 // output tokens: as reported, else counted here from text, calls and shown thoughts
	Thought  int64 // the part of the reported output that is thoughts
	Hour     int64 // the part of Usage.CacheWrite that is kept for an hour or longer, at twice the input price
	Searches int64 // web searches of the provider, each billed separately
	Tier     string
	Kept     []Kept `json:",omitempty"`
}

// Kept is an item or an answer that the provider stores. Tokens is the most input
// that it adds to a request that refers to it by ID.
type Kept struct {
	ID     string
	Tokens int64
}

// Seen describes the answer so far. While the provider has not reported the
// output, Seen counts tokens. That is slow, so do not call it for every event.
func (m *Meter) Seen() Seen {
	a := &m.answer
	s := Seen{
		ID: a.id, Model: a.model, Text: a.text.String(), Stop: a.stop, Done: a.done, Begun: m.begun, Malformed: a.malformed, Failure: a.failure,
		Usage: a.usage, Reported: a.told() && m.Said(), HasInput: a.hasInput, Thought: a.thought, Hour: a.hour, Searches: a.searches, Tier: a.tier,
	}
	own := false // the client runs at least one call
	for _, c := range a.list {
		s.Calls, own = append(s.Calls, c.call()), own || !c.Hosted
	}
	if s.Stop == "" && a.done && a.failure == nil {
		s.Stop = model.StopEnd
	}
	// Some formats report a plain end although the answer calls tools.
	if s.Stop == model.StopEnd && own {
		s.Stop = model.StopTools
	}
	s.Output = a.usage.Output
	if !s.Reported {
		s.Output = max(s.Output, a.counted())
	}
	s.Usage.Output = s.Output
	if a.done && s.Reported {
		s.Kept = a.keeps()
	}
	return s
}

// Over reports whether the answer has more than limit output tokens, by Kern's count or
// the provider's. It counts only if there are more than limit bytes, because
// a token is at least one byte.
func (m *Meter) Over(limit int64) bool {
	a := &m.answer
	if a.usage.Output > limit {
		return true
	}
	return !a.told() && int64(a.size) > limit && a.pieces() > limit
}
