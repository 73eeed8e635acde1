package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

// A gatewayServer serves the gateway on a TCP port of this machine, and on a
// socket of the data directory for programs that have no network.
type gatewayServer struct {
	*gateway.Gateway
	kernel *host.Kernel
	http   *http.Server
	socket string
	open   []net.Listener
}

func openGateway(ctx context.Context, k *host.Kernel, dir string, s config.Gateway) (*gatewayServer, error) {
	g := &gatewayServer{Gateway: k.Gateway, kernel: k}
	g.http = g.Server(ctx)
	tcp, err := gateway.Address{Dir: dir, Listen: s.Listen, Cert: s.TLSCert, Key: s.TLSKey}.Open()
	if err != nil {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: "the gateway cannot listen: " + err.Error(), Hint: "check gateway in kern.yaml: the address under listen, and the files under tls_cert and tls_key"}
	}
	g.Found(tcp, s.TLSCert != "")
	g.open = append(g.open, tcp)
	l, err := api.ListenAt(dir, gateway.SocketFile)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	g.open, g.socket = append(g.open, l), api.SocketAt(dir, gateway.SocketFile)
	return g, nil
}

func (g *gatewayServer) serve() {
	for _, l := range g.open {
		go func() { _ = g.http.Serve(l) }() // ends when the server shuts down
	}
}

func (g *gatewayServer) close() (err error) {
	for _, l := range g.open {
		err = errors.Join(err, l.Close())
	}
	return err
}

// New issues a key, as [api.Keys] has it. End, Has, Hold and Where are its
// other methods.
func (g *gatewayServer) New(ctx context.Context, k api.Key) (api.KeyInfo, error) {
	i, err := g.Issue(ctx, gateway.Key(k))
	return api.KeyInfo{Pid: i.Pid, Key: i.Key, OpenAI: i.OpenAI, Anthropic: i.Anthropic, InPath: i.InPath, Socket: g.socket, Ways: i.Ways}, err
}

func (g *gatewayServer) End(ctx context.Context, pid abi.Pid, e api.KeyEnd) error {
	return g.Gateway.End(ctx, pid, syscalls.ExitArgs(e))
}

func (g *gatewayServer) Has(i *kernel.Info) bool { return g.Keyed(i) }

func (g *gatewayServer) Where() api.GatewayAddress {
	return api.GatewayAddress{OpenAI: g.Base() + "/v1", Anthropic: g.Base(), Socket: g.socket}
}

// storedRequest puts the request of a call together from the journal.
func (g *gatewayServer) storedRequest(pid abi.Pid, call uint64) ([]byte, error) {
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
	return gateway.Stored(a.Relay.Face, found.Parts, func(h abi.Hash) ([]byte, error) { return g.kernel.Bytes(abi.Data{Hash: h}) })
}
