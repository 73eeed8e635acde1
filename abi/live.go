package abi

// A LiveItem reports what the journal does not hold: text that a model streams,
// and the begin and the end of a wait. Items may be lost; records are not.
type LiveItem struct {
	Kind    LiveKind `json:"kind"`
	Pid     Pid      `json:"pid"`
	Call    uint64   `json:"call"`
	Attempt int      `json:"attempt,omitempty"` // text of a later attempt replaces the text of earlier ones; wait: the next attempt, 0: none failed
	Text    string   `json:"text,omitempty"`    // text: the next piece of the answer
	For     string   `json:"for,omitempty"`     // wait: what the call waits for; empty: the wait is over, and with an attempt, that attempt begins
	Cause   string   `json:"cause,omitempty"`   // wait: why the attempt before failed: the provider's HTTP status, or an error code
	Dropped uint64   `json:"dropped,omitempty"` // items lost since the item before this one
}

// LiveKind is the kind of a [LiveItem].
type LiveKind string

// The kinds of live items.
const (
	LiveText LiveKind = "text"
	LiveWait LiveKind = "wait"
)
