package wire

// Done says that the provider said that this is the end. It costs nothing to
// ask.
func (m *Meter) Done() bool { return m.answer.done }
