// Package frame is what a jail's supervisor and the init of a box say to each
// other over a Unix socket, with descriptors beside it.
package frame
