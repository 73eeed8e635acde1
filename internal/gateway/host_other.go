//go:build !linux

package gateway

// openFiles returns how many descriptors this process may have; 0: unknown.
func openFiles() int { return 0 }

// memory returns the bytes of memory that this process may use; 0: unknown.
func memory() int64 { return 0 }
