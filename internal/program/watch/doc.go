// Package watch counts, from inside a box, what no counter of the kernel stops:
// what a run holds in a directory of the host, and where there is no cgroup, its
// memory and processor time.
package watch
