package wasm

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tetratelabs/wazero/api"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/wasm/wasi"
)

// A hostRun is the host's side of one run. Its fields belong to the goroutine of
// the run, except life and out.
type hostRun struct {
	sys       wasi.System
	life      *life
	meter     meter
	turn      turn
	out       *output
	ctx       context.Context // of the functions
	cancel    context.CancelFunc
	functions []sandbox.Function
	env       map[string]string
	limits    sandbox.Limits
	reply     []byte // of the last call, until it is read
}

// errEnded unwinds an instance after its run was ended.
var errEnded = errors.New("the run was ended")

// A runContext carries the run to the host functions.
type runContext struct {
	context.Context
	g *hostRun
}

type runKey struct{}

func (c *runContext) Value(key any) any {
	if key == (runKey{}) {
		return c.g
	}
	return c.Context.Value(key)
}

func runOf(ctx context.Context) *hostRun { return ctx.Value(runKey{}).(*hostRun) }

// resume returns to the code, unless the run was ended.
func (g *hostRun) resume() {
	if g.life.ended() {
		panic(errEnded)
	}
	g.meter.enter()
}

// tick lets the run end here, and lets Go schedule other goroutines.
func tick(ctx context.Context, _ api.Module, _ []uint64) {
	g := runOf(ctx)
	now := g.meter.tick()
	// The time in which others ran does not count as CPU time.
	if g.turn.pass(now, g.life.done) {
		g.meter.enter()
	}
	if g.meter.spent > g.limits.CPU {
		g.life.end(sandbox.Timeout)
	}
	if g.life.ended() {
		panic(errEnded)
	}
}

// systemCall makes a function of WASI one of the host.
func systemCall(c wasi.Call) api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, p []uint64) {
		g := runOf(ctx)
		g.meter.leave()
		e := c.Do(&g.sys, wasi.Memory{Memory: m.Memory()}, p)
		g.resume()
		if len(p) > 0 || len(c.Params) == 0 {
			p[0] = uint64(e)
		}
	}
}

// Operations of the host call that are not functions.
const (
	opDescribe    = -1
	opEnvironment = -2
)

// maxMessage bounds the bytes of one host call, because the host holds them, too.
const maxMessage = 16 << 20

// hostCall is the function through which the code calls its host; see reactor.c.
func hostCall(ctx context.Context, m api.Module, p []uint64) {
	g := runOf(ctx)
	g.meter.leave()
	// The code chose the addresses. An address outside of its memory can only be an attack or a bug of the bridge.
	in, inside := m.Memory().Read(uint32(p[1]), uint32(p[2]))
	out, room := m.Memory().Read(uint32(p[3]), uint32(p[4]))
	if !inside || !room {
		panic(errors.New("host call outside of the memory"))
	}
	reply, err := g.answer(int(int32(p[0])), in)
	if err == nil && len(reply) > maxMessage {
		err = &sandbox.CallError{Code: "too_large", Message: "the reply is larger than 16 MiB"}
	}
	n := len(reply)
	if err != nil {
		reply = describeError(err)
		// A negative length marks an error, and the one added keeps an empty error apart from an empty reply.
		n = -(len(reply) + 1)
	}
	g.reply = nil
	// The code could not know the size. It reads a long reply with hostRead.
	if len(reply) <= len(out) {
		copy(out, reply)
	} else {
		g.reply = reply
	}
	g.resume()
	p[0] = uint64(uint32(int32(n)))
}

// hostRead writes a reply that was too long for hostCall into a larger buffer.
func hostRead(ctx context.Context, m api.Module, p []uint64) {
	g := runOf(ctx)
	g.meter.leave()
	if !m.Memory().Write(uint32(p[0]), g.reply) {
		panic(errors.New("host read outside of the memory"))
	}
	g.reply = nil
	g.resume()
}

func (g *hostRun) answer(op int, in []byte) ([]byte, error) {
	switch {
	case op == opDescribe:
		return json.Marshal(describe(g.functions))
	case op == opEnvironment:
		return json.Marshal(g.env)
	case op < 0 || op >= len(g.functions):
		return nil, &sandbox.CallError{Code: "unknown", Message: "there is no such function"}
	case len(in) > maxMessage:
		return nil, &sandbox.CallError{Code: "too_large", Message: "the arguments are larger than 16 MiB"}
	case !json.Valid(in):
		return nil, &sandbox.CallError{Code: "invalid", Message: "the arguments are not JSON"}
	}
	return g.callFunction(g.functions[op], append([]byte(nil), in...))
}

// callFunction calls a Function while the code waits. The call has a goroutine of
// its own, so the end of the run ends the wait even if the Function ignores ctx.
func (g *hostRun) callFunction(f sandbox.Function, args []byte) ([]byte, error) {
	type answer struct {
		reply json.RawMessage
		err   error
	}
	done := make(chan answer, 1)
	go func(ctx context.Context) {
		reply, err := f.Call(ctx, args)
		done <- answer{reply, err}
	}(g.ctx)
	// The instance does not compute while it waits, so another one may.
	g.turn.give()
	defer g.turn.take(g.life.done)
	select {
	case a := <-done:
		switch {
		case a.err != nil:
			return nil, a.err
		case len(a.reply) == 0:
			return []byte("null"), nil
		case !json.Valid(a.reply):
			return nil, errors.New("the function's reply is not JSON")
		}
		return a.reply, nil
	case <-g.life.done:
		g.cancel()
		return nil, errEnded
	}
}

// describeError is an error as the code reads it.
func describeError(err error) []byte {
	var e *sandbox.CallError
	if !errors.As(err, &e) {
		e = &sandbox.CallError{Code: "failed", Message: err.Error()}
	}
	b, err := json.Marshal(e)
	if err != nil { // fields that are no JSON
		b, _ = json.Marshal(&sandbox.CallError{Code: e.Code, Message: e.Message})
	}
	return b
}

// described is the description of a Function for bootstrap.py.
type described struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Doc       string           `json:"doc"`
	Params    []describedParam `json:"params"`
}

type describedParam struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Optional bool   `json:"optional,omitempty"`
}

func describe(fs []sandbox.Function) []described {
	out := make([]described, 0, len(fs))
	for _, f := range fs {
		d := described{f.Namespace, f.Name, f.Doc, make([]describedParam, 0, len(f.Params))}
		for _, p := range f.Params {
			d.Params = append(d.Params, describedParam(p))
		}
		out = append(out, d)
	}
	return out
}
