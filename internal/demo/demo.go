// Package demo tells the story of kern demo: nine scripts that use real daemons,
// journals, processes, tools and kill -9. Only the model is a script.
//
// The stories are testscripts (github.com/rogpeppe/go-internal/testscript) with
// these commands more:
//
//	title TEXT          prints the heading
//	say TEXT            prints a line
//	show COMMAND...     prints a command, runs it and prints its output; stdout then matches both streams
//	exits CODE          checks the exit code of the last show
//	ok TEXT             prints what the checks before it have proved
//	until COMMAND...    repeats a command until it succeeds
//	kill-daemon TEXT    kills the daemon with kill -9
//	crowd FILE          sends fifty plain agents to the provider at the address in FILE
//
// A check that fails ends its story, and makes kern demo fail.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/mockprovider/load"
)

//go:embed stories
var stories embed.FS

// A Stage is where the stories are told.
type Stage struct {
	Term    *cli.Terminal
	Self    string // the path of this program
	Version string // of this program
}

// limit is how long all stories may take together.
const limit = 2 * time.Minute

// Run tells the stories, and returns how many failed.
func Run(ctx context.Context, s Stage) (failed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "kern-demo-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, stories); err != nil {
		return 0, err
	}
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink(s.Self, filepath.Join(bin, "kern"))); err != nil {
		return 0, err
	}
	d := &demo{Stage: s, ctx: ctx, bin: bin}
	began := time.Now()
	// testscript runs every story as a subtest of this one.
	d.run("", func(t *teller) {
		testscript.RunT(t, testscript.Params{Dir: filepath.Join(dir, "stories"), WorkdirRoot: dir, Setup: d.setup,
			Condition: d.condition, Cmds: d.commands(), Deadline: began.Add(limit)})
	})
	d.say("\n%d of %d stories failed, in %s.", d.failed, d.told, time.Since(began).Round(100*time.Millisecond))
	return d.failed, ctx.Err()
}

// A demo runs all stories once.
type demo struct {
	Stage
	ctx          context.Context
	bin          string // the directory with kern in it
	told, failed int
}

// A teller runs a story in place of a test.
type teller struct {
	demo *demo
	log  strings.Builder
}

// errStop ends a story early.
var errStop = errors.New("the story has ended")

func (t *teller) Log(args ...any)   { fmt.Fprintln(&t.log, args...) }
func (t *teller) Fatal(args ...any) { t.Log(args...); t.FailNow() }
func (t *teller) FailNow()          { panic(errStop) }
func (t *teller) Skip(args ...any)  { t.Fatal(args...) } // no story may be skipped
func (t *teller) Parallel()         {}
func (t *teller) Verbose() bool     { return false }
func (t *teller) Run(name string, f func(testscript.T)) {
	t.demo.run(name, func(t *teller) { f(t) })
}

// run runs a story, and prints the end of its log if it fails.
func (d *demo) run(name string, f func(*teller)) {
	t := &teller{demo: d}
	defer func() {
		d.Term.Progress("")
		switch r := recover(); {
		case r == nil:
		case r != errStop:
			panic(r)
		// A story that ends with the demo has not failed.
		case d.ctx.Err() == nil:
			d.failed++
			lines := strings.Split(strings.TrimSpace(t.log.String()), "\n")
			d.wrap(9, "   %s %s", d.Term.Paint(cli.Red, "FAIL "), strings.Join(lines[max(0, len(lines)-12):], "\n         "))
		}
	}()
	f(t)
}

// setup gives a story a clean environment, its own data directory, and kern.
func (d *demo) setup(env *testscript.Env) error {
	if d.ctx.Err() != nil {
		return d.ctx.Err()
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	dir := filepath.Dir(d.bin) // a short path, because the path of a socket has a limit
	// The clients that make test installs, if this runs in the repository.
	clients := filepath.Join(here, ".tools", "clients")
	env.Vars = append(env.Vars, "HOME="+os.Getenv("HOME"), "XDG_CACHE_HOME="+cache, "KERN_DATA="+filepath.Join(dir, strconv.Itoa(d.told+1)), "NO_COLOR=1", "TMPDIR="+dir,
		"NODE_PATH="+filepath.Join(clients, "node", "node_modules"), "PYTHONDONTWRITEBYTECODE=1", "GOWORK=off",
		"PATH="+strings.Join([]string{d.bin, filepath.Join(clients, "py", "bin"), os.Getenv("PATH")}, string(os.PathListSeparator)))
	// The story may change its variables, and the daemon must be found by those of the start.
	vars := slices.Clone(env.Vars)
	env.Defer(func() {
		stop := exec.Command(d.Self, "stop-daemon")
		stop.Env = vars
		_ = stop.Run() // reports that no daemon runs
	})
	agent := filepath.Join(env.WorkDir, "agent.yaml")
	b, err := os.ReadFile(agent)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(agent, []byte(strings.ReplaceAll(string(b), "$WORK", env.WorkDir)), 0o600))
}

