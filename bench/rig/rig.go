// Package rig starts Kern as its users do, as programs of its own, so that
// benchmarks measure whole processes from outside.
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

// A Daemon serves a data directory of its own.
type Daemon struct {
	Dir  string
	Env  []string  // beside that of this program
	Said io.Writer // what it says after it serves; nil: nobody hears it
	bin  string

	mu     sync.Mutex
	daemon *exec.Cmd
	heard  chan struct{} // closed when the daemon says nothing any more
}

var built struct {
	once sync.Once
	bin  string
	err  error
}

// Program builds Kern as it stands here, once, and returns where it is.
func Program() (string, error) {
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

// Start starts a daemon before a provider, with so many calls there at once. Its
// directory is made in parent, or where temporary files are.
func Start(parent, provider string, atOnce int) (*Daemon, error) {
	conf := fmt.Sprintf("providers:\n  openai:\n    base_url: %q\n    key_env: BENCH_PROVIDER_KEY\n    concurrency: %d\n    models:\n      bench: {input: 1, output: 10, window: 8192, max_output: 1024}\n", provider, atOnce)
	k, err := New(parent, conf)
	if err != nil {
		return nil, err
	}
	return k, k.Serve()
}

// New makes the directory of a daemon with a configuration, in parent or where
// temporary files are. It is not started.
func New(parent, conf string) (*Daemon, error) {
	bin, err := Program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "kern-bench-")
	if err != nil {
		return nil, err
	}
	return &Daemon{Dir: dir, bin: bin}, os.WriteFile(filepath.Join(dir, "kern.yaml"), []byte(conf), 0o600)
}

// Key makes a key with a limit on money.
func (k *Daemon) Key(limit int64) (base, key string, err error) {
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

// Resident is how many bytes of memory the daemon holds.
func (k *Daemon) Resident() (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Resident(k.daemon.Process.Pid)
}

// Resident is how many bytes of memory a process holds.
func Resident(pid int) (int64, error) {
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

// Processor is how much processor time the daemon has taken.
func (k *Daemon) Processor() (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Processor(k.daemon.Process.Pid)
}

// Processor is how much processor time a program has taken, to a hundredth of a
// second.
func Processor(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Behind the name, which ends with the last parenthesis, the 12th and 13th
	// fields are the time in programs and in the system, in hundredths.
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

// Command is a command line that its user types.
func (k *Daemon) Command(args ...string) *exec.Cmd {
	c := exec.Command(k.bin, args...)
	c.Env = append(os.Environ(), "KERN_DATA="+k.Dir, "BENCH_PROVIDER_KEY=sk-bench-provider")
	c.Env = append(c.Env, k.Env...)
	return c
}

// Serve starts the daemon and returns when it says that it serves.
func (k *Daemon) Serve() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.daemon = k.Command("serve")
	said, err := k.daemon.StderrPipe()
	if err != nil {
		return err
	}
	if err := k.daemon.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(said)
	for heard := ""; ; heard += lines.Text() + "\n" {
		if !lines.Scan() {
			_ = k.daemon.Wait() // how it ended is in its state
			return fmt.Errorf("kern serve ended: %s, %s", k.daemon.ProcessState, heard)
		}
		if strings.Contains(lines.Text(), "serving") {
			k.heard = make(chan struct{})
			go k.hear(said, k.heard)
			return nil
		}
	}
}

func (k *Daemon) hear(said io.Reader, heard chan struct{}) {
	defer close(heard)
	to := k.Said
	if to == nil {
		to = io.Discard
	}
	_, _ = io.Copy(to, said) // it ends with the daemon
}

// Kill ends the daemon as a power cut would.
func (k *Daemon) Kill() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.daemon.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := k.daemon.Process.Wait()
	return err
}

// Wait waits for the end of a daemon that somebody else ends, and until all it
// said was heard.
func (k *Daemon) Wait() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	<-k.heard
	_, err := k.daemon.Process.Wait()
	return err
}

// Close ends the daemon and removes its directory.
func (k *Daemon) Close() {
	if err := k.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(k.Dir)
}

// Mock starts kern mock as a program of its own, and returns its base URL and
// what ends it.
func Mock(args ...string) (url string, end func(), err error) {
	bin, err := Program()
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
		_ = c.Process.Kill() // it has nothing to lose
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

// Files lets this program and those that it starts open n files at a time, or
// as many as the system allows, and says how many.
func Files(n uint64) uint64 {
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
