// Package demo is the story that kern demo tells: real daemons, journals,
// processes, tools and kill -9; only the model is a script. Each step says what
// happened and how that was checked.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/host"
)

// A Stage is where the story is told.
type Stage struct {
	Out      io.Writer
	Self     string // the program kern
	Version  string // of it
	Usage    int    // its exit code for a command line that makes no sense
	Paint    func(c Colour, text string) string
	Progress func(text string) // what takes a while; empty when it is over
	Width    int               // columns of Out; 0: any number
}

// A Colour is what a piece of text is for.
type Colour string

// The colours.
const (
	Title Colour = "title"
	Good  Colour = "good"
	Bad   Colour = "bad"
)

// demo is a telling of the story.
type demo struct {
	Stage
	dir      string // of all its files
	slow     string // why the next command takes a while
	failures int
}

// Run tells the story and returns how many checks failed.
func Run(ctx context.Context, s Stage) (failures int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "kern-demo-")
	if err != nil {
		return 0, err
	}
	d := &demo{Stage: s, dir: dir}
	defer func() {
		_, stopped := d.kern(context.WithoutCancel(ctx), "stop-daemon")
		err = errors.Join(err, stopped, os.RemoveAll(dir))
	}()
	began := time.Now()
	for i, step := range d.steps() {
		d.say("\n%s", d.Paint(Title, fmt.Sprintf("%d. %s", i+1, step.title)))
		if err := step.run(ctx); err != nil {
			return d.failures, fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	d.say("\n%d checks failed, in %s.", d.failures, time.Since(began).Round(100*time.Millisecond))
	return d.failures, nil
}

type step struct {
	title string
	run   func(context.Context) error
}

func (d *demo) steps() []step {
	return []step{
		{"A runaway agent is stopped to the cent", d.runaway},
		{"An agent that goes in circles is ejected, with the evidence", d.circles},
		{"The daemon is killed with kill -9 in the middle of a run", d.killed},
		{"A limit in a grandchild is reported to its grandparent", d.family},
		{"Code from a model runs in a box", d.boxed},
		{"A tool is killed with kill -9 in the middle of writing", d.torn},
		{"Broken settings never reach the disk, and undo brings back yesterday", d.mended},
		{"An agent written for OpenAI, unchanged, is stopped to the cent", d.stranger},
		{"Fifty agents at a provider that bans who asks too often", d.crowd},
	}
}

func (d *demo) say(format string, args ...any) { tell(d, 5, format, args...) }

// tell prints a line, and what does not fit below it from column indent on.
func tell(d *demo, indent int, format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format+"\n", args...)) {
		fmt.Fprintln(d.Out, cli.Wrap(strings.TrimRight(line, "\n"), d.Width, indent))
	}
}

// check says what was looked at, and whether it was so.
func (d *demo) check(ok bool, format string, args ...any) {
	mark := d.Paint(Good, "ok   ")
	if !ok {
		d.failures++
		mark = d.Paint(Bad, "FAIL ")
	}
	tell(d, 9, "   %s %s", mark, fmt.Sprintf(format, args...))
}

// kern runs the command line on the demo's own data directory.
func (d *demo) kern(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.Self, args...)
	cmd.Dir = d.dir
	cmd.Env = environ("KERN_DATA=" + filepath.Join(d.dir, "data"))
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() != d.Usage {
		err = nil // how a process ended is not an error of the command
	}
	if err != nil {
		err = fmt.Errorf("kern %s: %w: %s", strings.Join(args, " "), err, complaint.String())
	}
	return out.String(), err
}

// environ is the environment of a command: what a person has set for Kern and
// for models is not for the demo.
func environ(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc([]string{"KERN_", "OPENAI_", "ANTHROPIC_", "CODEX_", "CLAUDE_"}, func(of string) bool { return strings.HasPrefix(v, of) })
	})
	return append(env, append(more, "NO_COLOR=1")...)
}

// start starts an agent, shows the command, and does not wait.
func (d *demo) start(ctx context.Context, file, task string) (abi.Pid, error) {
	d.say("   $ kern run --detach -f %s %s", file, task)
	out, err := d.kern(ctx, "run", "--detach", "--json", "-f", file, task)
	if err != nil {
		return 0, err
	}
	var started struct{ Pid abi.Pid }
	err = json.Unmarshal([]byte(out), &started)
	return started.Pid, err
}

// run runs an agent, shows the command, and returns how it ended.
func (d *demo) run(ctx context.Context, args ...string) (r host.Result, err error) {
	d.say("   $ kern run %s", strings.Join(args, " "))
	d.Progress(d.slow)
	out, err := d.kern(ctx, append([]string{"run", "--json"}, args...)...)
	d.Progress("")
	if err != nil {
		return r, err
	}
	err = json.Unmarshal([]byte(out), &r)
	return r, err
}

func (d *demo) file(name, text string) error {
	return os.WriteFile(filepath.Join(d.dir, name), []byte(strings.TrimLeft(text, "\n")), 0o600)
}
