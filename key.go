package kern

import (
	"context"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// KeyOptions describe the process behind a new key.
type KeyOptions struct {
	Name     string
	Limits   Limits
	Account  string // the named account that is charged; empty: none
	Priority int    // as of an [Agent]
	Watchdog abi.Watchdog
	Parent   abi.Pid // a process with a key, whose child the new one is; 0: none
}

// A Key lets a program use models through the gateway. Each key is a process: its
// limits bind every request, and its journal has them all.
type Key struct {
	Pid       abi.Pid
	Key       string // shown this once: only its hash is kept
	OpenAI    string // the base URL for clients of OpenAI
	Anthropic string // the base URL for clients of Anthropic
}

// NewKey makes a process and its key. An embedded kernel needs Config.Gateway.
func (k *Kernel) NewKey(ctx context.Context, o KeyOptions) (Key, error) {
	if !k.gateway {
		return Key{}, &abi.Error{Code: abi.InvalidCall, Message: "this kernel has no gateway, so a key would open nothing", Hint: "set Config.Gateway to an address such as 127.0.0.1:8100"}
	}
	l, err := o.Limits.abi()
	if err != nil {
		return Key{}, err
	}
	i, err := k.client.Keys.New(ctx, api.Key{Name: o.Name, Limits: l, Account: o.Account, Priority: recordedPriority(o.Priority), Watchdog: o.Watchdog, Parent: o.Parent})
	return Key{Pid: i.Pid, Key: i.Key, OpenAI: i.OpenAI, Anthropic: i.Anthropic}, err
}
