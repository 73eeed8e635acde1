package wasm

import (
	"testing"

	"github.com/kern-run/kern/internal/sandbox/sandboxtest"
)

func TestPrograms(t *testing.T) { sandboxtest.RunPrograms(t, common) }
