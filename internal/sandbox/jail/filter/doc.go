// Package filter makes the seccomp program of a box: an allow-list.
package filter
