//go:build !linux

// Command jail measures the jail, which exists on Linux only.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "the jail exists on Linux alone")
	os.Exit(1)
}
