package wasm

import (
	"testing"

	"github.com/kern-run/kern/internal/sandbox/sandboxtest"
)

func TestP6Escapes(t *testing.T) { sandboxtest.RunEscapes(t, common, powers) }
