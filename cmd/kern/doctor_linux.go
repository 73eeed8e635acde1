package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// signalScope is the version of Landlock that can keep a tool's signals away
// from its supervisor.
const signalScope = 6

func host() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	return fmt.Sprintf("%s/%s, Linux %s, %d processors", runtime.GOOS, runtime.GOARCH, unix.ByteSliceToString(u.Release[:]), runtime.NumCPU())
}

// hostChecks are what the tools of this host need.
func hostChecks() []check {
	tools := check{"command tools", true, "run under a supervisor and are killed with all they start, also when the daemon is killed"}
	if err := unix.Access("/proc/self/exe", unix.X_OK); err != nil {
		tools = check{"command tools", false, "the supervisor is this program, and /proc/self/exe cannot be run: " + err.Error()}
	}
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	guard := check{"supervisor's guard", true, fmt.Sprintf("Landlock version %d: a tool cannot signal its supervisor", v)}
	switch {
	case errno != 0:
		guard.Note = "no Landlock: a hostile tool of the same user could kill its supervisor; what it leaves is then killed by the keeper"
	case v < signalScope:
		guard.Note = fmt.Sprintf("Landlock version %d, %d would keep a hostile tool from killing its supervisor; what it leaves is then killed by the keeper", v, signalScope)
	}
	return []check{tools, guard}
}

func canWrite(dir string) bool {
	return unix.Access(dir, unix.W_OK|unix.X_OK) == nil || os.Geteuid() == 0
}
