// Package rig starts Kern as its users do, as programs of its own, so that
// benchmarks measure whole processes from outside.
package rig

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/kern-run/kern/abi"
)

// A Daemon serves a data directory of its own.
type Daemon struct {
	dir, bin string

	mu     sync.Mutex
	daemon *exec.Cmd
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
		out, err := exec.Command("go", "build", "-o", built.bin, "./cmd/kern").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	return built.bin, built.err
}

// Start starts a daemon before a provider, with so many calls there at once.
func Start(provider string, atOnce int) (*Daemon, error) {
	bin, err := Program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kern-bench-")
	if err != nil {
		return nil, err
	}
	k := &Daemon{dir: dir, bin: bin}
	conf := fmt.Sprintf("providers:\n  openai:\n    base_url: %q\n    key_env: BENCH_PROVIDER_KEY\n    concurrency: %d\n    models:\n      bench: {input: 1, output: 10, window: 8192, max_output: 1024}\n", provider, atOnce)
	if err := os.WriteFile(filepath.Join(dir, "kern.yaml"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return k, k.Serve()
}

// Key makes a key with a limit on money.
func (k *Daemon) Key(limit int64) (base, key string, err error) {
	out, err := k.command("key", "new", "--money", abi.FormatMoney(limit), "--name", "bench", "--json").Output()
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
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.daemon.Process.Pid))
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

func (k *Daemon) command(args ...string) *exec.Cmd {
	c := exec.Command(k.bin, args...)
	c.Env = append(os.Environ(), "KERN_DATA="+k.dir, "BENCH_PROVIDER_KEY=sk-bench-provider")
	return c
}

// Serve starts the daemon and returns when it says that it serves.
func (k *Daemon) Serve() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.daemon = k.command("serve")
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
			return fmt.Errorf("kern serve ended: %s", heard)
		}
		if strings.Contains(lines.Text(), "serving") {
			go io.Copy(io.Discard, said)
			return nil
		}
	}
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

// Close ends the daemon and removes its directory.
func (k *Daemon) Close() {
	if err := k.Kill(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(k.dir)
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
