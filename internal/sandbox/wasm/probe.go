package wasm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

// A trial is a program that a limit must stop, or that must get an error.
type trial struct {
	name   string
	code   string
	limits sandbox.Limits
	want   sandbox.Cause
}

var trials = []trial{
	{"host files", "import os\nopen('/workspace/../../etc/passwd')", sandbox.Limits{}, sandbox.Failed},
	{"symbolic links", "import os\nos.symlink('/', 'out')", sandbox.Limits{}, sandbox.Failed},
	{"processes", "import subprocess\nsubprocess.run(['id'])", sandbox.Limits{}, sandbox.Failed},
	{"sockets", "import socket\nsocket.create_connection(('127.0.0.1', 1))", sandbox.Limits{}, sandbox.Failed},
	{"wall time", "while True: pass", sandbox.Limits{Wall: 50 * time.Millisecond}, sandbox.Timeout},
	{"processor time", "while True: pass", sandbox.Limits{CPU: 50 * time.Millisecond}, sandbox.Timeout},
	{"memory", "b = bytearray(100 << 20)", sandbox.Limits{Memory: 64 << 20}, sandbox.Memory},
	{"output", "while True: print('x' * 1000)", sandbox.Limits{Output: 4096}, sandbox.Output},
	{"file bytes", "with open('f', 'wb') as f: f.write(bytes(4096))", sandbox.Limits{FileBytes: 1024}, sandbox.Files},
	{"files", "for i in range(9): open(str(i), 'w').close()", sandbox.Limits{Files: 4}, sandbox.Files},
}

// Probe runs a program against each limit and returns the limits that did not hold.
func (b *Backend) Probe(ctx context.Context) ([]sandbox.Weakness, error) {
	return probe(ctx, b.Run)
}

func probe(ctx context.Context, run func(context.Context, sandbox.Spec) (sandbox.Outcome, error)) ([]sandbox.Weakness, error) {
	var found []sandbox.Weakness
	for _, t := range trials {
		if t.limits.Wall == 0 {
			t.limits.Wall = 5 * time.Second
		}
		out, err := run(ctx, sandbox.Spec{Code: t.code, Limits: t.limits})
		var refused *sandbox.Refusal
		switch {
		case errors.As(err, &refused):
			found = append(found, sandbox.Weakness{Name: t.name, Why: refused.Reason, Fix: refused.Fix})
		case err != nil:
			return nil, err
		case out.Cause != t.want:
			found = append(found, sandbox.Weakness{
				Name: t.name,
				Why:  fmt.Sprintf("a program that must end with %s ended with %s", t.want, out.Cause),
				Fix:  "do not run code that nobody trusts here",
			})
		}
	}
	return found, nil
}
