//go:build linux

// Command jail measures the jail beside its baselines, in one run. Every round takes
// one sample of each line in turn, so that a busy machine slows all of them. It prints
// minima, medians, 90th percentiles, ratios to the plain program and the aims.
//
//	go run ./bench/jail [-n rounds]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"github.com/kern-run/kern/internal/program"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
)

// A line is one variant that is measured.
type line struct {
	name string
	base string // the line it is a multiple of
	aim  time.Duration
	once func() (time.Duration, error)
	took []time.Duration
}

func main() {
	program.Main()
	n := flag.Int("n", 60, "rounds")
	flag.Parse()
	if err := measure(*n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(n int) error {
	cold, err := jail.New(jail.Config{})
	if err != nil {
		return err
	}
	defer cold.Close()
	warm, err := jail.New(jail.Config{Warm: 1})
	if err != nil {
		return err
	}
	defer warm.Close()
	dir, err := os.MkdirTemp("", "kern-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lines, err := table(cold, warm, dir)
	if err != nil {
		return err
	}
	const discarded = 3
	for round := range n + discarded {
		for _, l := range lines {
			d, err := l.once()
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			if round >= discarded {
				l.took = append(l.took, d)
			}
		}
	}
	report(lines)
	return measureOvershoot(cold)
}

func table(cold, warm *jail.Backend, dir string) ([]*line, error) {
	trueArgv, print1 := []string{"/usr/bin/true"}, sandbox.Spec{Code: "print(1)"}
	lent := print1
	lent.Dir = dir
	lines := []*line{
		{name: "plain true", once: plain("/usr/bin/true")},
		{name: "plain python3 -I -c", once: plain("/usr/bin/python3", "-I", "-c", "print(1)")},
		{name: "jail true", base: "plain true", aim: 5 * time.Millisecond, once: confined(cold, sandbox.Spec{Argv: trueArgv})},
		{name: "jail true, named directory", base: "plain true", once: confined(cold, sandbox.Spec{Argv: trueArgv, Dir: dir})},
		{name: "jail python, cold", base: "plain python3 -I -c", once: confined(cold, print1)},
		{name: "jail python, warm", base: "plain python3 -I -c", aim: 2500 * time.Microsecond, once: warmRun(warm, print1)},
		{name: "jail python, warm, named directory", base: "plain python3 -I -c", once: warmRun(warm, lent)},
	}
	peers := []struct {
		name, base string
		argv       []string
	}{
		{"bwrap true", "plain true", []string{"bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/lib", "/lib", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/usr/bin/true"}},
		{"bwrap python3 -I -c", "plain python3 -I -c", []string{"bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/lib", "/lib", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/usr/bin/python3", "-I", "-c", "print(1)"}},
	}
	for _, p := range peers {
		if _, err := exec.LookPath(p.argv[0]); err != nil {
			fmt.Printf("not measured: %s (%s is not installed)\n", p.name, p.argv[0])
			continue
		}
		lines = append(lines, &line{name: p.name, base: p.base, once: plain(p.argv...)})
	}
	crun, err := crunTrue(dir)
	if err != nil {
		fmt.Printf("not measured: crun true (%v)\n", err)
		return lines, nil
	}
	return append(lines, &line{name: "crun true", base: "plain true", once: crun}), nil
}

func plain(argv ...string) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		_, err := exec.Command(argv[0], argv[1:]...).Output()
		return time.Since(start), err
	}
}

// confined measures a run from call to return, when none of its processes is left.
func confined(b *jail.Backend, s sandbox.Spec) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		out, err := b.Run(context.Background(), s)
		took := time.Since(start)
		if err == nil && out.Cause != sandbox.OK {
			err = fmt.Errorf("%s: %s", out.Cause, out.Stderr)
		}
		return took, err
	}
}

// warmRun waits until the pool has refilled, so that it measures a warm run and not the
// start of the next.
func warmRun(b *jail.Backend, s sandbox.Spec) func() (time.Duration, error) {
	run := confined(b, s)
	return func() (time.Duration, error) {
		for b.Warm() == 0 {
			time.Sleep(time.Millisecond)
		}
		return run()
	}
}

// crunTrue makes a bundle for crun, and returns a function that runs true in it.
func crunTrue(dir string) (func() (time.Duration, error), error) {
	if _, err := exec.LookPath("crun"); err != nil {
		return nil, err
	}
	config := `{"ociVersion":"1.0.0","process":{"user":{"uid":1000,"gid":1000},"args":["/usr/bin/true"],"cwd":"/"},` +
		`"root":{"path":"root","readonly":true},"mounts":[{"destination":"/proc","type":"proc","source":"proc"},` +
		`{"destination":"/usr","type":"bind","source":"/usr","options":["rbind","ro"]}],` +
		`"linux":{"namespaces":[{"type":"pid"},{"type":"mount"},{"type":"network"},{"type":"ipc"},{"type":"uts"}]}}`
	for _, d := range []string{"usr", "proc"} {
		if err := os.MkdirAll(filepath.Join(dir, "root", d), 0o755); err != nil {
			return nil, err
		}
	}
	for _, l := range []string{"lib", "lib64", "bin"} {
		if err := os.Symlink("usr/"+l, filepath.Join(dir, "root", l)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(dir+"/config.json", []byte(config), 0o644); err != nil {
		return nil, err
	}
	count := 0
	once := func() (time.Duration, error) {
		count++
		return plain("crun", "run", "--bundle", dir, fmt.Sprintf("kern-bench-%d-%d", os.Getpid(), count))()
	}
	if _, err := once(); err != nil {
		why := err.Error()
		if e := new(exec.ExitError); errors.As(err, &e) {
			why = strings.TrimSpace(string(e.Stderr))
		}
		return nil, errors.New(why)
	}
	return once, nil
}

func report(lines []*line) {
	medians := map[string]time.Duration{}
	fmt.Printf("%-36s %9s %9s %9s %7s %9s\n", "", "least", "median", "p90", "ratio", "aim")
	for _, l := range lines {
		slices.Sort(l.took)
		m := l.took[len(l.took)/2]
		medians[l.name] = m
		ratio, aim := "", ""
		if b := medians[l.base]; b > 0 {
			ratio = fmt.Sprintf("%.1fx", float64(m)/float64(b))
		}
		if l.aim > 0 {
			aim = ms(l.aim)
			if m > l.aim {
				aim += " missed"
			}
		}
		fmt.Println(strings.TrimRight(fmt.Sprintf("%-36s %9s %9s %9s %7s %9s", l.name, ms(l.took[0]), ms(m), ms(l.took[len(l.took)*9/10]), ratio, aim), " "))
	}
}

// measureOvershoot measures how long a run outlives a wall limit of half a second.
func measureOvershoot(b *jail.Backend) error {
	var took []time.Duration
	const wall = 500 * time.Millisecond
	for range 10 {
		start := time.Now()
		out, err := b.Run(context.Background(), sandbox.Spec{
			Argv:   []string{"sh", "-c", `trap "" TERM INT HUP; for i in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 60 & done; while :; do :; done`},
			Limits: sandbox.Limits{Wall: wall},
		})
		if err != nil || out.Cause != sandbox.Timeout {
			return fmt.Errorf("overshoot: %s, %v", out.Cause, err)
		}
		took = append(took, time.Since(start)-wall)
	}
	slices.Sort(took)
	fmt.Printf("wall overshoot with ten daemons      %9s %9s (max)\n", ms(took[len(took)/2]), ms(took[len(took)-1]))
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }
