// Package rig starts Kern as users do, in processes of its own, so that benchmarks
// measure whole processes from outside.
package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kern-run/kern/abi"
)

// A Daemon is a running kern serve with a data directory of its own.
type Daemon struct {
	Dir    string
	Env    []string  // added to the environment of this program
	Output io.Writer // receives stderr once it serves; nil discards it
	bin    string

	mu      sync.Mutex
	daemon  *exec.Cmd
	drained chan struct{} // closed when its stderr has ended
}

var built struct {
	once sync.Once
	bin  string
	err  error
}

// BuildKern builds this checkout once, and returns the path of the binary.
func BuildKern() (string, error) {
	built.once.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "kern-bench-"); built.err != nil {
			return
		}
		built.bin = filepath.Join(dir, "kern")
		out, err := exec.Command("go", "build", "-o", built.bin, "github.com/kern-run/kern/cmd/kern").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	return built.bin, built.err
}

// StartDaemon starts a daemon in front of a provider, which gets at most atOnce
// requests at a time. Its directory is below parent; empty: the temporary directory.
func StartDaemon(parent, provider string, atOnce int) (*Daemon, error) {
	conf := fmt.Sprintf("providers:\n  openai:\n    base_url: %q\n    key_env: BENCH_PROVIDER_KEY\n    concurrency: %d\n    models:\n      bench: {input: 1, output: 10, window: 8192, max_output: 1024}\n", provider, atOnce)
	k, err := NewDaemon(parent, conf)
	if err != nil {
		return nil, err
	}
	return k, k.Serve()
}

// NewDaemon makes a data directory with a kern.yaml, and starts nothing. The
// directory is below parent; empty: the temporary directory.
func NewDaemon(parent, conf string) (*Daemon, error) {
	bin, err := BuildKern()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "kern-bench-")
	if err != nil {
		return nil, err
	}
	return &Daemon{Dir: dir, bin: bin}, os.WriteFile(filepath.Join(dir, "kern.yaml"), []byte(conf), 0o600)
}

// NewKey makes a key with a limit on money.
func (k *Daemon) NewKey(limit int64) (base, key string, err error) {
	out, err := k.Command("key", "new", "--money", abi.FormatMoney(limit), "--name", "bench", "--json").Output()
	if err != nil {
		return "", "", fmt.Errorf("kern key new: %w: %s", err, out)
	}
	var made struct {
		Key    string `json:"key"`
		OpenAI string `json:"openai_base_url"`
	}
	if err := json.Unmarshal(out, &made); err != nil || made.Key == "" {
		return "", "", fmt.Errorf("kern key new: %s", out)
	}
	return made.OpenAI, made.Key, nil
}

// ResidentMemory returns the bytes of memory that the daemon holds.
func (k *Daemon) ResidentMemory() (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return ResidentMemory(k.daemon.Process.Pid)
}

// ResidentMemory returns the bytes of memory that a process holds.
func ResidentMemory(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, err
	}
	return kib << 10, nil
}

// ProcessorTime returns the processor time that the daemon has used.
func (k *Daemon) ProcessorTime() (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return ProcessorTime(k.daemon.Process.Pid)
}

// ProcessorTime returns the processor time of a process, in steps of 10 ms.
func ProcessorTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name ends with the last parenthesis. Of the fields behind it, the 12th and
	// 13th are user and system time in hundredths of a second.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var sum int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * (time.Second / 100), nil
}

// Command returns a kern command for the data directory of this daemon.
func (k *Daemon) Command(args ...string) *exec.Cmd {
	c := exec.Command(k.bin, args...)
	c.Env = append(os.Environ(), "KERN_DATA="+k.Dir, "BENCH_PROVIDER_KEY=sk-bench-provider")
	c.Env = append(c.Env, k.Env...)
	return c
}

// Serve starts the daemon and returns when it accepts connections.
func (k *Daemon) Serve() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.daemon = k.Command("serve")
	stderr, err := k.daemon.StderrPipe()
	if err != nil {
		return err
	}
	if err := k.daemon.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stderr)
	for heard := ""; ; heard += lines.Text() + "\n" {
		if !lines.Scan() {
			_ = k.daemon.Wait() // ProcessState has the reason
			return fmt.Errorf("kern serve ended: %s, %s", k.daemon.ProcessState, heard)
		}
		if strings.Contains(lines.Text(), "serving") {
			k.drained = make(chan struct{})
			go k.copyOutput(stderr, k.drained)
			return nil
		}
	}
}

func (k *Daemon) copyOutput(stderr io.Reader, drained chan struct{}) {
	defer close(drained)
	to := k.Output
	if to == nil {
		to = io.Discard
	}
	_, _ = io.Copy(to, stderr) // ends with the daemon
}

// Kill ends the daemon with SIGKILL.
func (k *Daemon) Kill() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.daemon.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := k.daemon.Process.Wait()
	return err
}

// WaitForEnd waits for the end of a daemon that another process stops, and for the
// end of its output.
func (k *Daemon) WaitForEnd() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	<-k.drained
	_, err := k.daemon.Process.Wait()
	return err
}

// Close kills the daemon and removes its directory.
func (k *Daemon) Close() {
	if err := k.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(k.Dir)
}

// StartMock starts kern mock, and returns its base URL and a function that ends it.
func StartMock(args ...string) (url string, end func(), err error) {
	bin, err := BuildKern()
	if err != nil {
		return "", nil, err
	}
	c := exec.Command(bin, append([]string{"mock", "--port", "0"}, args...)...)
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		_ = c.Process.Kill() // it keeps no state
		_ = c.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("kern mock: %w", err)
	}
	go io.Copy(io.Discard, out)
	return strings.TrimSpace(line) + "/v1", end, nil
}

// RaiseFileLimit lets this program and its children open n files at a time, or as
// many as the system allows. It returns the limit that holds now.
func RaiseFileLimit(n uint64) uint64 {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return 0
	}
	for _, l := range []syscall.Rlimit{{Cur: n, Max: max(n, now.Max)}, {Cur: now.Max, Max: now.Max}} {
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
			return l.Cur
		}
	}
	return now.Cur
}
