package format

import (
	"bytes"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/model"
)

// Bounds of what a provider may send.
const (
	maxEvent  = 8 << 20  // one event; a model's longest call fits many times
	maxAnswer = 8 << 20  // text, thoughts and arguments of one answer
	maxWhole  = 64 << 20 // an answer that is not streamed, or what is held back
	maxCalls  = 1024     // calls in one answer, and items that are kept of it
	maxShown  = 4 << 10  // of an event that cannot be read, in the error
)

// A Meter reads an answer as it passes from the provider to the client. It is
// given the bytes as they come, in pieces of any size, and gives those to hand
// on: of a stream whole events, at once; of an answer that is one JSON object
// all of it, at its end. Nothing is changed.
//
// With Hold set, what comes from the beginning of a tool call on stays here
// until [Meter.Release], so that a call can be allowed before anybody sees it.
// Text before it is never held.
//
// A Meter is for one goroutine. The zero Meter is not ready; see [NewMeter].
type Meter struct {
	Hold bool // hold tool calls back
	Drop bool // drop the chunk that has nothing but the usage: the client did not ask for it

	format Format
	stream bool
	split  splitter
	buf    []byte // an event that is not whole, or an answer that is not
	spare  []byte // the other buffer: what was given out may still be in use
	out    []byte
	held   []byte
	tap    tap
	lone   bool // the last event ended in a carriage return; a newline belongs to it
	last   fate // of the last event
	begun  bool // something came
	fail   error
	data   []byte // joined lines
	answer answer

	choices int // that were asked for; 0: one
}

// A fate is what becomes of an event.
type fate uint8

const (
	pass fate = iota
	hold
	drop
)

// NewMeter returns a meter of answers of one format. Whether an answer is
// streamed is said by its content type, not by the request: a server may not
// stream at all.
func NewMeter(f Format, stream bool) *Meter {
	return &Meter{format: f, stream: stream}
}

// OnText sets a function that gets each piece of text as it comes. It is for the
// live channel and the built-in loop; the text of [Meter.Seen] is the same.
func (m *Meter) OnText(f func(piece string)) { m.answer.onText = f }

// Meter is NewMeter for the answer of r, with what r did not ask for dropped.
func (r *Request) Meter(stream bool) *Meter {
	m := NewMeter(r.Format, stream)
	m.Drop = r.Format == Chat && r.Stream && !r.Usage
	m.answer.count = r.Count
	m.choices = int(r.Choices)
	if r.Format == Responses {
		m.answer.of = r.billed()
	}
	return m
}

// Write takes what came and returns what goes on to the client, which is valid
// until the next call of a method of m. After an error, which is a
// [*model.Error] of the kind that the answer failed with or is malformed, what
// comes is no longer read: end it with [Meter.Cut].
//
// An error that the provider itself sends within a stream is no error of
// Write: it goes on to the client as it came, and [Seen] tells.
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

// broken ends the reading.
func (m *Meter) broken(format string, args ...any) error {
	m.fail = &model.Error{Kind: model.Malformed, Message: fmt.Sprintf(format, args...)}
	m.answer.malformed = m.fail.Error()
	return m.fail
}

// events reads the whole events of a stream. Where all of them pass, what is
// returned is what came.
func (m *Meter) events(p []byte) ([]byte, error) {
	m.out = m.out[:0]
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
	from, at := 0, 0 // what passes since the last that did not; the next event
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
	if at == 0 && len(m.buf) > 0 { // nothing of it was given out: it stays where it is
		return m.out, nil
	}
	m.keep(data[at:])
	if len(m.out) == 0 {
		return data[from:at], nil
	}
	m.out = append(m.out, data[from:at]...)
	return m.out, nil
}

// keep moves an event that is not whole into the buffer that nobody reads.
func (m *Meter) keep(rest []byte) {
	const small = 64 << 10
	if len(rest) == 0 && cap(m.buf) > small {
		m.buf = nil // a long event is rare, and idle streams are many
	}
	m.spare = append(m.spare[:0], rest...)
	m.buf, m.spare = m.spare, m.buf[:0]
}

// settle puts bytes where their event goes.
func (m *Meter) settle(b []byte, f fate) {
	switch f {
	case pass:
		m.out = append(m.out, b...)
	case hold:
		m.held = append(m.held, b...)
	}
}

