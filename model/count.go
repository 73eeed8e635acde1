package model

import "github.com/kern-run/kern/internal/provider/tokens"

// Overheads of the chat format of OpenAI: each message is framed by three
// tokens and names its role with one, and the answer is primed with three. The
// numbers for a call and a tool are above what was seen.
const (
	perMessage = 4
	perAnswer  = 3
	perCall    = 8
	perTool    = 16
)

// CountRequest counts the input tokens of r in o200k_base, the vocabulary of
// OpenAI's models since GPT-4o. A tool reaches a model in a form that is
// shorter than its JSON, so its JSON is a bound. A [Model] whose tokens nobody
// bills may count by it.
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

// CountMessage counts m as it stands in a conversation. A text that was counted
// before costs a hash.
func CountMessage(m *Message) int {
	n := perMessage + tokens.CountText(m.Text) + tokens.CountText(m.CallID)
	for _, c := range m.Calls {
		n += perCall + tokens.CountText(c.ID) + tokens.CountText(c.Name) + tokens.CountText(c.Args)
	}
	return n
}
