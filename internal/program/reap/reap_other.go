//go:build !linux

package reap

// Able says that this system can find every descendant of a process.
const Able = false
