package config

import (
	"fmt"
	"strings"
)

// SandboxNames lists the sandboxes of Kern, the default first.
var SandboxNames = []string{"wasm", "jail"}

// SandboxName returns the sandbox that a person means. The name may be a common
// name of another system; an empty name is the default.
func SandboxName(name string) (string, error) {
	switch name {
	case "", "wasm", "monty":
		return "wasm", nil
	case "jail":
		return "jail", nil
	case "vm", "microsandbox", "gvisor":
		return "", fmt.Errorf("the sandbox %q is not there yet; expected %s", name, strings.Join(SandboxNames, " or "))
	}
	return "", fmt.Errorf("there is no sandbox %q; expected %s", name, strings.Join(SandboxNames, " or "))
}
