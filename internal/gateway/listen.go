package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
)

// portFile is the file of a data directory that remembers the address of its gateway.
const portFile = "gateway.addr"

// SocketFile is the gateway's socket in a data directory.
const SocketFile = "gateway.sock"

// An Address says where to listen. An empty Listen means loopback, at the port that the
// data directory remembers.
type Address struct {
	Dir       string // the data directory
	Listen    string
	Cert, Key string // files; empty: no TLS
	Keyed     bool   // processes live whose programs know the remembered port
}

// Open opens the address. It takes the remembered port again, so that programs find
// the gateway after a restart. If another program listens there, Open takes another
// port and returns the lost address. If processes with keys live, it fails, because
// their programs would send keys and prompts to that other program.
func (a Address) Open() (l net.Listener, lost string, err error) {
	if a.Listen != "" {
		l, err = a.configured()
		return l, "", err
	}
	name := filepath.Join(a.Dir, portFile)
	if b, err := os.ReadFile(name); err == nil {
		if at, err := netip.ParseAddrPort(strings.TrimSpace(string(b))); err == nil && at.Addr().IsLoopback() {
			if l, err = net.Listen("tcp", at.String()); err == nil {
				return l, "", nil
			}
			lost = at.String()
		}
	}
	if lost != "" && a.Keyed {
		return nil, lost, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("another program listens at %s, where programs with keys of this daemon send their requests", lost),
			Hint: fmt.Sprintf("end that program (ss -ltnp shows it), or delete %s: the gateway then takes another port, and those programs must be started again", name)}
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, lost, err
	}
	if err := os.WriteFile(name, []byte(l.Addr().String()+"\n"), 0o600); err != nil {
		return nil, lost, errors.Join(err, l.Close())
	}
	return l, lost, nil
}

// configured opens the address of the settings.
func (a Address) configured() (net.Listener, error) {
	l, err := net.Listen("tcp", a.Listen)
	if err != nil || a.Cert == "" {
		return l, err
	}
	cert, err := tls.LoadX509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}), nil
}

// Found sets the URL that programs use from the address of l. secure selects https.
func (g *Gateway) Found(l net.Listener, secure bool) {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if ip, perr := netip.ParseAddr(host); err == nil && perr == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	base := scheme + net.JoinHostPort(host, port)
	g.base.Store(&base)
}

// Bounds of a connection.
const (
	headTime = 10 * time.Second // to read the head of a request
	headMax  = 64 << 10         // bytes of that head
	restTime = 2 * time.Minute  // idle between two requests
)

// Server returns the HTTP server of the gateway. Running requests end with ctx.
func (g *Gateway) Server(ctx context.Context) *http.Server {
	bound := connections{most: maxConnections()}
	return &http.Server{
		Handler:           g,
		ConnContext:       bound.accept,
		ConnState:         bound.changed,
		ReadHeaderTimeout: headTime,
		IdleTimeout:       restTime,
		MaxHeaderBytes:    headMax,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

// foreign returns an error for a request that a web page in a browser could send. Such
// a request has the Origin of another site. Or it names a host that is not this
// machine, because a name server made that host point here. The check of the host
// applies only on loopback without TLS. Elsewhere any name may be right, because the
// gateway serves other machines there, with TLS or with the owner's explicit consent.
func foreign(r *http.Request) *abi.Error {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	tcp, ok := at.(*net.TCPAddr)
	if ok && tcp.IP.IsLoopback() && r.TLS == nil && !ours(r.Host) {
		return &abi.Error{Code: abi.BadKey, Message: "this gateway serves its own machine, under the names 127.0.0.1, localhost and [::1]"}
	}
	for _, origin := range r.Header["Origin"] {
		if u, err := url.Parse(origin); err != nil || !ours(u.Host) {
			return &abi.Error{Code: abi.BadKey, Message: "requests of pages from elsewhere are not served"}
		}
	}
	return nil
}

// ours reports whether a host, with or without a port, is a name of this machine.
func ours(host string) bool {
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		host = h
	}
	host = strings.Trim(host, "[]")
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
