package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
	"github.com/kern-run/kern/internal/sandbox/wasm"
)

// sandboxes holds the sandboxes of a kernel. Each opens when a call first needs it.
type sandboxes struct {
	mu   sync.Mutex
	open map[string]sandbox.Backend
}

func (b *sandboxes) get(name string) (sandbox.Backend, error) {
	name, err := config.SandboxName(name)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if box := b.open[name]; box != nil {
		return box, nil
	}
	box, err := OpenSandbox(name)
	if err != nil {
		return nil, err
	}
	if b.open == nil {
		b.open = make(map[string]sandbox.Backend)
	}
	b.open[name] = box
	return box, nil
}

func (b *sandboxes) close() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, box := range b.open {
		err = errors.Join(err, box.Close())
	}
	b.open = nil
	return err
}

// OpenSandbox opens a sandbox. It compiles the interpreter once for each user and
// version, or with each call if the user has no cache directory.
func OpenSandbox(name string) (sandbox.Backend, error) {
	switch name {
	case "wasm":
		return wasm.New(wasm.Config{CacheDir: compiledDir()})
	case "jail":
		return jail.New(jail.Config{})
	}
	return nil, fmt.Errorf("there is no sandbox %q; expected %s", name, strings.Join(config.SandboxNames, " or "))
}

// IsSandboxCold reports whether OpenSandbox must compile the interpreter first, which
// takes some seconds.
func IsSandboxCold(name string) bool { return name == "wasm" && wasm.Cold(compiledDir()) }

// compiledDir returns the directory of compiled code. It returns "" if the user has no
// cache directory.
func compiledDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "kern")
}
