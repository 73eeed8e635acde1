//go:build linux

package jail_test

import (
	"os"
	"testing"

	"github.com/kern-run/kern/internal/sandbox/jail"
	"github.com/kern-run/kern/internal/sandbox/sandboxtest"
)

// Mutants that were made by hand and die here: each stream its own output cap;
// a bootstrap that keeps the program's names alive, so that finalizers never run.

var powers = sandboxtest.Capabilities{Functions: true, Programs: true, Processes: true, Peak: true}

// TestConformance runs the suite on warm and, as they run out, cold boxes.
func TestConformance(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, open(t, jail.Config{Warm: 1}), powers)
}

// TestEscapeCorpus runs the programs that try to get out of any backend.
func TestEscapeCorpus(t *testing.T) {
	sandboxtest.RunEscapes(t, open(t, jail.Config{Warm: 1}), powers)
}

// TestConformanceCold runs it on cold ones alone.
func TestConformanceCold(t *testing.T) {
	if os.Getenv("KERN_SOAK") == "" {
		t.Skip("set KERN_SOAK=1")
	}
	sandboxtest.Run(t, open(t, jail.Config{}), powers)
}

// TestPrograms runs ordinary programs and compares what they print to the byte.
func TestPrograms(t *testing.T) {
	t.Parallel()
	sandboxtest.RunPrograms(t, open(t, jail.Config{Warm: 1}))
}
