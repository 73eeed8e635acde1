//go:build !linux

package program

// roles are none: this system cannot find all descendants of a program.
var roles []role
