// Package manual holds what kern help tells that is of no command: the files
// that people write, and the codes of errors.
package manual

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/kern-run/kern/abi"
)

// A Page is told by kern help NAME. Its indented lines are shown as they are.
type Page struct{ Name, Short, Text string }

// In each of these files the indented lines are an example that has every key
// there is; tests read it as the program does.
var (
	//go:embed config.txt
	config string
	//go:embed agent.txt
	agent string
	//go:embed keys.txt
	keys string
	//go:embed exits.txt
	exits string
)

// Pages are all of them.
func Pages() []Page {
	return []Page{
		{"config", "What kern.yaml may hold: providers, prices, limits", config},
		{"agent", "What an agent file may hold: the model, tools, limits", agent},
		{"keys", "What a program with a key may ask, and is told, by headers", keys},
		{"codes", "The codes of errors, and the exit codes", codes()},
	}
}

// codes lists the codes of errors.
func codes() string {
	var b strings.Builder
	b.WriteString("The codes of errors, as refused and failed calls, results and the control API\nbear them. They are never renamed.\n\n")
	for _, c := range abi.Codes {
		fmt.Fprintf(&b, "  %-21s  %s\n", c.Code, c.Meaning)
	}
	return b.String() + "\n" + exits
}

// Example is the file that a page shows: its indented lines.
func (p Page) Example() string {
	var b strings.Builder
	for line := range strings.Lines(p.Text) {
		if strings.HasPrefix(line, "  ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
