package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/program/confine"
)

// signalScope is the first version of Landlock that can keep the signals of a tool
// from its supervisor.
const signalScope = 6

func describeHost() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	return fmt.Sprintf("%s/%s, Linux %s, %d processors", runtime.GOOS, runtime.GOARCH, unix.ByteSliceToString(u.Release[:]), runtime.NumCPU())
}

// hostChecks checks what command tools need.
func hostChecks() []check {
	tools := check{"command tools", true, "run under a supervisor, which kills them and everything they start, also if the daemon is killed"}
	if err := unix.Access("/proc/self/exe", unix.X_OK); err != nil {
		tools = check{"command tools", false, "the supervisor is this program, and /proc/self/exe cannot be executed: " + err.Error()}
	}
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	guard := check{"supervisor's guard", true, fmt.Sprintf("Landlock version %d: a tool cannot signal its supervisor", v)}
	switch {
	case errno != 0:
		guard.Note = "no Landlock: a hostile tool could kill its supervisor; a second supervisor then kills what the tool started"
	case v < signalScope:
		guard.Note = fmt.Sprintf("Landlock version %d, and version %d is needed to stop a hostile tool from killing its supervisor; a second supervisor then kills what the tool started", v, signalScope)
	}
	return []check{tools, guard, checkJail()}
}

// checkJail runs a program in the jail that kern exec --sandbox jail builds.
func checkJail() check {
	c := check{Name: "exec in a jail"}
	code, err := runJailed("true")
	switch {
	case err != nil:
		c.Note = err.Error()
	case code != 0:
		c.Note = fmt.Sprintf("a test program ended with exit code %d", code)
	default:
		c.OK, c.Note = true, "kern exec --sandbox jail works: a program can reach only the gateway"
	}
	return c
}

// runJailed runs a program in a jail without a gateway.
func runJailed(name string) (int, error) {
	dir, err := os.MkdirTemp("", "kern-doctor-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	path, err := program.Find(name)
	if err != nil {
		return 0, err
	}
	plan, err := confine.NewPlan(confine.Options{Dir: dir, Path: path, Base: "http://127.0.0.1:1", Socket: dir + "/none"})
	if err != nil {
		return 0, err
	}
	g, err := program.Start(program.Spec{Argv: []string{name}, Env: os.Environ(), Jail: plan})
	if err != nil {
		return 0, err
	}
	return g.Wait().Code(), nil
}

// minFree is the free space that a journal needs.
const minFree = 4 << 20

// explainFull says why nothing can be written in a directory; empty if it can.
func explainFull(dir string) string {
	var at unix.Statfs_t
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Sprintf("%s cannot be written: %v", dir, err)
	}
	if err := unix.Statfs(dir, &at); err == nil && at.Blocks > 0 && at.Bavail*uint64(at.Bsize) < minFree {
		return fmt.Sprintf("the disk of %s is full: %d KiB are left, and Kern admits no call without free space", dir, at.Bavail*uint64(at.Bsize)>>10)
	}
	return ""
}
