package tools

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/program"
)

// A Runner runs command tools. Its zero value refuses them, because Kern needs a
// supervisor to kill a program and everything it started.
type Runner struct {
	// Pool runs commands below supervisors. The main of this program must call
	// program.Main first.
	Pool *program.Pool

	// Secrets are the texts that results and errors show as "[secret]".
	Secrets []string
}

// check returns an error if r cannot run commands.
func (r *Runner) check() error {
	for _, s := range r.Secrets {
		if s != "" && len(s) < minSecret {
			return fmt.Errorf("runner: a secret has %d bytes; expected at least %d, because a shorter one also occurs in ordinary text", len(s), minSecret)
		}
	}
	switch err := program.Able(); {
	case err != nil:
		return fmt.Errorf("runner: %w", err)
	case r.Pool == nil:
		return errors.New("runner: no Pool of supervisors; set Runner.Pool, and call program.Main first in main")
	case !program.Ready():
		return fmt.Errorf("runner: %w", program.ErrNotReady)
	}
	return nil
}

// Command makes a tool of the program in s.Command. The program gets its arguments as
// JSON on stdin, and answers on stdout. If the output is exactly one JSON value, that
// value is the result. Otherwise the result is the output as a JSON string. An exit
// status other than 0 is a failure. The end of stderr appears only in its error.
func Command(s abi.ToolSpec, r Runner) (*Tool, error) {
	s.SetDefaults()
	t := &Tool{ToolSpec: s}
	var err error
	if t.Args, t.Results, err = compile(&t.ToolSpec); err != nil {
		return nil, err
	}
	if len(s.Command) == 0 {
		return nil, fmt.Errorf("tool %q: command: expected a program and its arguments", s.Name)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("tool %q: %w", s.Name, err)
	}
	t.Command = slices.Clone(s.Command)
	c := &command{tool: t, runner: r, censor: newCensor(r.Secrets)}
	t.Run = c.run
	return t, nil
}

type command struct {
	tool   *Tool
	runner Runner
	censor censor
}

func (c *command) run(ctx context.Context, in Input) (out Output) {
	began := time.Now()
	defer func() { out.Wall = time.Since(began) }()
	if out.Err = c.tool.CheckArgs(in.Args); out.Err != nil {
		return out
	}
	if ctx.Err() != nil {
		out.Err = interrupted(ctx, c.tool.Name)
		return out
	}
	j, err := c.prepare(in)
	if err != nil {
		out.Err = &abi.Error{Code: abi.ToolFailed, Message: fmt.Sprintf("tool %s could not be started: %v", c.tool.Name, err)}
		return out
	}
	return c.execute(ctx, in, j)
}

// inPath reports whether a program is looked up in PATH.
func inPath(name string) bool { return filepath.Base(name) == name }

// CheckProgram returns an error if the program of a command cannot be found or
// executed. dir is the working directory; "" is one that is not known yet, and then
// a program with a relative path is not looked for.
func CheckProgram(command []string, dir string) error {
	name := command[0]
	if inPath(name) {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("there is no program %q in the PATH that the daemon was started with", name)
		}
		return nil
	}
	if !filepath.IsAbs(name) {
		if dir == "" {
			return nil
		}
		name = filepath.Join(dir, name)
	}
	if _, err := exec.LookPath(name); err != nil {
		var lookup *exec.Error
		var reason *fs.PathError
		if errors.As(err, &lookup) {
			err = lookup.Err
		}
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return fmt.Errorf("%s cannot be run: %w", name, err)
	}
	return nil
}

// prepare makes the job. It finds the program in PATH. From the environment of Kern it
// takes only the variables that every program needs.
func (c *command) prepare(in Input) (program.Job, error) {
	j := program.Job{Argv: slices.Clone(c.tool.Command), Dir: in.Dir, Timeout: c.tool.Timeout,
		Scratch: filepath.Join(os.TempDir(), "kern-tool-"+rand.Text())}
	if j.Dir == "" {
		j.Dir = j.Scratch
	}
	if inPath(j.Argv[0]) {
		path, err := exec.LookPath(j.Argv[0])
		if err != nil {
			return j, err
		}
		j.Argv[0] = path
	}
	j.Path = j.Argv[0]
	env := map[string]string{"TMPDIR": j.Scratch}
	for _, k := range [...]string{"PATH", "HOME", "LANG"} {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	for k, v := range in.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return j, fmt.Errorf("environment variable %q: expected a name without = and no zero byte", k)
		}
		env[k] = v
	}
	for k, v := range env {
		j.Env = append(j.Env, k+"="+v)
	}
	slices.Sort(j.Env)
	return j, nil
}

