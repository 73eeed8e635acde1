// Package userns knows why a host refuses user namespaces, or the rights in them,
// and what to do about it.
package userns
