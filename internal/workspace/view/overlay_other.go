//go:build !linux

package view

import (
	"runtime"

	"github.com/kern-run/kern/internal/workspace/fsys"
)

// NewOverlay fails on this system.
func NewOverlay(Ground) (View, error) {
	return nil, fsys.Errorf(fsys.Unsupported, "", "an overlay needs Linux; this is %s", runtime.GOOS)
}
