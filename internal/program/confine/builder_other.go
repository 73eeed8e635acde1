//go:build !linux

package confine

import "errors"

// Able returns an error, because this system has no namespaces.
func Able() error { return errors.New("a jail needs the namespaces of Linux") }
