package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// socketFile is the name of the socket in the data directory. If the path is too
// long for a socket, it is a symbolic link to a socket elsewhere.
const socketFile = "kern.sock"

// maxSocket is the longest path of a socket that every system accepts.
const maxSocket = 100

// shortPrefix begins the names of directories that hold sockets of data
// directories with long names.
const shortPrefix = "kern-socket-"

// SocketOf is the path of the control socket of a data directory.
func SocketOf(dir string) string { return SocketAt(dir, socketFile) }

// SocketAt is the path of a named socket of a data directory.
func SocketAt(dir, file string) string {
	path := filepath.Join(dir, file)
	if len(path) <= maxSocket {
		return path
	}
	if to, err := os.Readlink(path); err == nil {
		return to
	}
	return path
}

// Listen opens the control socket of a data directory. The caller must own the
// journal of the directory, because Listen replaces the socket of a dead daemon.
func Listen(dir string) (net.Listener, error) { return ListenAt(dir, socketFile) }

// ListenAt is Listen for another socket of the directory.
func ListenAt(dir, file string) (net.Listener, error) {
	if err := UnlistenAt(dir, file); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, file)
	path := name
	if len(name) > maxSocket {
		short, err := os.MkdirTemp("", shortPrefix)
		if err != nil {
			return nil, err
		}
		path = filepath.Join(short, file)
		if len(path) > maxSocket {
			return nil, errors.Join(fmt.Errorf("no directory with a path short enough for a socket: %s has %d bytes, expected at most %d", path, len(path), maxSocket), os.RemoveAll(short))
		}
		if err := os.Symlink(path, name); err != nil {
			return nil, errors.Join(err, os.RemoveAll(short))
		}
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, errors.Join(err, UnlistenAt(dir, file))
	}
	l.SetUnlinkOnClose(false) // Unlisten removes it
	return l, nil
}

// Unlisten removes the control socket of a data directory, so that new clients do
// not find it. Open connections stay.
func Unlisten(dir string) error { return UnlistenAt(dir, socketFile) }

// UnlistenAt is Unlisten for another socket.
func UnlistenAt(dir, file string) error {
	name := filepath.Join(dir, file)
	if to, err := os.Readlink(name); err == nil {
		if d := filepath.Dir(to); strings.HasPrefix(filepath.Base(d), shortPrefix) {
			if err := os.RemoveAll(d); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Bounds for clients: the time and size of the head of a request, and the time of
// an unused connection.
const (
	headTime = 5 * time.Second
	headMax  = 16 << 10
	idleTime = 2 * time.Minute
)

// NewHTTPServer is the HTTP server of an API. Requests that wait end with ctx.
func NewHTTPServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headMax,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

// connKey is the key of a request's connection in its context. The standard
// library offers no other way to reach the connection.
type connKey struct{}
