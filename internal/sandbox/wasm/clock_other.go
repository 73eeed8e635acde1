//go:build !linux

package wasm

import "time"

func threadTime() time.Duration { return 0 }
