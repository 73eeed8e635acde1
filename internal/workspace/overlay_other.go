//go:build !linux

package workspace

import "runtime"

func newOverlay(ground) (view, error) {
	return nil, errorf(Unsupported, "", "an overlay needs Linux; this is %s", runtime.GOOS)
}
