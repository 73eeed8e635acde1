//go:build !linux

package view

import (
	"runtime"

	"github.com/kern-run/kern/internal/workspace/fault"
)

func NewOverlay(Ground) (View, error) {
	return nil, fault.Errorf(fault.Unsupported, "", "an overlay needs Linux; this is %s", runtime.GOOS)
}
