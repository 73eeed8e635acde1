//go:build !linux

package cgroup

import "errors"

// Usual fails: this system has no cgroups.
func Usual() (Bounds, error) { return Bounds{}, errors.New("this system has no cgroups") }
