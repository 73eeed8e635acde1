// Package sandbox runs untrusted code: a [Spec] goes in, an [Outcome] comes out.
//
// It knows nothing about agents, models or journals. A [Backend] is one kind of
// sandbox. Backends differ in what they can run and in how strongly they confine
// it, but a Spec and an Outcome mean the same for all. The zero Spec allows nothing:
// no file of the host, no environment, no network, no host function.
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

// A Spec says what to run and what the code may use. Exactly one of Code and Argv
// is set.
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
// Wall, CPU and Output end the run at once. Memory, Files, FileBytes and Processes
// refuse what exceeds them, as a full disk does. The code may handle that. Only if
// the run then fails, its Outcome names them as the cause. In a directory of the
// host, FileBytes cannot count a deleted file that a program still maps but closed.
type Limits struct {
	Wall      time.Duration // from start to end
	CPU       time.Duration // processor time of everything that ran
	Memory    int64         // bytes
	Output    int64         // bytes of stdout and stderr together
	FileBytes int64         // bytes newly held by the workspace and private files
	Files     int           // files newly created
	Processes int           // processes and threads at one time
}

// DefaultLimits replace every zero in the Limits of a Spec.
var DefaultLimits = Limits{
	Wall:      10 * time.Second,
	CPU:       10 * time.Second,
	Memory:    256 << 20,
	Output:    1 << 20,
	FileBytes: 64 << 20,
	Files:     10_000,
	Processes: 64,
}

// A Function is a host function that the code may call: tools.NAMESPACE.NAME in
// Python. The code waits while Call runs; ctx ends with the run. Namespace, Name
// and the names of Params are Python identifiers. args is an object with a member
// for each given argument. Values of type bytes are encoded as [Bytes].
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

// Bytes is a Python bytes object in the arguments or the result of a Function. In
// JSON it is an object with the single member "$bytes", in base64.
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

// A CallError is an error of a Function with fields that the code can read. In
// Python it is tools.ToolError. Any other error has the code "failed".
type CallError struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Fields  map[string]any `json:"fields,omitempty"`
}

func (e *CallError) Error() string { return e.Code + ": " + e.Message }

// Cause is the reason why a run ended.
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

// An Outcome is the result of a run. Output is kept up to its limit, also if the
// run was stopped.
type Outcome struct {
	Cause     Cause
	Exit      int
	Signal    string // name of the signal that ended the program, if one did
	Stdout    []byte
	Stderr    []byte
	Truncated bool // output was cut at its cap
	Usage     Usage
}

// Usage is what a run used.
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

// A Session keeps one instance between the runs of one owner, with its variables.
// Limits apply to each Run; the limit on memory applies to the session.
type Session interface {
	Run(ctx context.Context, s Spec) (Outcome, error)
	Close() error
}

// A Sessioner is a Backend that can keep sessions.
type Sessioner interface {
	Open(ctx context.Context, s Spec) (Session, error)
}

// A Weakness is a request of a Spec that this host cannot enforce.
type Weakness struct {
	Name string // stable: what a caller puts into Spec.Allow
	Why  string // as measured on this host
	Fix  string // the command or change that would fix it
}

// A Prober is a Backend that can measure what this host enforces.
type Prober interface {
	Probe(ctx context.Context) ([]Weakness, error)
}

// A Refusal says why a Spec did not run, and how to fix that.
type Refusal struct {
	Backend string
	Reason  string
	Fix     string
}

func (r *Refusal) Error() string {
	s := fmt.Sprintf("sandbox %s: %s", r.Backend, r.Reason)
	if r.Fix != "" {
		s += " (to fix it: " + r.Fix + ")"
	}
	return s
}
