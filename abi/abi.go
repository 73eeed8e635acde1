// Package abi is the contract between agents and the kernel: calls and results,
// usage and limits, errors, and the records of the journal.
//
// It holds types only and imports nothing but the standard library. A Call gets a
// Result; a Record is a fact in the journal; Limits bound Usage; an Error has a
// frozen Code.
package abi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Pid names one process for the life of a data directory.
type Pid int64

// A Call is one system call of a process. The caller chooses N, and (Pid, N)
// identifies the call for ever, across restarts: the same call made again gets the
// first answer.
type Call struct {
	Pid    Pid             `json:"pid"`
	N      uint64          `json:"call"`
	Row    string          `json:"row"`
	Args   json.RawMessage `json:"args,omitempty"`
	Within uint64          `json:"within,omitempty"` // the open call of the same process that this one is part of
	For    string          `json:"for,omitempty"`    // the model's name for the tool call that this one answers
}

// A Result answers a Call. Exactly one of Value and Err is set.
type Result struct {
	Outcome  Outcome         `json:"outcome"`
	Value    json.RawMessage `json:"value,omitempty"`
	Err      *Error          `json:"error,omitempty"`
	Warning  *Error          `json:"warning,omitempty"` // the watchdog's one warning
	Usage    Usage           `json:"usage"`
	Attempts int             `json:"attempts,omitempty"`
	Cut      *Ceiling        `json:"cut,omitempty"` // the answer of a model reached the maximum that a limit had lowered
}

// Outcome says how a call ended.
type Outcome string

// The outcomes. Unknown means that the effect began and its end is not known; its
// reservation is kept.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Unknown Outcome = "unknown"
	Refused Outcome = "refused"
)

// Effect is what a call may do to the world.
type Effect string

// The effect classes. Polling is Idempotent with a patience of its own.
const (
	Pure          Effect = "pure"
	Idempotent    Effect = "idempotent"
	Polling       Effect = "polling"
	Transactional Effect = "transactional"
	Compensable   Effect = "compensable"
	Irreversible  Effect = "irreversible"
)

// Effects lists the classes a tool may declare.
var Effects = []Effect{Pure, Idempotent, Polling, Transactional, Compensable, Irreversible}

// Repeatable reports whether a call in doubt may run again, because two runs have
// the same effect as one. A transactional run that failed left nothing behind.
func (e Effect) Repeatable() bool {
	return e == Pure || e == Idempotent || e == Polling || e == Transactional
}

// State is the phase of a process.
type State string

// The states. A waiting process says for what.
const (
	New     State = "new"
	Ready   State = "ready"
	Running State = "running"
	Waiting State = "waiting"
	Paused  State = "paused"
	Exited  State = "exited"
)

// Exit is the type of a terminal record.
type Exit string

// The exits.
const (
	ExitDone    Exit = "done"
	ExitFailed  Exit = "failed"
	ExitKilled  Exit = "killed"
	ExitLimit   Exit = "limit"
	ExitLoop    Exit = "loop"
	ExitCrashed Exit = "crashed"
)

// Signal is an order to a process. It overtakes every call.
type Signal string

// The signals: pause, go on, finish now with last words, end.
const (
	Stop Signal = "stop"
	Cont Signal = "cont"
	Term Signal = "term"
	Kill Signal = "kill"
)

// Hash is the SHA-256 of something.
type Hash [sha256.Size]byte

// HashOf returns the hash of b.
func HashOf(b []byte) Hash { return sha256.Sum256(b) }

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether h names nothing.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fmt.Errorf("hash: %d characters, want %d", len(b), 2*len(h))
	}
	_, err := hex.Decode(h[:], b)
	return err
}

// InlineMax is the size of the largest payload inside a record. A larger payload
// is a blob, which is stored once under its hash.
const InlineMax = 160

// Data is a payload of a record: inline, or the name of a blob.
type Data struct {
	Bytes []byte `json:"bytes,omitempty"`
	Hash  Hash   `json:"hash,omitzero"` // set for a blob
	Size  int64  `json:"size,omitempty"`
}

// A Blob is a large payload on its way to the journal.
type Blob struct {
	Hash  Hash
	Bytes []byte
}

// NewData returns b as a payload, and the blob to store with it if b is large.
func NewData(b []byte) (Data, *Blob) {
	if len(b) <= InlineMax {
		return Data{Bytes: b, Size: int64(len(b))}, nil
	}
	h := HashOf(b)
	return Data{Hash: h, Size: int64(len(b))}, &Blob{Hash: h, Bytes: b}
}
