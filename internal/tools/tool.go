// Package tools makes tools of Go functions and of commands. A command is a program
// that gets its arguments as JSON on stdin and answers on stdout.
//
// An [abi.ToolSpec] declares a tool. The Run of a [Tool] makes exactly one attempt and
// never panics. The kernel decides about each attempt and about the next one.
//
// A command that has returned left no program behind, however it ended: see package
// program.
package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/schema"
)

// A Tool is a declared tool that can run. It is safe for concurrent use.
type Tool struct {
	abi.ToolSpec
	Args    *schema.Schema // the schema of the arguments
	Results *schema.Schema // the schema of the result; nil: any result
	Run     func(ctx context.Context, in Input) Output
}

// Input is one attempt at a call.
type Input struct {
	Pid       abi.Pid
	Call      uint64
	Attempt   int
	Args      json.RawMessage
	Dir       string            // working directory of a command; "" is a private, empty one, the same as TMPDIR
	MaxOutput int64             // the most bytes of output; the tool is stopped at it; 0 is no limit, negative is none
	Rest      string            // where the rest of a long output can be read; it stands in the gap
	Code      bool              // code reads the result, and not a model
	Env       map[string]string // variables of a command besides PATH, HOME, LANG and TMPDIR
}

// Output is the result of an attempt. Err is nil if the attempt succeeded. The Got of
// an Err holds what a command had written before, shortened.
type Output struct {
	Value json.RawMessage
	Err   *abi.Error
	Whole []byte        // all of the output, at most MaxKept bytes, if Value or Err has only a part of it
	Bytes int64         // the size of the output, also after a failed attempt
	CPU   time.Duration // the CPU time of a command and everything it started
	Wall  time.Duration
}

// CheckArgs returns an error if args do not match the schema.
func (t *Tool) CheckArgs(args json.RawMessage) *abi.Error {
	return Invalid(abi.InvalidArguments, t.Name, t.Args.Check(args))
}

// Invalid returns the error for a violation of a tool's schema; nil if v is nil.
func Invalid(code abi.Code, name string, v *schema.Violation) *abi.Error {
	if v == nil {
		return nil
	}
	e := &abi.Error{Code: code, Where: v.Where, Expected: v.Expected, Got: v.Got}
	switch code {
	case abi.InvalidResult:
		e.Message = fmt.Sprintf("the result of tool %s does not match its declared schema: %s", name, v.Message)
		e.Hint = "the tool ran, but its answer is not used; the tool or its declaration must be fixed"
	default:
		e.Message = fmt.Sprintf("the arguments of tool %s do not match its schema: %s", name, v.Message)
		e.Hint = "the tool did not run; call it again with arguments that match the schema in expected"
	}
	return e
}

// Func makes a tool of a function. The schema of its arguments comes from the
// type In, which is a struct or a map with string keys; see schema.FromType.
//
// A panic in f is a failed attempt, never a crash. Kern cannot kill a Go function. If f
// ignores the end of its context at the timeout, the attempt fails at once. f continues
// alone, and its result is dropped.
func Func[In, Out any](name, description string, f func(context.Context, In) (Out, error)) (*Tool, error) {
	if f == nil {
		return nil, fmt.Errorf("tool %q: no function", name)
	}
	raw, err := schema.FromType(reflect.TypeFor[In]())
	if err != nil {
		return nil, fmt.Errorf("tool %q: arguments: %w", name, err)
	}
	t := &Tool{ToolSpec: abi.ToolSpec{Name: name, Description: description, Schema: raw}}
	t.SetDefaults()
	if t.Args, t.Results, err = compile(&t.ToolSpec); err != nil {
		return nil, err
	}
	call := func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := decode(args, &in); err != nil {
			return nil, &abi.Error{Code: abi.InvalidArguments, Got: head(string(args), maxGot), Expected: raw,
				Message: fmt.Sprintf("the arguments of tool %s cannot be read: %v", name, err),
				Hint:    "the tool did not run; call it again with arguments that match the schema in expected"}
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		value, err := marshal(out)
		if err != nil {
			return nil, fmt.Errorf("its result cannot be written as JSON: %w", err)
		}
		return value, nil
	}
	t.Run = func(ctx context.Context, in Input) Output { return t.runFunc(ctx, in, call) }
	return t, nil
}

