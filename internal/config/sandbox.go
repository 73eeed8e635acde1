package config

import (
	"fmt"
	"strings"
)

// SandboxNames are the sandboxes there are, the default first.
var SandboxNames = []string{"wasm", "jail"}

// SandboxName is the sandbox that a person means: by its name, by a name from
// elsewhere, or the default.
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