// execute runs the job. It opens the pipes, starts the program, and returns after every
// process of the job has ended.
func (c *command) execute(ctx context.Context, in Input, j program.Job) (out Output) {
	p, err := openPipes()
	if err != nil {
		out.Err = c.internalError("no pipe could be opened", err)
		return out
	}
	f, err := c.runner.Pool.Start(j, p.theirs)
	p.closeProgramEnds()
	if err != nil {
		p.close()
		out.Err = c.internalError("its supervisor could not be started", err)
		return out
	}
	over := make(chan struct{})
	p.begin(in.Args, in.outputLimit(), sync.OnceFunc(func() { close(over) }))
	// The supervisor enforces the timeout. If it does not answer in time, the program may
	// have stopped it with a signal, so Nudge continues it.
	timer := time.NewTimer(j.Timeout + patience)
	defer timer.Stop()
	var r program.Report
	stopping, exceeded, overdue := false, false, false
	for got := false; !got; {
		select {
		case r = <-f.Report:
			got = true
			continue
		case <-timer.C:
			overdue = overdue || !stopping
		case <-unlessSet(stopping, ctx.Done()):
		case <-unlessSet(stopping, over):
			exceeded = true
		}
		if !stopping {
			f.Stop()
		} else {
			f.Nudge()
		}
		stopping = true
		timer.Reset(patience)
	}
	// A supervisor that was stopped cannot report the timeout itself.
	r.Late = r.Late || overdue && (r.Killed || !r.Ended)
	if r.Lost { // the supervisor ended before it removed the directory
		program.RemoveAll(j.Scratch)
	}
	p.finish()
	select {
	case <-over:
		exceeded = true
	default:
	}
	out.Bytes, out.CPU = p.count.Load(), r.CPU
	return c.outcome(ctx, in, r, p, exceeded, out)
}

// patience is the time that a supervisor has to answer before execute continues it.
const patience = 100 * time.Millisecond

// unlessSet returns c, or nil if off is set. A select never chooses a nil channel.
func unlessSet(off bool, c <-chan struct{}) <-chan struct{} {
	if off {
		return nil
	}
	return c
}

// outcome converts the report of a run and its output. The order of its cases decides
// which of several errors the process sees.
func (c *command) outcome(ctx context.Context, in Input, r program.Report, p *pipes, exceeded bool, out Output) Output {
	name := c.tool.Name
	stdout := p.stdout.text(c.censor, exceeded)
	switch {
	case exceeded:
		out.Err = outputError(name, in.outputLimit())
	case r.Lost:
		out.Err = &abi.Error{Code: abi.ToolFailed, Message: fmt.Sprintf("the supervisor of tool %s ended during the call; %s", name, r.Err)}
	case r.Err != "":
		out.Err = &abi.Error{Code: abi.ToolFailed, Message: fmt.Sprintf("tool %s could not be started: %s", name, c.censor.text([]byte(r.Err), false))}
	case r.Late:
		out.Err = c.tool.timeoutError()
	case r.Killed || !r.Ended:
		out.Err = interrupted(ctx, name)
	case r.Exit != 0 || r.Signal != 0:
		out.Err = c.failed(r, p.stderr.bytes())
	default:
		return c.answered(in, stdout, out)
	}
	if out.Err.Got == "" {
		out.Err.Got = tail(strings.TrimSpace(string(c.censor.text(p.stderr.bytes(), false))), maxText)
	}
	out.printed(in, stdout)
	return out
}

// failed returns the error of a program that failed. It says how the program ended and
// quotes the end of stderr.
func (c *command) failed(r program.Report, stderr []byte) *abi.Error {
	how := fmt.Sprintf("exited with %d", r.Exit)
	if r.Signal != 0 {
		how = "was ended by " + program.SignalName(r.Signal)
	}
	said := strings.TrimSpace(string(c.censor.text(stderr, false)))
	e := &abi.Error{Code: abi.ToolFailed, Message: fmt.Sprintf("tool %s %s", c.tool.Name, how), Got: tail(said, maxText)}
	if last := said[strings.LastIndexByte(said, '\n')+1:]; last != "" {
		e.Message += ": " + head(last, maxGot)
	}
	return e
}

