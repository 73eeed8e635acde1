//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/leaktest"
)

// The scripts under testdata/script are what a user sees: real commands, real
// daemons, one data directory each. Their numbers are those of the scenarios.
// A script may use, beside the usual commands:
//
//	code N COMMAND...        the command exits with N
//	field FILE PATH VALUE    the JSON in FILE (stdout, stderr) has VALUE at PATH, such as .usage.money or .0.pid; ! says it has not
//	has FILE PATH PATTERN    the value at PATH matches
//	lines FILE N             FILE has N lines; a file that is not there has none
//	until PATTERN COMMAND... repeats the command until its output matches
//	within DURATION COMMAND  the command succeeds or not, in that time
//	gone FILE                no process with a number in FILE is alive
//	crash                    kill -9 of the daemon
//
// In files named *.yaml, $WORK is the directory of the script, and the programs
// in testdata/tools are in the PATH. $EXAMPLES is where the examples are.
func TestMain(m *testing.M) {
	host.Child()
	if strings.HasSuffix(os.Args[0], ".test") { // and not kern, which this program is too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // who runs the tests may have it ignored, and then a shell cannot trap it
	}
	testscript.Main(leaktest.Wrap(m), map[string]func(){"kern": main, "agent": agentMain})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup:               setupScript,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": cmdCode, "field": cmdField, "has": cmdHas, "lines": cmdLines, "until": cmdUntil,
			"within": cmdWithin, "gone": cmdGone, "crash": cmdCrash, "flip": cmdFlip,
		},
	})
}

func setupScript(env *testscript.Env) error {
	tools, err := filepath.Abs("testdata/tools")
	if err != nil {
		return err
	}
	data := filepath.Join(env.WorkDir, "data")
	env.Setenv("PATH", tools+string(os.PathListSeparator)+env.Getenv("PATH"))
	if cache, err := os.UserCacheDir(); err == nil {
		env.Setenv("XDG_CACHE_HOME", cache) // the interpreter is compiled once, not for every script
	}
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("KERN_DATA", data)
	env.Setenv("USER", "ann")
	env.Vars = append(env.Vars, leaktest.Env())
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Defer(func() {
		for _, line := range endDaemons(env.WorkDir) {
			env.T().Fatal(line)
		}
	})
	return filepath.WalkDir(env.WorkDir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".yaml" {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, bytes.ReplaceAll(b, []byte("$WORK"), []byte(env.WorkDir)), 0o666)
	})
}

// endDaemons ends every daemon whose data directory is below dir, waits until
// it is gone, and returns what its log says of panics and data races.
func endDaemons(dir string) (bad []string) {
	_ = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == daemon.LifeLock {
			data := filepath.Dir(name)
			if pid := daemonOf(data); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
			awaitEnd(data)
			log, _ := os.ReadFile(filepath.Join(data, daemon.LogFile)) // a daemon in the foreground has none
			if bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic:")) {
				bad = append(bad, string(log))
			}
		}
		return nil
	})
	return bad
}

// daemonOf is the process that owns a data directory, 0 if there is none.
func daemonOf(data string) int {
	f, err := os.Open(filepath.Join(data, daemon.LifeLock))
	if err != nil {
		return 0
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return 0 // nobody holds it
	}
	b, err := os.ReadFile(filepath.Join(data, "lock"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// awaitEnd waits until nobody owns a data directory any more: the lock is
// given free by the end of its process.
func awaitEnd(data string) {
	f, err := os.Open(filepath.Join(data, daemon.LifeLock))
	if err != nil {
		return
	}
	defer f.Close()
	for errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX), syscall.EINTR) {
	}
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	if got := codeOf(ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("%s exits with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

func codeOf(err error) int {
	var x *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &x):
		return x.ExitCode()
	}
	return -1
}

// at finds a value in the JSON of a file, or in its last line.
func at(ts *testscript.TestScript, file, path string) string {
	text := strings.TrimSpace(ts.ReadFile(file))
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil || d.More() {
		last := text[strings.LastIndexByte(text, '\n')+1:]
		d = json.NewDecoder(strings.NewReader(last))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			ts.Fatalf("%s is not JSON: %v", file, err)
		}
	}
	for _, name := range strings.Split(strings.TrimPrefix(path, "."), ".") {
		switch t := v.(type) {
		case map[string]any:
			v = t[name]
		case []any:
			n, err := strconv.Atoi(name)
			switch {
			case name == "len":
				v = len(t)
			case err == nil && n < 0 && -n <= len(t):
				v = t[len(t)+n]
			case err == nil && n >= 0 && n < len(t):
				v = t[n]
			default:
				v = nil
			}
		default:
			v = nil
		}
	}
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	ts.Check(err)
	return string(b)
}

func cmdField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: field FILE PATH VALUE")
	}
	if got := at(ts, args[0], args[1]); (got == args[2]) == neg {
		ts.Fatalf("%s is %q", args[1], got)
	}
}

func cmdHas(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: has FILE PATH PATTERN")
	}
	if got := at(ts, args[0], args[1]); regexp.MustCompile(args[2]).MatchString(got) == neg {
		ts.Fatalf("%s is %q", args[1], got)
	}
}

func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || neg {
		ts.Fatalf("usage: lines FILE N")
	}
	var b []byte
	var err error
	switch args[0] {
	case "stdout", "stderr":
		b = []byte(ts.ReadFile(args[0]))
	default:
		b, err = os.ReadFile(ts.MkAbs(args[0]))
	}
	if err != nil && !os.IsNotExist(err) {
		ts.Check(err)
	}
	if got := bytes.Count(b, []byte("\n")); strconv.Itoa(got) != args[1] {
		ts.Fatalf("%s has %d lines, want %s:\n%s", args[0], got, args[1], b)
	}
}

// patience is how long a script waits for what must come.
const patience = 20 * time.Second

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: until PATTERN COMMAND...")
	}
	want := regexp.MustCompile(args[0])
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...) // what it prints counts
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Since(begun) > patience {
			ts.Fatalf("%s does not come", args[0])
		}
	}
}

func cmdWithin(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: within DURATION COMMAND...")
	}
	most, err := time.ParseDuration(args[0])
	ts.Check(err)
	begun := time.Now()
	_ = ts.Exec(args[1], args[2:]...)
	if took := time.Since(begun); took > most {
		ts.Fatalf("%s took %s, want at most %s", strings.Join(args[1:], " "), took, most)
	}
}

func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 || neg {
		ts.Fatalf("usage: gone FILE")
	}
	pids := strings.Fields(ts.ReadFile(args[0]))
	if len(pids) == 0 {
		ts.Fatalf("%s names no process", args[0])
	}
	for _, s := range pids {
		pid, err := strconv.Atoi(s)
		ts.Check(err)
		if err := syscall.Kill(pid, 0); err == nil {
			ts.Fatalf("process %d of the system is alive", pid)
		}
	}
}

func cmdCrash(ts *testscript.TestScript, neg bool, args []string) {
	data := ts.Getenv("KERN_DATA")
	pid := daemonOf(data)
	if pid == 0 {
		ts.Fatalf("there is no daemon")
	}
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	awaitEnd(data)
}

// cmdFlip changes one bit of a file.
func cmdFlip(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || neg {
		ts.Fatalf("usage: flip FILE BYTE")
	}
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	b[at] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}
