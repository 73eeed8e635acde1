//go:build !linux

package confine

import "errors"

// Able says that there is no fence on this system.
func Able() error { return errors.New("a jail needs the namespaces of Linux") }