// answered converts the output of a successful program to the result of the call, and
// checks it against the schema of results.
func (c *command) answered(in Input, stdout []byte, out Output) Output {
	text := bytes.TrimSpace(stdout)
	bad := jsontext.Check(text, jsontext.Strict)
	if bad == nil {
		var b bytes.Buffer
		_ = json.Compact(&b, text) // it is JSON
		out.Value = c.censor.value(b.Bytes())
	} else {
		out.Value = quoted(text)
		if out.Value == nil {
			out.Value = json.RawMessage(`""`)
		}
	}
	if c.tool.Results == nil {
		out.show(in, out.Value, text)
	} else {
		v := c.tool.Results.Check(out.Value)
		if out.Err = Invalid(abi.InvalidResult, c.tool.Name, v); out.Err != nil {
			if bad != nil && len(text) > 0 && strings.IndexByte("{[\"", text[0]) >= 0 {
				out.Err.Message += fmt.Sprintf(" (its output is text, not JSON: %v)", bad)
			}
			out.Value = nil
		} else {
			out.show(in, out.Value, text)
		}
	}
	return out
}

// internalError returns the error for a failure of Kern itself.
func (c *command) internalError(what string, err error) *abi.Error {
	return &abi.Error{Code: abi.Internal, Message: fmt.Sprintf("tool %s did not run: %s: %v", c.tool.Name, what, err),
		Hint: "the machine may be short of descriptors, processes or disk"}
}

// pipes connects Kern with a program: stdin, stdout and stderr.
type pipes struct {
	theirs [3]*os.File
	in     *os.File
	out    [2]*os.File
	done   sync.WaitGroup

	count  atomic.Int64 // bytes of output, both streams
	stdout kept         // read after finish
	stderr ring
}

func openPipes() (*pipes, error) {
	p := &pipes{}
	var err error
	if p.theirs[0], p.in, err = os.Pipe(); err == nil {
		if p.out[0], p.theirs[1], err = os.Pipe(); err == nil {
			p.out[1], p.theirs[2], err = os.Pipe()
		}
	}
	if err != nil {
		p.closeProgramEnds()
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pipes) closeProgramEnds() {
	for _, f := range p.theirs {
		closeFile(f)
	}
}

func (p *pipes) close() {
	closeFile(p.in)
	closeFile(p.out[0])
	closeFile(p.out[1])
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close() // nothing is buffered in a pipe's descriptor
	}
}

// begin writes the arguments and reads the output. It calls over when the output
// exceeds most, and reads no more.
func (p *pipes) begin(args []byte, most int64, over func()) {
	p.done.Add(3)
	go func() {
		defer p.done.Done()
		_, _ = p.in.Write(args) // a program may end without reading
		closeFile(p.in)
	}()
	listen := func(f *os.File, keep func([]byte)) {
		defer p.done.Done()
		buf := bufs.Get().(*[32 << 10]byte)
		defer bufs.Put(buf)
		r := lateReader{f: f}
		for {
			n, err := r.Read(buf[:])
			total := p.count.Add(int64(n))
			if excess := total - most; excess > 0 {
				keep(buf[:max(0, int64(n)-excess)])
				over()
				return
			}
			if keep(buf[:n]); err != nil {
				return
			}
		}
	}
	go listen(p.out[0], p.stdout.write)
	go listen(p.out[1], p.stderr.write)
}

// A lateReader reads a pipe whose deadline finish sets. That deadline may pass before
// this goroutine runs, although the pipe has bytes. So a read that misses it gets a
// deadline of its own, a few times: another writer could hold the pipe open for ever.
type lateReader struct {
	f      *os.File
	misses int
}

const maxMisses = 10

func (r *lateReader) Read(b []byte) (int, error) {
	n, err := r.f.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && r.misses < maxMisses {
		r.misses++
		_ = r.f.SetReadDeadline(time.Now().Add(patience)) // a pipe has deadlines
		n, err = r.f.Read(b)
	}
	return n, err
}

var bufs = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// finish reads the rest of the pipes after every process of the job is gone. It does
// not wait long for another writer, which would not belong to the job.
func (p *pipes) finish() {
	soon := time.Now().Add(patience)
	for _, f := range p.out {
		_ = f.SetReadDeadline(soon) // a pipe has deadlines
	}
	_ = p.in.SetWriteDeadline(soon) // the pipe may be closed already
	p.done.Wait()
	p.close()
}

// ring keeps the end of a stream.
type ring struct{ b []byte }

const ringSize = 8 << 10

func (r *ring) write(b []byte) {
	r.b = append(r.b, b...)
	if len(r.b) > 2*ringSize {
		r.b = append(r.b[:0], r.b[len(r.b)-ringSize:]...)
	}
}

func (r *ring) bytes() []byte { return r.b }
