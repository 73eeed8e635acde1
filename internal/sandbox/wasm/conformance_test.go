package wasm

import (
	"fmt"
	"os"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
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
	closed := func() { err = common.Close() }
	code := leaktest.Wrap(m, closed).Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// cacheDir is filled, so that a test can have a Backend of its own at once.
var cacheDir string

var powers = sandboxtest.Capabilities{Functions: true, Sessions: true, Peak: true}

func TestConformance(t *testing.T) { sandboxtest.Run(t, common, powers) }
