package model

import "github.com/kern-run/kern/internal/provider/tokens"

// Overheads of OpenAI's chat format, in tokens. Three frame each message and one
// names its role; three more begin the answer. The numbers for a call and a tool are
// above all measured values.
const (
	perMessage = 4
	perAnswer  = 3
	perCall    = 8
	perTool    = 16
)

// CountRequest counts the input tokens of r in o200k_base, the vocabulary of
// OpenAI's models since GPT-4o. It counts the JSON of a tool, which is a bound,
// because a tool reaches the model in a shorter form. A [Model] whose tokens nobody
// bills may use CountRequest for Count.
func CountRequest(r Request) int {
	n := perAnswer
	for i := range r.Messages {
		n += CountMessage(&r.Messages[i])
	}
	for _, t := range r.Tools {
		n += perTool + tokens.CountText(t.Name) + tokens.CountText(t.Description) + tokens.CountText(string(t.Schema))
	}
	return n
}

// CountMessage counts the tokens of m in a conversation, with its overhead. Counting
// a text again costs only a hash.
func CountMessage(m *Message) int {
	n := perMessage + tokens.CountText(m.Text) + tokens.CountText(m.CallID)
	for _, c := range m.Calls {
		n += perCall + tokens.CountText(c.ID) + tokens.CountText(c.Name) + tokens.CountText(c.Args)
	}
	return n
}
