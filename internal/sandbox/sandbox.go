// Package sandbox runs code that nobody trusts: a [Spec] in, an [Outcome] out.
//
// It knows nothing of agents, models or journals. A [Backend] is one way to
// build the box; backends differ in what they can run and how strong their
// wall is, never in what a Spec or an Outcome means. The zero Spec may touch
// nothing: no file of the host, no environment, no network, no host function.
package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// A Spec says what to run and everything it may touch.
// Exactly one of Code and Argv is set.
type Spec struct {
	Code string   // Python source text
	Argv []string // a program and its arguments

	Dir       string            // workspace, seen inside as /workspace, where the code starts; empty: a private one that is removed at the end
	Files     FS                // the workspace in place of Dir, where the code runs in this program; nil: Dir
	Env       map[string]string // the whole environment; nothing is inherited
	Stdin     io.Reader         // nil: empty
	Stdout    io.Writer         // receives output as it comes; nil: kept in the Outcome only
	Stderr    io.Writer         // as Stdout
	Functions []Function        // what the code may call back; only with Code
	Proxy     net.Conn          // the only way to a network, as descriptor 3 of the program; nil: none
	Limits    Limits
	Allow     []string // weaknesses of this host the caller accepts by name; see [Weakness]
}

// Limits bound one run. Zero means [DefaultLimits], never "without bound".
//
// Wall, CPU and Output end the run where it stands. Memory, Files, FileBytes
// and Processes refuse what goes past them, as a full disk does, and the code
// may handle that: the run carries their cause only if it then fails.
type Limits struct {
	Wall      time.Duration // from start to end
	CPU       time.Duration // processor time of everything that ran
	Memory    int64         // bytes
	Output    int64         // bytes of stdout and stderr together
	FileBytes int64         // bytes newly held by the workspace and private files
	Files     int           // files newly created
	Processes int           // processes and threads at one time
}

// DefaultLimits stand in for every zero in a Spec's Limits.
var DefaultLimits = Limits{
	Wall:      10 * time.Second,
	CPU:       10 * time.Second,
	Memory:    256 << 20,
	Output:    1 << 20,
	FileBytes: 64 << 20,
	Files:     10_000,
	Processes: 64,
}

// A Function is a power lent to the code: tools.NAMESPACE.NAME in Python.
// The code waits while Call runs; ctx ends with the run. Namespace, Name and
// the names of Params are Python identifiers. args is an object with one member
// for each argument that was given; bytes travel both ways as [Bytes].
type Function struct {
	Namespace string
	Name      string
	Doc       string
	Params    []Param
	Call      func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)
}

// A Param is one parameter of a Function, in order.
type Param struct {
	Name     string
	Type     string // a Python annotation: str, int, float, bool, list, dict, bytes, or a union of them
	Optional bool
}

// Bytes are a Python bytes object in the arguments or the result of a
// Function: in JSON an object with the one member "$bytes", in base64.
type Bytes []byte

type bytesJSON struct {
	Bytes []byte `json:"$bytes"`
}

// MarshalJSON implements [json.Marshaler].
func (b Bytes) MarshalJSON() ([]byte, error) {
	if b == nil {
		b = Bytes{}
	}
	return json.Marshal(bytesJSON{b})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var v bytesJSON
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil || v.Bytes == nil {
		return fmt.Errorf(`sandbox: want bytes as {"$bytes": base64}, got %.40q`, data)
	}
	*b = v.Bytes
	return nil
}

// A CallError is the error of a Function with fields the code can read: it is
// tools.ToolError in Python. Any other error of a Function has the code "failed".
type CallError struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Fields  map[string]any `json:"fields,omitempty"`
}

func (e *CallError) Error() string { return e.Code + ": " + e.Message }

// Cause says in one word why a run ended.
type Cause string

// The causes. Refused means that nothing ran.
const (
	OK        Cause = "ok"
	Failed    Cause = "failed"    // exit code or exception of its own
	Timeout   Cause = "timeout"   // wall or CPU
	Memory    Cause = "memory"    // memory
	Output    Cause = "output"    // more output than allowed
	Processes Cause = "processes" // too many processes
	Files     Cause = "files"     // too many files or bytes in files
	Killed    Cause = "killed"    // the caller's context ended
	Refused   Cause = "refused"   // the Spec cannot be enforced or makes no sense
)

// An Outcome says what a run did. Output is kept up to its cap also when the
// run was ended.
type Outcome struct {
	Cause     Cause
	Exit      int
	Signal    string // name of the signal that ended the program, if one did
	Stdout    []byte
	Stderr    []byte
	Truncated bool // output was cut at its cap
	Usage     Usage
}

// Usage is what a run took.
type Usage struct {
	Wall        time.Duration
	CPU         time.Duration
	PeakBytes   int64
	OutputBytes int64
}

// A Backend runs Specs. It is safe for concurrent use. An error means that
// nothing ran, and is a [*Refusal] when the reason is the Spec or the host.
type Backend interface {
	Run(ctx context.Context, s Spec) (Outcome, error)
	Close() error
}

// A Session keeps one instance between runs of one owner, so that variables
// live on. Limits apply to each Run, memory to the session.
type Session interface {
	Run(ctx context.Context, s Spec) (Outcome, error)
	Close() error
}

// A Sessioner is a Backend that can keep sessions.
type Sessioner interface {
	Open(ctx context.Context, s Spec) (Session, error)
}

// A Weakness is something a Spec asks for that this host cannot enforce.
type Weakness struct {
	Name string // stable: what a caller puts into Spec.Allow
	Why  string // as measured on this host
	Fix  string // the command or change that would mend it
}

// A Prober is a Backend that can measure what this host enforces.
type Prober interface {
	Probe(ctx context.Context) ([]Weakness, error)
}

// A Refusal says why a Spec did not run, and what would mend it.
type Refusal struct {
	Backend string
	Reason  string
	Fix     string
}

func (r *Refusal) Error() string {
	s := fmt.Sprintf("sandbox %s: %s", r.Backend, r.Reason)
	if r.Fix != "" {
		s += " (to mend it: " + r.Fix + ")"
	}
	return s
}
