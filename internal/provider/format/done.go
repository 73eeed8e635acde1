package format

// Done reports whether the provider sent the end of the answer. It is cheap.
func (m *Meter) Done() bool { return m.answer.done }

// Said reports whether the model finished every choice. After that only the usage
// and the end of the answer can arrive. Said is cheap.
func (m *Meter) Said() bool {
	return m.answer.done || len(m.answer.ends) >= max(1, m.choices)
}

// Failed reports whether the provider sent an error within the answer. It is cheap.
func (m *Meter) Failed() bool { return m.answer.failure != nil }

// Answered returns a copy of r without the body. The copy is enough to read the
// answer to r, and it lets the memory of the body be freed.
func Answered(r *Request) *Request {
	return &Request{Format: r.Format, Model: r.Model, Stream: r.Stream, MaxOutput: r.MaxOutput, Choices: r.Choices, Usage: r.Usage, Count: r.Count}
}
