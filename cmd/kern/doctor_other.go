//go:build !linux

package main

import (
	"os"
	"runtime"
)

func describeHost() string { return runtime.GOOS + "/" + runtime.GOARCH }

// hostChecks says that command tools are refused here: nothing on this system
// would kill all that a program starts.
func hostChecks() []check {
	return []check{{"command tools", false, "are refused: on this system nothing would surely kill all that a program starts"}}
}

// full says why nothing can be written in a directory; empty: it can.
func full(dir string) string {
	if i, err := os.Stat(dir); err != nil || i.Mode().Perm()&0o200 == 0 {
		return dir + " cannot be written"
	}
	return ""
}
