package format

// Done says that the provider said that this is the end. It costs nothing to
// ask.
func (m *Meter) Done() bool { return m.answer.done }

// Said says that the model has said all: what may still come is what it took,
// and the word that this is the end. It costs nothing to ask.
func (m *Meter) Said() bool {
	return m.answer.done || len(m.answer.ends) >= max(1, m.choices)
}

// Failed says that the provider sent an error within the answer. It costs nothing
// to ask.
func (m *Meter) Failed() bool { return m.answer.failure != nil }

// Answered is what is left of a request when it was sent: enough to read its
// answer, and not its body.
func Answered(r *Request) *Request {
	return &Request{Format: r.Format, Model: r.Model, Stream: r.Stream, MaxOutput: r.MaxOutput, Choices: r.Choices, Usage: r.Usage, Count: r.Count}
}
