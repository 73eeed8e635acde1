//go:build !linux

package lineage

import "net"

// Of returns the process at the other end of a connection, and its ancestors. This
// system runs no supervisor, so nobody has one above.
func Of(net.Conn) ([]Ancestor, error) { return nil, nil }

// UserOf knows no user on this system.
func UserOf(net.Conn) (uid int, ok bool) { return 0, false }

// Own returns this process and its ancestors.
func Own() ([]Ancestor, error) { return nil, nil }

// Alive reports whether a process has not ended.
func (p Process) Alive() bool { return false }
