package api

import "net"

// listenPrivate listens on a socket; the access list of its directory is what
// guards it.
func listenPrivate(path string) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
