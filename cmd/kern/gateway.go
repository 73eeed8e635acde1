package main

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

// A gate is the daemon's gateway: on a port of this machine, and on a socket of
// the data directory for programs that have no network.
type gate struct {
	*gateway.Gateway
	kernel *host.Kernel
	http   *http.Server
	socket string
	open   []net.Listener
}

func openGate(k *host.Kernel, dir string, s config.Gateway, ctx context.Context) (*gate, error) {
	g := &gate{Gateway: k.Gateway, kernel: k}
	g.http = g.Server(ctx)
	tcp, err := gateway.Address{Dir: dir, Listen: s.Listen, Cert: s.TLSCert, Key: s.TLSKey}.Open()
	if err != nil {
		return nil, &abi.Error{Code: abi.InvalidCall, Message: "the gateway cannot listen: " + err.Error(), Hint: "look at gateway in kern.yaml: the address under listen, and the files of tls_cert and tls_key"}
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

func (g *gate) serve() {
	for _, l := range g.open {
		go func() { _ = g.http.Serve(l) }() // it ends with close
	}
}

func (g *gate) close() (err error) {
	for _, l := range g.open {
		err = errors.Join(err, l.Close())
	}
	return err
}

// New, End, Has, Hold and Where are [api.Keys].

func (g *gate) New(ctx context.Context, k api.Key) (api.KeyInfo, error) {
	i, err := g.Issue(ctx, gateway.Key(k))
	return api.KeyInfo{Pid: i.Pid, Key: i.Key, OpenAI: i.OpenAI, Anthropic: i.Anthropic, InPath: i.InPath, Socket: g.socket, Ways: i.Ways}, err
}

func (g *gate) End(ctx context.Context, pid abi.Pid, e api.KeyEnd) error {
	return g.Gateway.End(ctx, pid, syscalls.ExitArgs(e))
}

func (g *gate) Has(i *kernel.Info) bool { return g.Keyed(i) }

func (g *gate) Where() api.Gateway {
	return api.Gateway{OpenAI: g.Base() + "/v1", Anthropic: g.Base(), Socket: g.socket}
}

// request is what a call asked, put together from the journal.
func (g *gate) request(pid abi.Pid, call uint64) ([]byte, error) {
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
		return nil, &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("call %d of process %d is no request that came with a key", call, pid)}
	}
	return gateway.Stored(a.Relay.Face, found.Parts, func(h abi.Hash) ([]byte, error) { return g.kernel.Bytes(abi.Data{Hash: h}) })
}
