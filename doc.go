// Package kern runs AI agents as processes under a kernel.
//
// An agent is a process. Every model call, tool call and child it starts is a
// system call: the kernel admits it against hard limits before it happens, writes
// it to a journal, runs it and settles what it used. So an agent stops when it
// must, survives a crash, and does nothing twice.
//
// # Run an agent
//
// [Open] opens the kernel of a data directory inside this program. [Kernel.Run]
// runs an agent until its process exits:
//
//	k, err := kern.Open(ctx, kern.Config{Dir: "data"})
//	...
//	defer k.Close(ctx)
//	r, err := k.Run(ctx, kern.Agent{
//		Model:  "openai:gpt-5",
//		Limits: kern.Limits{Money: kern.Dollars(0.5), Steps: 20, Wall: 10 * time.Minute},
//	}, "summarise the minutes")
//
// A process that hits a limit is a result, not an error: then err is nil, and
// Result.Exit and Result.Err say what happened. An error means that the kernel
// could not do what it was asked.
//
// # Give it tools
//
// A tool is a Go function. The kernel checks the arguments against the schema of
// the function's parameter, counts the call and records what it returned:
//
//	add := kern.NewTool("add", "Add two numbers.", func(ctx context.Context, in Pair) (int, error) {
//		return in.A + in.B, nil
//	}).As(abi.Pure)
//	agent := kern.Agent{Name: "adder", Model: "openai:gpt-5", Tools: []kern.Tool{add}}
//
// # Resume after a crash
//
// Open continues the processes that have not exited, each from its last recorded
// call. Go tools are not recorded, so Open asks for the agents that have them:
//
//	k, err := kern.Open(ctx, kern.Config{Dir: "data", Agents: []kern.Agent{agent}})
//
// # The daemon
//
// [Dial] returns the same [Kernel] for a data directory that a daemon serves, which
// the command kern starts. The page docs/embedded-or-daemon.md helps to choose.
package kern
