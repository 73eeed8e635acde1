// Package frame carries messages and descriptors over a Unix socket, between the
// supervisor or backend of a jail and the process inside.
package frame
