package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kern-run/kern/abi"
)

// kern is a daemon over a data directory of its own, with one key.
type kern struct {
	dir, bin  string
	base, key string

	mu     sync.Mutex
	daemon *exec.Cmd
}

var built struct {
	once sync.Once
	bin  string
	err  error
}

// program is Kern as it stands here.
func program() (string, error) {
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

// startKern starts a daemon before a provider, with so many calls there at
// once, and makes a key with a cap.
func startKern(provider string, limit int64, atOnce int) (*kern, error) {
	bin, err := program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kern-bench-")
	if err != nil {
		return nil, err
	}
	k := &kern{dir: dir, bin: bin}
	conf := fmt.Sprintf("providers:\n  openai:\n    base_url: %q\n    key_env: BENCH_PROVIDER_KEY\n    concurrency: %d\n    models:\n      bench: {input: 1, output: 10, window: 8192, max_output: 1024}\n", provider, atOnce)
	if err := os.WriteFile(filepath.Join(dir, "kern.yaml"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	if err := k.serve(); err != nil {
		return nil, err
	}
	out, err := k.command("key", "new", "--money", abi.FormatMoney(limit), "--name", "bench", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("kern key new: %w: %s", err, out)
	}
	var made struct {
		Key    string `json:"key"`
		OpenAI string `json:"openai_base_url"`
	}
	if err := json.Unmarshal(out, &made); err != nil || made.Key == "" {
		return nil, fmt.Errorf("kern key new: %s", out)
	}
	k.key, k.base = made.Key, made.OpenAI
	return k, nil
}

func (k *kern) command(args ...string) *exec.Cmd {
	c := exec.Command(k.bin, args...)
	c.Env = append(os.Environ(), "KERN_DATA="+k.dir, "BENCH_PROVIDER_KEY=sk-bench-provider")
	return c
}

// serve starts the daemon and returns when it says that it serves.
func (k *kern) serve() error {
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

// kill ends the daemon as a power cut would.
func (k *kern) kill() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.daemon.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := k.daemon.Process.Wait()
	return err
}

// killOnAndOff kills the daemon so many times, each when the provider has got
// another part of the requests that the key can pay and is at work on some.
func (k *kern) killOnAndOff(ctx context.Context, p *provider, paid, times int) error {
	before := p.mock.Stats().Requests
	for i := range times {
		for s := p.mock.Stats(); s.InFlight == 0 || s.Requests-before < int64(paid*(i+1)/(times+1)); s = p.mock.Stats() {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("the provider got %d requests, too few to kill the daemon %d times", s.Requests-before, times)
			}
		}
		if err := k.kill(); err != nil {
			return err
		}
		if err := k.serve(); err != nil {
			return err
		}
	}
	return nil
}

func (k *kern) close() {
	if err := k.kill(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(k.dir)
}
