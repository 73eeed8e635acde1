// Package manual holds the help topics that belong to no command: configuration
// files, headers and error codes.
package manual

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/kern-run/kern/abi"
)

// A Page is shown by kern help NAME. Its indented lines are never wrapped.
type Page struct{ Name, Short, Text string }

// In config and agent the indented lines are an example with every key. Tests
// read it as the program does.
var (
	//go:embed config.txt
	config string
	//go:embed agent.txt
	agent string
	//go:embed keys.txt
	keys string
	//go:embed exits.txt
	exits string

	// Licences are the licences of everything in the binary; tools/licences writes them.
	//go:embed licences.txt
	Licences string
)

// Pages are all help topics.
func Pages() []Page {
	return []Page{
		{"config", "kern.yaml: providers, prices, limits", config},
		{"agent", "Agent files: the model, tools, limits", agent},
		{"keys", "Headers for programs that use a key", keys},
		{"codes", "Error codes and exit codes", codes()},
	}
}

// codes lists the error codes and the exit codes.
func codes() string {
	var b strings.Builder
	b.WriteString("Every refused or failed call has one of these codes, in results, in the journal\nand in the control API. A code is never renamed.\n\n")
	for _, c := range abi.Codes {
		fmt.Fprintf(&b, "  %-21s  %s\n", c.Code, c.Meaning)
	}
	return b.String() + "\n" + exits
}

// Example is the example file in a page: its indented lines.
func (p Page) Example() string {
	var b strings.Builder
	for line := range strings.Lines(p.Text) {
		if strings.HasPrefix(line, "  ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
