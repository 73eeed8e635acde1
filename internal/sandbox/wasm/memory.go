package wasm

import (
	"context"

	"github.com/tetratelabs/wazero/experimental"
)

const (
	wasmPage  = 65536
	hostPage  = 4096
	maxMemory = 1 << 32 // what 32 bits address

	// minMemory is what the interpreter needs to be of any use.
	minMemory = 40 << 20
)

// A span is a part of the memory, in bytes.
type span struct{ from, to int }

// touched is the memory that a run read or wrote.
type touched struct{ read, written []span }

// Allocate implements [experimental.MemoryAllocator]. It always returns m, the
// memory of the instance.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate implements [experimental.LinearMemory]. Beyond the limit it returns
// nil, and memory.grow fails in the code.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.denied = true
		return nil
	}
	return m.grow(size)
}

// within prepares a context for instantiating a module on m.
func (m *memory) within(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, m)
}
