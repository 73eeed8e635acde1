package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/kern-run/kern/abi"
)

// A Gateway is measured beside Kern.
type Gateway struct {
	Name    string
	URL     string // base URL; empty: Kern, which a benchmark starts itself
	Model   string // the name of the model there
	command string // prints a fresh key that may spend $CAP dollars
}

// ParseGateways reads gateways from the command line. Without arguments it returns
// Kern alone.
func ParseGateways(args []string) (all []Gateway, err error) {
	if len(args) == 0 {
		args = []string{"kern"}
	}
	for _, a := range args {
		g, err := parseGateway(a)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

func parseGateway(s string) (Gateway, error) {
	if s == "kern" {
		return Gateway{Name: "kern", Model: "bench"}, nil
	}
	f := strings.SplitN(s, " ", 4)
	if len(f) < 4 || !strings.HasPrefix(f[1], "http") {
		return Gateway{}, fmt.Errorf("%q; expected kern, or a name, a base URL, a model and a command that prints a key, with spaces between", s)
	}
	return Gateway{f[0], f[1], f[2], f[3]}, nil
}

// NewKey runs the command that makes a fresh key with a limit on money.
func (g *Gateway) NewKey(limit int64) (string, error) {
	c := exec.Command("sh", "-c", g.command)
	c.Env = append(os.Environ(), "CAP="+abi.FormatMoney(limit))
	c.Stderr = os.Stderr
	out, err := c.Output()
	key := string(bytes.TrimSpace(out))
	if err != nil || key == "" || strings.ContainsAny(key, " \n") {
		return "", fmt.Errorf("%s: %q printed %q (%v); expected one key", g.Name, g.command, out, err)
	}
	return key, nil
}
