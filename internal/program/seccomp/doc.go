// Package seccomp makes the seccomp program of a box: an allow-list.
package seccomp
