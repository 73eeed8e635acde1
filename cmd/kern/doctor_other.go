//go:build !linux

package main

import (
	"os"
	"runtime"
)

func describeHost() string { return runtime.GOOS + "/" + runtime.GOARCH }

// hostChecks reports that command tools are refused on this system.
func hostChecks() []check {
	return []check{{"command tools", false, "are refused: this system offers no sure way to kill everything that a program starts"}}
}

// explainFull says why nothing can be written in a directory; empty if it can.
func explainFull(dir string) string {
	if i, err := os.Stat(dir); err != nil || i.Mode().Perm()&0o200 == 0 {
		return dir + " cannot be written"
	}
	return ""
}