// condition reports whether an OpenAI SDK is installed.
func (d *demo) condition(name string) (bool, error) {
	here, err := os.Getwd()
	clients := filepath.Join(here, ".tools", "clients")
	switch name {
	case "python":
		return exec.Command("python3", "-c", "import openai").Run() == nil || exec.Command(filepath.Join(clients, "py", "bin", "python3"), "-c", "import openai").Run() == nil, err
	case "node":
		c := exec.Command("node", "-e", "require('openai')")
		c.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(clients, "node", "node_modules"))
		return c.Run() == nil, err
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

func (d *demo) commands() map[string]func(*testscript.TestScript, bool, []string) {
	code := 0 // of the last show
	return map[string]func(*testscript.TestScript, bool, []string){
		"title": func(_ *testscript.TestScript, _ bool, args []string) {
			d.told++
			d.say("\n%s", d.Term.Paint(cli.Bold, fmt.Sprintf("%d. %s", d.told, args[0])))
		},
		"say": func(_ *testscript.TestScript, _ bool, args []string) { d.say("     %s", args[0]) },
		"ok": func(_ *testscript.TestScript, _ bool, args []string) {
			d.wrap(9, "   %s %s", d.Term.Paint(cli.Green, "ok   "), args[0])
		},
		"show": func(ts *testscript.TestScript, _ bool, args []string) { code = d.show(ts, args) },
		"exits": func(ts *testscript.TestScript, _ bool, args []string) {
			if args[0] != strconv.Itoa(code) {
				ts.Fatalf("the exit code is %d, expected %s", code, args[0])
			}
		},
		// Only the context bounds the wait, so a slow machine does not fail a story.
		"until": func(ts *testscript.TestScript, _ bool, args []string) {
			for ts.Exec(args[0], args[1:]...) != nil {
				select {
				case <-d.ctx.Done():
					ts.Fatalf("%s did not succeed: %v", args[0], d.ctx.Err())
				case <-time.After(5 * time.Millisecond):
				}
			}
		},
		"kill-daemon": d.killDaemon,
		"crowd":       d.sendCrowd,
	}
}

// shownLines is how many lines of a long output are shown, at its start and at
// its end.
const shownLines = 3

// show prints a command, runs it, and prints what it printed.
func (d *demo) show(ts *testscript.TestScript, args []string) (code int) {
	var words []string
	for _, a := range args {
		if strings.ContainsAny(a, " $") {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	d.say("   $ %s", strings.Join(words, " "))
	d.Term.Progress("     running ...")
	// The shell joins the streams, so that the checks see both.
	err := ts.Exec("sh", append([]string{"-c", `exec "$@" 2>&1`, "sh"}, args...)...)
	d.Term.Progress("")
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	lines := strings.Split(strings.TrimRight(cli.CleanText(ts.ReadFile("stdout")), "\n"), "\n")
	if n := len(lines) - 2*shownLines; n > 1 {
		lines = slices.Concat(lines[:shownLines], []string{fmt.Sprintf("... (%d lines)", n)}, lines[len(lines)-shownLines:])
	}
	for _, line := range lines {
		d.say("     %s", cli.Cut(line, 300))
	}
	return code
}

// killDaemon kills the daemon of the story.
func (d *demo) killDaemon(ts *testscript.TestScript, _ bool, args []string) {
	c, err := api.Dial(d.ctx, api.SocketOf(ts.Getenv("KERN_DATA")), d.Version)
	ts.Check(err)
	defer c.Close()
	about, err := c.About(d.ctx)
	ts.Check(err)
	daemon, err := os.FindProcess(about.Pid)
	ts.Check(err)
	d.say("   $ kill -9 %d    (the daemon, %s)", about.Pid, args[0])
	ts.Check(daemon.Kill())
}

// sendCrowd runs fifty agents without Kern, and checks that some of them die.
func (d *demo) sendCrowd(ts *testscript.TestScript, _ bool, args []string) {
	address := strings.TrimSpace(ts.ReadFile(args[0]))
	r := load.Agents{Base: address + "/v1", Number: 50}.Run(d.ctx)
	d.say("     without Kern: %d finished and %d died, in %s", r.Finished, r.Died, r.Took.Round(10*time.Millisecond))
	d.say("     the first died of: %s", r.Why)
	// Without deaths there is nothing that Kern prevents, and the story would prove nothing.
	if r.Died == 0 {
		ts.Fatalf("none of the agents died")
	}
}

func (d *demo) say(format string, args ...any) { d.wrap(5, format, args...) }

// wrap prints lines that continue at column indent.
func (d *demo) wrap(indent int, format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format+"\n", args...)) {
		_, _ = io.WriteString(d.Term.Out, cli.Wrap(strings.TrimRight(line, "\n"), d.Term.Width(), indent)+"\n")
	}
}
