package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

// A GatewayServer serves the gateway on a TCP port of this machine, and on a
// socket of the data directory for programs that have no network.
type GatewayServer struct {
	gateway *gateway.Gateway
	kernel  *Kernel
	HTTP    *http.Server
	Moved   string // why the address is not the remembered one; empty: it is
	socket  string
	open    []net.Listener
}

// OpenGateway listens at the address of the settings and on a socket in dir.
func OpenGateway(ctx context.Context, k *Kernel, dir string, s config.Gateway) (*GatewayServer, error) {
	g := &GatewayServer{gateway: k.Gateway, kernel: k}
	g.HTTP = g.gateway.Server(ctx)
	living, _ := k.Processes.Recent(0)
	keyed := slices.ContainsFunc(living, func(pid abi.Pid) bool {
		i, err := k.Processes.Info(pid)
		return err == nil && i.Exit == nil && k.Gateway.Keyed(&i)
	})
	tcp, lost, err := gateway.Address{Dir: dir, Listen: s.Listen, Cert: s.TLSCert, Key: s.TLSKey, Keyed: keyed}.Open()
	var e *abi.Error
	if errors.As(err, &e) {
		return nil, e
	}
	if lost != "" && err == nil {
		g.Moved = fmt.Sprintf("the gateway moved from %s to %s, because another program listens at the old address", lost, tcp.Addr())
	}
	if err != nil {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: "the gateway cannot listen: " + err.Error(), Hint: "check gateway in kern.yaml: the address under listen, and the files under tls_cert and tls_key"}
	}
	g.gateway.Found(tcp, s.TLSCert != "")
	g.open = append(g.open, tcp)
	l, err := api.ListenAt(dir, gateway.SocketFile)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.open, g.socket = append(g.open, l), api.SocketAt(dir, gateway.SocketFile)
	return g, nil
}

// Serve starts to serve in the background, and returns at once.
func (g *GatewayServer) Serve() {
	for _, l := range g.open {
		go func() { _ = g.HTTP.Serve(l) }() // ends when the server shuts down
	}
}

// Close closes the listeners.
func (g *GatewayServer) Close() (err error) {
	for _, l := range g.open {
		err = errors.Join(err, l.Close())
	}
	return err
}

// New issues a key.
func (g *GatewayServer) New(ctx context.Context, k api.Key) (api.KeyInfo, error) {
	i, err := g.gateway.Issue(ctx, gateway.Key(k))
	return api.KeyInfo{Pid: i.Pid, Key: i.Key, OpenAI: i.OpenAI, Anthropic: i.Anthropic, InPath: i.InPath, Socket: g.socket, Ways: i.Ways}, err
}

// End ends the process of a key.
func (g *GatewayServer) End(ctx context.Context, pid abi.Pid, e api.KeyEnd) error {
	return g.gateway.End(ctx, pid, syscalls.ExitArgs(e))
}

// Has reports whether a process has a key.
func (g *GatewayServer) Has(i *kernel.Info) bool { return g.gateway.Keyed(i) }

// Where returns the address of the gateway.
func (g *GatewayServer) Where() api.GatewayAddress {
	return api.GatewayAddress{OpenAI: g.gateway.Base() + "/v1", Anthropic: g.gateway.Base(), Socket: g.socket}
}

// StoredRequest builds the request of a call again, from the journal.
func (g *GatewayServer) StoredRequest(pid abi.Pid, call uint64) ([]byte, error) {
	var found *abi.Intent
	err := g.kernel.Records(context.Background(), pid, 0, false, func(r *abi.Record) error {
		if r.Call == call && r.Intent != nil {
			found = r.Intent
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var a syscalls.ModelArgs
	if found == nil || json.Unmarshal(found.Args.Bytes, &a) != nil || a.Relay == nil {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("call %d of process %d has no stored request, because it did not come with a key", call, pid)}
	}
	return gateway.Stored(a.Relay.Format, found.Parts, func(h abi.Hash) ([]byte, error) { return g.kernel.Bytes(abi.Data{Hash: h}) })
}

// Hold keeps a process alive that ends when nobody holds it. It passes the kernel's
// orders for the process to tell.
func (g *GatewayServer) Hold(ctx context.Context, pid abi.Pid, tell func(kernel.Orders) error) error {
	return g.gateway.Hold(ctx, pid, tell)
}
