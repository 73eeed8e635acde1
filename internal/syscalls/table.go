// Package syscalls is the system call table: every power an agent can have is a row
// in [Table] and a file beside it.
//
// A row has two functions. Plan returns the plan of a call: its effect class and the
// most that it can use. Run runs the call. The kernel, and never a row, decides about
// limits, grants and signals.
package syscalls

import (
	"encoding/json"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/schema"
)

// Table returns all system calls.
func Table(w *World) kernel.Table {
	return table(
		kernel.Row{Name: "model", Plan: func(v kernel.View, c abi.Call) (kernel.Plan, *abi.Error) { return w.planModel(v, c, w.Away) }, Run: w.runModel, Schema: modelArgs,
			Doc: "Ask the model. It is sent what is resident in memory."},
		kernel.Row{Name: "tool", Plan: w.planTool, Run: w.runTool, Schema: toolArgs, Watch: true,
			Doc: "Call a tool."},
		kernel.Row{Name: "code", Plan: w.planCode, Run: w.runCode, Schema: codeArgs, Watch: true,
			Doc: "Run Python source in a sandbox. The tools are functions there: from tools.agent import NAME. What it prints is the result."},
		kernel.Row{Name: "spawn", Plan: w.planSpawn, Run: w.runSpawn, Schema: spawnArgs, Watch: true,
			Doc: "Start a child process on a task of its own. It answers with the child's pid at once; use wait for its result."},
		kernel.Row{Name: "key", Plan: planKey, Run: w.runSpawn, Schema: keyArgs,
			Doc: "Start a child process that a program outside reaches with a key of its own."},
		kernel.Row{Name: "run", Plan: planRun, Run: w.runSpawn, Schema: runArgs,
			Doc: "Start a child process that a program outside defined."},
		kernel.Row{Name: "wait", Plan: idempotent, Run: w.runWait, Schema: waitArgs,
			Doc: "Wait for a child process to exit, and get its result."},
		kernel.Row{Name: "send", Plan: idempotent, Run: runSend, Schema: sendArgs, Watch: true, Instant: true,
			Doc: "Send a message to another process."},
		kernel.Row{Name: "recv", Plan: idempotent, Run: runRecv, Schema: recvArgs,
			Doc: "Take the oldest message out of the mailbox, waiting for one."},
		kernel.Row{Name: "sleep", Plan: planSleep, Run: runSleep, Schema: sleepArgs,
			Doc: "Wait for a while."},
		kernel.Row{Name: "ask", Plan: planAsk, Run: runAsk, Schema: askArgs,
			Doc: "Ask a person, and wait for yes or no."},
		kernel.Row{Name: "yield", Plan: w.planYield, Run: runYield, Schema: yieldArgs,
			Doc: "Ask for higher limits."},
		kernel.Row{Name: "undo", Plan: idempotent, Run: w.runUndo, Schema: undoArgs,
			Doc: "Take back what the compensable calls of a group did."},
		kernel.Row{Name: "exit", Plan: idempotent, Run: runExit, Schema: exitArgs, Instant: true,
			Doc: "End this process with an output, or with an error."},
	)
}

func table(rows ...kernel.Row) kernel.Table {
	t := make(kernel.Table, len(rows))
	for i := range rows {
		t[rows[i].Name] = &rows[i]
	}
	return t
}

// The argument schemas of the rows.
var (
	modelArgs = object(`"say":{"type":"string"},"max_output":{"type":"integer","minimum":1},"last":{"type":"boolean"},"relay":{"type":"object"}`)
	toolArgs  = object(`"name":{"type":"string"},"args":{},"undoes":{"type":"integer","minimum":1},"relay":{"type":"string"}`)
	keyArgs   = object(`"name":{"type":"string","maxLength":64},"key":{"type":"string","minLength":64,"maxLength":64},"limits":{"type":"object"},"held":{"type":"boolean"},"title":{"type":"string","maxLength":240},
		"priority":{"type":"integer","minimum":0,"maximum":99}`, "key")
	runArgs = object(`"program":{"type":"object"},"task":{"type":"string"},"limits":{"type":"object"},"watchdog":{"type":"object"},
		"priority":{"type":"integer","minimum":0,"maximum":99}`, "program", "task")
	codeArgs  = object(`"source":{"type":"string","minLength":1},"timeout":{"type":"string"}`, "source")
	spawnArgs = object(`"task":{"type":"string","minLength":1},"name":{"type":"string","maxLength":64},"system":{"type":"string"},
		"model":{"type":"string"},"tools":{"type":"array","items":{"type":"string"}},"priority":{"type":"integer","minimum":0,"maximum":99},
		"limits":{"type":"object"}`, "task")
	waitArgs  = object(`"pid":{"type":"integer","minimum":0},"timeout":{"type":"string"}`)
	sendArgs  = object(`"to":{"type":"integer","minimum":1},"message":{},"priority":{"type":"integer","minimum":0,"maximum":99}`, "to", "message")
	recvArgs  = object(`"timeout":{"type":"string"}`)
	sleepArgs = object(`"for":{"type":"string"}`, "for")
	askArgs   = object(`"question":{"type":"string","minLength":1}`, "question")
	yieldArgs = object(`"limits":{"type":"object","minProperties":1},"why":{"type":"string"}`, "limits")
	undoArgs  = object(`"first":{"type":"integer","minimum":1},"last":{"type":"integer","minimum":1}`, "first", "last")
	exitArgs  = object(`"output":{},"error":{"type":"string"},"code":{"type":"string"}`)
)

// shownArgs are the schemas that models get where a row takes more. They are part of
// recorded requests, so a replay needs them as they were.
var shownArgs = map[string]*schema.Schema{"send": object(`"to":{"type":"integer","minimum":1},"message":{}`, "to", "message")}

// object compiles a closed object schema. The schemas are constants in this file,
// so any test finds a schema that does not compile.
func object(properties string, required ...string) *schema.Schema {
	if required == nil {
		required = []string{}
	}
	r, err := json.Marshal(required)
	if err == nil {
		var s *schema.Schema
		if s, err = schema.Compile([]byte(`{"type":"object","properties":{` + properties + `},"required":` + string(r) + `,"additionalProperties":false}`)); err == nil {
			return s
		}
	}
	panic(err)
}

// idempotent is the plan of a row that writes a record with the number of the call.
// A repeated call finds that record and does nothing twice.
func idempotent(kernel.View, abi.Call) (kernel.Plan, *abi.Error) {
	return kernel.Plan{Effect: abi.Idempotent}, nil
}

// decode decodes arguments that the schema has checked.
func decode[T any](c abi.Call) (a T, e *abi.Error) {
	if len(c.Args) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return a, &abi.Error{Code: abi.InvalidArguments, Message: c.Row + ": " + err.Error()}
	}
	return a, nil
}

// done returns the outcome of a call that succeeded with v.
func done(v any) kernel.Done {
	b, err := json.Marshal(v)
	if err != nil {
		return failed(&abi.Error{Code: abi.Internal, Message: err.Error()})
	}
	return kernel.Done{Value: b}
}

// failed returns the outcome of a call that failed.
func failed(e *abi.Error) kernel.Done { return kernel.Done{Err: e} }

// parseDuration parses a duration in the arguments.
func parseDuration(row, where, s string) (time.Duration, *abi.Error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, &abi.Error{Code: abi.InvalidArguments, Message: row + ": expected a duration such as 30s or 10m", Where: where, Got: s}
	}
	return d, nil
}
