package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/sandbox"
)

// codeFlags are the flags of kern code.
type codeFlags struct {
	sandbox, workspace string
	memory, output     string
	wall               time.Duration
	allow              []string
	json, repl         bool
}

func codeCommand(t *cli.Terminal) *cobra.Command {
	var f codeFlags
	cmd := &cobra.Command{
		Use:   "code [flags] FILE.py | - | -- COMMAND ARGS...",
		Short: "Run untrusted code in a sandbox",
		Long: `Run Python source once, in a sandbox: the code can reach its workspace and nothing
else. Without --workspace the workspace is an empty directory that is removed at
the end. With --workspace the directory keeps what the code wrote, also if the code
fails or is stopped. The system call code of an agent takes such changes back. The
sandbox jail also runs any program of this host, given after --. No
daemon is needed.

The first code of a user waits some seconds before it starts, because Kern compiles
the sandbox wasm once. The limit on time does not count this wait.

The sandbox is --sandbox, else KERN_SANDBOX or SANDBOX_TYPE, else wasm. The exit
code is 0 if the code succeeded, 1 if it failed, 3 if a limit stopped it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			return runCode(cmd.Context(), t, &f, args, dash == 0)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.sandbox, "sandbox", "", "wasm or jail")
	flags.StringVar(&f.workspace, "workspace", "", "the `directory` that the code may change")
	flags.StringVar(&f.memory, "memory", "256MiB", "limit on memory")
	flags.StringVar(&f.output, "output", "1MiB", "limit on output")
	flags.DurationVar(&f.wall, "wall", 10*time.Second, "limit on time")
	flags.StringSliceVar(&f.allow, "allow", nil, "accept these weaknesses of this host, by `name`; kern doctor lists them")
	flags.BoolVar(&f.json, "json", false, "print the outcome as a JSON object")
	flags.BoolVar(&f.repl, "repl", false, "run each piece of code as you type it, in one session")
	return cmd
}

// spec builds the request to the sandbox from flags and arguments.
func (f *codeFlags) spec(stdin io.Reader, args []string, program bool) (s sandbox.Spec, err error) {
	s.Allow = f.allow
	s.Limits.Wall, s.Limits.CPU = f.wall, f.wall
	if f.wall <= 0 {
		return s, cli.Usage("for example: --wall 10s", "--wall is %s, expected more than 0", f.wall)
	}
	for _, size := range []struct {
		flag, text string
		to         *int64
	}{{"memory", f.memory, &s.Limits.Memory}, {"output", f.output, &s.Limits.Output}} {
		n, err := abi.ParseUnit(abi.OutputBytes, size.text)
		if err != nil || n == 0 {
			return s, cli.Usage("for example: --"+size.flag+" 64MiB", "--%s is %q, expected a size such as 64MiB", size.flag, size.text)
		}
		*size.to = n
	}
	if f.workspace != "" {
		if s.Dir, err = filepath.Abs(f.workspace); err != nil {
			return s, err
		}
	}
	switch {
	case f.repl:
		if len(args) > 0 {
			return s, cli.Usage("for example: kern code --repl", "--repl takes no file")
		}
	case program:
		s.Argv = args
	case len(args) != 1:
		return s, cli.Usage("for example: kern code hello.py", "expected one file, or - for standard input")
	case args[0] == "-":
		b, err := io.ReadAll(stdin)
		return withCode(s, b, err)
	default:
		b, err := os.ReadFile(args[0])
		return withCode(s, b, asUsage(err))
	}
	return s, nil
}

// withCode is s with the code that was read.
func withCode(s sandbox.Spec, b []byte, err error) (sandbox.Spec, error) {
	if s.Code = string(b); err == nil && s.Code == "" {
		err = cli.Usage("for example: echo 'print(1)' | kern code -", "there is no code: the input is empty")
	}
	return s, err
}

func runCode(ctx context.Context, t *cli.Terminal, f *codeFlags, args []string, program bool) error {
	name := cmp.Or(f.sandbox, t.Getenv("KERN_SANDBOX"), t.Getenv("SANDBOX_TYPE"))
	name, err := config.SandboxName(name)
	if err != nil {
		return cli.Usage("for example: --sandbox wasm", "%v", err)
	}
	s, err := f.spec(t.In, args, program)
	if err != nil {
		return err
	}
	if host.IsSandboxCold(name) {
		t.Note("kern: preparing the sandbox %s for the first time; this takes some seconds", name)
	}
	t.Progress("preparing the sandbox " + name)
	box, err := host.OpenSandbox(name)
	t.Progress("")
	if err != nil {
		return explainRefusal(err)
	}
	defer box.Close()
	if f.repl {
		return runRepl(ctx, t, box, s)
	}
	if !f.json {
		s.Stdout, s.Stderr = t.Out, t.Err
	}
	out, err := box.Run(ctx, s)
	if err != nil {
		return explainRefusal(err)
	}
	if f.json {
		if err := t.JSON(outcomeView(&out)); err != nil {
			return err
		}
	} else if out.Cause != sandbox.OK {
		t.Note("kern: %s", t.PaintErr(cli.Red, outcomeLine(&out)))
	}
	return codeExit(&out)
}

// explainRefusal makes the error of code that a sandbox refused.
func explainRefusal(err error) error {
	var r *sandbox.Refusal
	if errors.As(err, &r) {
		return &cli.UsageError{Message: "sandbox " + r.Backend + ": " + r.Reason, Advice: r.Fix}
	}
	return err
}

func codeExit(out *sandbox.Outcome) error {
	switch out.Cause {
	case sandbox.OK:
		return nil
	case sandbox.Failed:
		return &exitError{code: exitFailed}
	case sandbox.Killed:
		return &exitError{code: exitKilled}
	}
	return &exitError{code: exitLimit}
}

func outcomeLine(out *sandbox.Outcome) string {
	s := fmt.Sprintf("the code was stopped (%s)", out.Cause)
	if out.Cause == sandbox.Failed {
		s = fmt.Sprintf("the code failed with exit code %d", out.Exit)
	}
	if out.Signal != "" {
		s += ", signal " + out.Signal
	}
	return s + fmt.Sprintf(", after %s", out.Usage.Wall.Round(100*time.Microsecond))
}

// codeOutcome is the outcome of code for --json.
type codeOutcome struct {
	Cause     sandbox.Cause `json:"cause"`
	Exit      int           `json:"exit"`
	Signal    *string       `json:"signal"`
	Stdout    string        `json:"stdout"`
	Stderr    string        `json:"stderr"`
	Truncated bool          `json:"truncated"`
	Usage     codeUsage     `json:"usage"`
}

type codeUsage struct {
	WallMS      float64 `json:"wall_ms"`
	CPUMS       float64 `json:"cpu_ms"`
	PeakBytes   int64   `json:"peak_bytes"`
	OutputBytes int64   `json:"output_bytes"`
}

func outcomeView(out *sandbox.Outcome) codeOutcome {
	ms := func(d time.Duration) float64 {
		return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
	}
	v := codeOutcome{Cause: out.Cause, Exit: out.Exit, Stdout: string(out.Stdout), Stderr: string(out.Stderr), Truncated: out.Truncated,
		Usage: codeUsage{ms(out.Usage.Wall), ms(out.Usage.CPU), out.Usage.PeakBytes, out.Usage.OutputBytes}}
	if out.Signal != "" {
		v.Signal = &out.Signal
	}
	return v
}

// runRepl runs pieces of code in one session. A piece is one line, or a block up
// to an empty line.
func runRepl(ctx context.Context, t *cli.Terminal, box sandbox.Backend, s sandbox.Spec) error {
	keeper, ok := box.(sandbox.Sessioner)
	if !ok {
		return cli.Usage("use --sandbox wasm", "the sandbox jail has no --repl")
	}
	limits := s.Limits
	session, err := keeper.Open(ctx, s)
	if err != nil {
		return explainRefusal(err)
	}
	defer session.Close()
	in := bufio.NewScanner(t.In)
	in.Buffer(nil, 1<<20)
	var piece []string
	for printPrompt(t, len(piece) > 0); in.Scan(); printPrompt(t, len(piece) > 0) {
		line := in.Text()
		if block := strings.HasSuffix(strings.TrimSpace(line), ":") || len(piece) > 0; block && line != "" {
			piece = append(piece, line)
			continue
		}
		piece = append(piece, line)
		source := strings.Join(piece, "\n")
		piece = nil
		if err := runPiece(ctx, t, session, source, limits); err != nil {
			return err
		}
	}
	if len(piece) > 0 {
		return runPiece(ctx, t, session, strings.Join(piece, "\n"), limits)
	}
	return in.Err()
}

func runPiece(ctx context.Context, t *cli.Terminal, session sandbox.Session, source string, limits sandbox.Limits) error {
	if strings.TrimSpace(source) == "" {
		return nil
	}
	out, err := session.Run(ctx, sandbox.Spec{Code: source, Stdout: t.Out, Stderr: t.Err, Limits: limits})
	if err != nil {
		return explainRefusal(err)
	}
	if out.Cause != sandbox.OK && out.Cause != sandbox.Failed {
		t.Note("kern: %s; the session has ended", outcomeLine(&out))
		return codeExit(&out)
	}
	return nil
}

func printPrompt(t *cli.Terminal, more bool) {
	if !t.ErrTTY {
		return
	}
	s := ">>> "
	if more {
		s = "... "
	}
	fmt.Fprint(t.Err, s)
}
