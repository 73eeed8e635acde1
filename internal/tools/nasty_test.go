//go:build linux

package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/program"
)

// nasty is what a tool may be that nobody wishes for. dir is on the command
// line of everything it starts, so that it can be found again.
func nasty(name string, args []string) {
	dir := ""
	if len(args) > 0 {
		dir = args[0]
	}
	switch name {
	case "linger": // ignores every signal it can, and stays
		signal.Ignore()
		mustWrite(filepath.Join(dir, "pid-"+strconv.Itoa(os.Getpid())))
		forever()
	case "daemon": // leaves one behind in a session of its own, and ends well
		spawn(dir, &syscall.SysProcAttr{Setsid: true}, os.Environ(), "linger", dir)
		await(dir, 1)
		fmt.Println("ok")
	case "twofold": // leaves a grandchild without environment, whose parent is gone
		spawn(dir, &syscall.SysProcAttr{Setsid: true}, []string{}, "middle", dir)
		await(dir, 1)
		fmt.Println("ok")
	case "middle":
		spawn(dir, &syscall.SysProcAttr{Setsid: true}, []string{}, "linger", dir)
	case "hang": // leaves two, and hangs
		spawn(dir, &syscall.SysProcAttr{Setsid: true}, nil, "linger", dir)
		spawn(dir, &syscall.SysProcAttr{Setpgid: true}, nil, "linger", dir)
		nasty("linger", args)
	case "bomb":
		bomb(dir, args[1])
	case "flood":
		for chunk := strings.Repeat("0123456789abcde\n", 4096); ; {
			if _, err := os.Stdout.WriteString(chunk); err != nil {
				os.Exit(1)
			}
		}
	case "closed": // closes its output, and stays
		_ = os.Stdout.Close()
		_ = os.Stderr.Close()
		nasty("linger", args)
	case "burn": // takes CPU time
		for used := time.Duration(0); used < burnt; {
			var u unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
				panic(err)
			}
			used = time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	case "deaf": // never reads what it is given
		fmt.Println(`{"deaf":true}`)
	case "echo":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "bytes": // writes what its argument says, in hex
		for _, a := range args {
			var b []byte
			if _, err := fmt.Sscanf(a, "%x", &b); err != nil {
				panic(err)
			}
			_, _ = os.Stdout.Write(b)
		}
	case "signal": // is ended by a signal
		n, _ := strconv.Atoi(dir)
		signal.Reset()
		_ = unix.Kill(os.Getpid(), syscall.Signal(n))
		forever()
	case "patricide": // kills its parent, then stays with a daemon
		spawn(dir, &syscall.SysProcAttr{Setsid: true}, nil, "linger", dir)
		await(dir, 1)
		if err := unix.Kill(os.Getppid(), unix.SIGKILL); err != nil {
			fmt.Println("kill:", err)
			os.Exit(0)
		}
		nasty("linger", args)
	case "lullaby-both": // tells keeper and supervisor to pause, and stays
		var keeper int
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(os.Getppid()) + "/status")
		_, after, _ := strings.Cut(string(stat), "PPid:")
		if _, err := fmt.Sscan(after, &keeper); err != nil || keeper <= 1 {
			panic("no keeper")
		}
		fmt.Printf("keeper: %v\n", unix.Kill(keeper, unix.SIGSTOP))
		nasty("lullaby", args)
	case "lullaby": // tells its supervisor to pause, and stays
		if err := unix.Kill(os.Getppid(), unix.SIGSTOP); err != nil {
			fmt.Println("stop:", err)
			os.Exit(0)
		}
		nasty("linger", args)
	case "spy": // reads the environment of the process it is told
		b, err := os.ReadFile("/proc/" + args[1] + "/environ")
		fmt.Println(string(b), err)
	case "kernel": // runs a tool until it is killed itself
		fmt.Println(kernel(dir, args[1]))
	case "spoil": // takes the permissions from its directories
		for _, d := range []string{"a/b", os.Getenv("TMPDIR") + "/c"} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				panic(err)
			}
			mustWrite(d + "/file")
			_ = os.Chmod(d, 0)
		}
	default:
		panic("no such program: " + name)
	}
	os.Exit(0)
}

// burnt is how much CPU time the program burn takes.
const burnt = 200 * time.Millisecond

func spawn(dir string, attr *syscall.SysProcAttr, env []string, args ...string) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, append([]string{"nasty"}, args...)...)
	cmd.SysProcAttr, cmd.Env, cmd.Dir = attr, env, dir
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

func mustWrite(file string) {
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		panic(err)
	}
}

// await waits until n programs linger in dir.
func await(dir string, n int) {
	for deadline := time.Now().Add(20 * time.Second); len(mustGlob(dir+"/pid-*")) < n; {
		if time.Now().After(deadline) {
			panic("nobody came")
		}
		pause()
	}
}

// forever waits outside of Go, whose runtime without C ends a program in which
// nothing can happen any more.
func forever() {
	for {
		_, _ = unix.Poll(nil, -1)
	}
}

func pause() { <-time.After(2 * time.Millisecond) }

// bomb becomes a shell that forks for ever, as a user whose processes are
// counted, so that the machine survives a kernel that fails. What other tests
// run as nobody does not count: that user is nobody else's.
func bomb(dir, script string) {
	const most, user = 150, 64999
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		panic(err)
	}
	if os.Getuid() == 0 {
		// A thread of its own suffices: exec makes it the process.
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); e != 0 {
			panic(e)
		}
	}
	file := filepath.Join(dir, script)
	panic(unix.Exec("/bin/sh", []string{"sh", file}, []string{"PATH=" + os.Getenv("PATH")}))
}

// kernel runs the tool hang, as a daemon would.
func kernel(dir, what string) string {
	idle := &program.Pool{Command: []string{"/proc/self/exe", dir}}
	if err := idle.Warm(); err != nil { // idle when the end comes
		return err.Error()
	}
	self, _ := os.Executable()
	busy := &program.Pool{Command: []string{"/proc/self/exe", cmp.Or(os.Getenv("SYSTEM"), "this-system"), dir, "busy"}}
	tl, err := Command(abi.ToolSpec{Name: "x", Command: []string{self, "nasty", what, dir, strconv.Itoa(os.Getpid())}}, Runner{Pool: busy})
	if err != nil {
		return err.Error()
	}
	if os.Getenv("CONCEAL") != "" {
		if err := program.Conceal(); err != nil {
			return err.Error()
		}
	}
	out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{}`)})
	if err := errors.Join(idle.Close(), busy.Close()); err != nil {
		return err.Error()
	}
	if out.Err != nil {
		return out.Err.Error()
	}
	return string(out.Value)
}
