package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// binary is kern, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kern-clients-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kern")
	build := exec.Command("go", "build", "-o", path, "../../cmd/kern")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return path, fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// cleanUp removes what was made for all tests.
func cleanUp() {
	if path, _ := binary(); path != "" {
		_ = os.RemoveAll(filepath.Dir(path)) // a directory that is left harms nobody
	}
}

// A kernel is a data directory with a daemon, whose providers are mocks.
type kernel struct {
	t   *testing.T
	bin string
	dir string
	env []string
}

// newKernel starts nothing: the first command does. more is put at the end of
// the configuration.
func newKernel(t *testing.T, p provider, more string) *kernel {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{t: t, bin: bin, dir: t.TempDir()}
	k.env = append(plainEnv(t), "USER=ann", "KERN_DATA="+k.data(), "UP_KEY="+key)
	var models strings.Builder
	for _, name := range p.models {
		fmt.Fprintf(&models, "%s: {input: 3.00, output: 15.00, window: 200000, max_output: 4000}, ", name)
	}
	all := "{" + strings.TrimSuffix(models.String(), ", ") + "}"
	text := fmt.Sprintf("providers:\n  openai: {base_url: %q, key_env: UP_KEY, models: %s}\n  anthropic: {base_url: %q, key_env: UP_KEY, models: %s}\n%s", p.openai, all, p.anthropic, all, more)
	if err := errors.Join(os.MkdirAll(k.data(), 0o700), os.WriteFile(filepath.Join(k.data(), "kern.yaml"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, notes, code := k.kern("stop-daemon"); code != 0 {
			t.Errorf("the daemon does not stop: %d %s%s", code, out, notes)
		}
	})
	return k
}

func (k *kernel) data() string { return filepath.Join(k.dir, "data") }

// kern runs a command to its end.
func (k *kernel) kern(args ...string) (out, notes string, code int) {
	k.t.Helper()
	cmd := exec.Command(k.bin, args...)
	cmd.Dir, cmd.Env = k.dir, k.env
	var o, n bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &n
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		k.t.Fatal(err)
	}
	return o.String(), n.String(), cmd.ProcessState.ExitCode()
}

// json runs a command that prints an object.
func (k *kernel) json(to any, args ...string) {
	k.t.Helper()
	out, notes, code := k.kern(args...)
	if err := json.Unmarshal([]byte(out), to); err != nil || code != 0 {
		k.t.Fatalf("kern %v: exit code %d, %v: %s%s", args, code, err, out, notes)
	}
}

// key makes a key with limits.
func (k *kernel) key(args ...string) api.KeyInfo {
	k.t.Helper()
	var i api.KeyInfo
	k.json(&i, append([]string{"key", "new", "--json"}, args...)...)
	return i
}

func baseOf(i api.KeyInfo) base { return base{i.OpenAI, i.Anthropic, i.Key} }

// failures are the records of calls of a process that did not end well: where
// books differ, they tell why.
func (k *kernel) failures(pid abi.Pid) string {
	k.t.Helper()
	out, _, _ := k.kern("log", fmt.Sprint(pid), "--json")
	var all strings.Builder
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"code":`) {
			all.WriteString(line)
		}
	}
	return all.String()
}

// show is how a process stands, with all below it.
func (k *kernel) show(pid abi.Pid) (p api.Process) {
	k.t.Helper()
	k.json(&p, "show", fmt.Sprint(pid), "--json")
	return p
}

// money is an amount in nano-dollars.
func money(t *testing.T, s string) int64 {
	t.Helper()
	n, err := abi.ParseMoney(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// crash kills the daemon with SIGKILL.
func (k *kernel) crash() {
	k.t.Helper()
	b, err := os.ReadFile(filepath.Join(k.data(), "lock"))
	if err != nil {
		k.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		k.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		k.t.Fatal(err)
	}
	until(k.t, "the daemon is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

// TestGateway: through the gateway every client says and does the same, and
// three books agree: the client's, the provider's and Kern's.
func TestGateway(t *testing.T) {
	p := serve(t, mockConfig(t))
	k := newKernel(t, p, "")
	each(t, func(t *testing.T, c client) {
		argv := c.argv(t, allModes)
		i := k.key("--name", c.name, "--money", "5")
		before := p.Idle(t.Context())
		lines, _ := program(t, argv, slices.Concat(plainEnv(t), baseOf(i).env()))
		s := p.Idle(t.Context())
		judge(t, c, lines, func(mode string) (int64, int64) {
			return s.Models[mode].Input - before.Models[mode].Input, s.Models[mode].Output - before.Models[mode].Output
		})
		used := k.show(i.Pid)
		if used.Usage.InputTokens != s.Input-before.Input || used.Usage.OutputTokens != s.Output-before.Output || money(t, used.Usage.Money) != s.Nano-before.Nano || money(t, used.Reserved.Money) != 0 {
			t.Errorf("kern booked %+v, reserved %s; the provider in %d, out %d, %d nano-dollars, %d cut off\n%s", used.Usage, used.Reserved.Money,
				s.Input-before.Input, s.Output-before.Output, s.Nano-before.Nano, s.Aborted-before.Aborted, k.failures(i.Pid))
		}
		// plain, stream, structured: one answer each; tools: 3; long: 31.
		if used.Usage.ModelCalls != 37 || used.Usage.ToolCalls != 33 {
			t.Errorf("kern counted %d model calls and %d tool calls, expected 37 and 33", used.Usage.ModelCalls, used.Usage.ToolCalls)
		}
		if s.Keys[hashOfKey].Requests != s.Requests {
			t.Error("the provider saw another key than its own")
		}
	})
}
