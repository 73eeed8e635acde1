//go:build !linux

package main

import (
	"os"
	"runtime"
)

func host() string { return runtime.GOOS + "/" + runtime.GOARCH }

// hostChecks says that command tools are refused here: nothing on this system
// would kill all that a program starts.
func hostChecks() []check {
	return []check{{"command tools", false, "are refused: on this system nothing would surely kill all that a program starts"}}
}

func canWrite(dir string) bool {
	i, err := os.Stat(dir)
	return err == nil && i.Mode().Perm()&0o200 != 0
}