// event reads one event and decides what becomes of it.
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
	case a.failure != nil: // nothing that is held will ever be whole
		m.held = m.held[:0]
		a.release(0, true)
	case a.idle && m.Drop:
		return drop, nil
	case m.Hold && a.waiting > 0:
		return hold, nil
	}
	return pass, nil
}

// read takes in the data of one event.
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

// End says that nothing more comes. It returns the rest for the client: of an
// answer that is one object all of it, of a stream what stood behind its last
// event. Held bytes stay held. err says that the answer is not whole.
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
		f, err := m.event(rest)
		if half = err != nil; half { // it says nothing, and stands where it stood
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
		a.done = true // there are servers that say no more than why they stopped
	}
	if !a.done && a.failure == nil {
		m.fail = &model.Error{Kind: model.Network, Message: "the answer was cut before its end"}
		if half { // an error can be put behind a whole event only
			rest = nil
		}
		return rest, m.fail
	}
	return rest, nil
}

// Ready are the calls that are whole and wait for [Meter.Release]. It costs
// nothing to ask.
func (m *Meter) Ready() []Call { return m.answer.ready() }

// Release gives what is held, as far as no call stands in it that is not
// whole; for that one, and all behind it, Release is asked again. The result is
// valid until the next call of a method of m.
func (m *Meter) Release() []byte {
	n := m.answer.release(len(m.held), false)
	m.out = append(m.out[:0], m.held[:n]...)
	m.held = m.held[:copy(m.held, m.held[n:])]
	return m.out
}

// Held says how many bytes are held.
func (m *Meter) Held() int { return len(m.held) }

// Cut is what ends a stream in the middle: an error in the caller's own format
// that makes the official libraries raise it and send nothing again. Held bytes
// never come out. Nothing may be written behind it. For an answer that
// is one object it is the body of an error.
func (m *Meter) Cut(code abi.Code, message, hint string) []byte {
	m.held = nil
	if m.stream && m.format != Embeddings {
		return cut(m.format, m.answer.sequence+1, code, message, hint)
	}
	return ErrorBody(m.format, Status(code), code, message, hint)
}

// Seen is what an answer was so far.
type Seen struct {
	ID        string // the provider's, of the answer
	Model     string // as the provider names it
	Text      string
	Calls     []Call // in the order they began; Whole tells which are complete
	Stop      model.Stop
	Done      bool // the provider said that this is the end
	Begun     bool // something came
	Malformed string
	Failure   *model.Error // that the provider sent within the answer

	// Usage is what the provider said, as far as it did. Reported says that
	// the count of output is the final one.
	Usage    model.Usage
	Reported bool
	HasInput bool  // Usage has the input
	Output   int64 // tokens: as reported, else counted in what came, thoughts that are shown too
	Thought  int64 // of the reported output: thoughts
	Hour     int64 // of Usage.CacheWrite: kept for an hour or longer, at twice the price of input
	Searches int64 // web searches that the provider made and bills by the piece
	Tier     string
	Kept     []Kept `json:",omitempty"`
}

// Kept is what a provider keeps of an answer, and what that takes at most in a
// request that refers to it.
type Kept struct {
	ID     string
	Tokens int64
}

// Seen is what came so far. It counts tokens where none were reported: ask at
// the end, or now and then, and not for every event.
func (m *Meter) Seen() Seen {
	a := &m.answer
	s := Seen{
		ID: a.id, Model: a.model, Text: a.text.String(), Stop: a.stop, Done: a.done, Begun: m.begun, Malformed: a.malformed, Failure: a.failure,
		Usage: a.usage, Reported: a.told() && m.Said(), HasInput: a.hasInput, Thought: a.thought, Hour: a.hour, Searches: a.searches, Tier: a.tier,
	}
	own := false
	for _, c := range a.list {
		s.Calls, own = append(s.Calls, c.call()), own || !c.Hosted
	}
	if s.Stop == "" && a.done && a.failure == nil {
		s.Stop = model.StopEnd
	}
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

// Over says that more than limit output tokens came, by our own count or the
// provider's. It is quick while that cannot be: a token is at least a byte.
func (m *Meter) Over(limit int64) bool {
	a := &m.answer
	if a.usage.Output > limit {
		return true
	}
	return !a.told() && int64(a.size) > limit && a.pieces() > limit
}
