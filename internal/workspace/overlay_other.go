//go:build !linux

package workspace

import "runtime"

func newOverlay(*Tx) (view, error) {
	return nil, errorf(Unsupported, "", "an overlay needs Linux; this is %s", runtime.GOOS)
}

func mountBounded(dir string, _ int64, _ int, _ Options) error {
	return errorf(Unsupported, dir, "a quota on this kind of view needs Linux; this is %s; use a layer, or no quota", runtime.GOOS)
}

func unmount(string) error { return nil }
