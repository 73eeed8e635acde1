package wasm

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kern-run/kern/internal/sandbox/sandboxtest"
)

// common is the Backend of the tests that need nothing special of theirs.
var common *Backend

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kern-wasm-cache-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cacheDir = dir
	if common, err = New(Config{CacheDir: dir}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := common.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// cacheDir is filled, so that a test can have a Backend of its own at once.
var cacheDir string

var powers = sandboxtest.Capabilities{Functions: true, Sessions: true, Peak: true}

func TestConformance(t *testing.T) { sandboxtest.Run(t, common, powers) }