// decode reads args into a Go value. A number such as 1.0 or 1e2 is an integer
// to a schema but not to encoding/json, so the canonical form is tried too.
func decode(args json.RawMessage, in any) error {
	err := json.Unmarshal(args, in)
	if err == nil {
		return nil
	}
	c, cerr := jsontext.Canonical(nil, args)
	if cerr != nil || bytes.Equal(c, args) {
		return err
	}
	return json.Unmarshal(c, in)
}

// answer is the result of a function.
type answer struct {
	value json.RawMessage
	err   error
}

// runFunc makes one attempt at a call of a function.
func (t *Tool) runFunc(ctx context.Context, in Input, call func(context.Context, json.RawMessage) (json.RawMessage, error)) (out Output) {
	began := time.Now()
	defer func() { out.Wall = time.Since(began) }()
	if out.Err = t.CheckArgs(in.Args); out.Err != nil {
		return out
	}
	if ctx.Err() != nil {
		out.Err = interrupted(ctx, t.Name)
		return out
	}
	timed, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		a := answer{err: errors.New("it ended its goroutine instead of returning")}
		defer func() { done <- a }()
		a.value, a.err = recoverPanic(func() (json.RawMessage, error) { return call(timed, in.Args) })
	}()
	var a answer
	select {
	case a = <-done:
	case <-timed.Done():
		select {
		case a = <-done: // the function returned at the same moment, so its result counts
		default:
			if ctx.Err() != nil {
				out.Err = interrupted(ctx, t.Name)
			} else {
				out.Err = t.timeoutError()
			}
			return out
		}
	}
	if a.err != nil {
		out.Err = t.funcError(ctx, timed, a.err)
		return out
	}
	out.Value, out.Bytes = a.value, int64(len(a.value))
	return t.checkOutput(out, in)
}

// recoverPanic runs f and turns its panic into an error that names the line.
func recoverPanic(f func() (json.RawMessage, error)) (_ json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v%s", p, panicPlace())
		}
	}()
	return f()
}

// panicPlace returns the file and line of the panic that recoverPanic recovers.
func panicPlace() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf(" (at %s:%d)", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// funcError converts the error of a function to an error for a process.
func (t *Tool) funcError(ctx, timed context.Context, err error) *abi.Error {
	var e *abi.Error
	switch {
	case errors.As(err, &e):
		c := *e
		return &c
	case ctx.Err() != nil:
		return interrupted(ctx, t.Name)
	case timed.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return t.timeoutError()
	}
	return &abi.Error{Code: abi.ToolFailed, Message: fmt.Sprintf("tool %s failed: %s", t.Name, head(err.Error(), maxText))}
}

// checkOutput checks the value of a successful attempt against the limit on output and
// the schema of results.
func (t *Tool) checkOutput(out Output, in Input) Output {
	if most := in.outputLimit(); int64(len(out.Value)) > most {
		out.Err, out.Value = outputError(t.Name, most), nil
		return out
	}
	if t.Results != nil {
		if out.Err = Invalid(abi.InvalidResult, t.Name, t.Results.Check(out.Value)); out.Err != nil {
			out.Value = nil
			return out
		}
	}
	var k kept
	k.write(out.Value)
	out.show(in, out.Value, k.text(nil, false))
	return out
}

func (in *Input) outputLimit() int64 {
	switch {
	case in.MaxOutput == 0:
		return math.MaxInt64
	case in.MaxOutput < 0:
		return 0
	}
	return in.MaxOutput
}

func (t *Tool) timeoutError() *abi.Error {
	return &abi.Error{Code: abi.ToolTimeout, Message: fmt.Sprintf("tool %s was stopped at its timeout of %s", t.Name, t.Timeout),
		Hint: "ask for less at once, or declare a longer timeout"}
}

// interrupted returns the error for a call whose context ended. It is the cause of the
// context if the cause is an [abi.Error].
func interrupted(ctx context.Context, name string) *abi.Error {
	var e *abi.Error
	if errors.As(context.Cause(ctx), &e) {
		c := *e
		return &c
	}
	return &abi.Error{Code: abi.Interrupted, Message: fmt.Sprintf("tool %s was stopped before its end", name)}
}
