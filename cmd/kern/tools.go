package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

func toolsCommand(t *cli.Terminal) *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List system calls, and the tools of an agent file",
		Long: `List the system calls. With -f also list the tools of an agent file: schema, effect
on the world, limits.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := listing{Calls: systemCalls(), Tools: []abi.ToolSpec{}}
			if file != "" {
				s, err := config.ReadAgent(file)
				if err == nil {
					err = config.Prepare(&s)
				}
				if err != nil {
					return asUsage(err)
				}
				l.Tools = append(l.Tools, s.Program.Tools...)
				for i, c := range l.Calls {
					l.Calls[i].Granted = slices.Contains(s.Program.Grants(), c.Name)
				}
			}
			if asJSON {
				return t.JSON(l)
			}
			return listTools(t, l, file)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the agent `file`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	return cmd
}

type listing struct {
	Calls []systemCall   `json:"system_calls"`
	Tools []abi.ToolSpec `json:"tools"`
}

// A systemCall is a row of the system call table.
type systemCall struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Effect      abi.Effect      `json:"effect"` // a tool declares its own
	Schema      json.RawMessage `json:"schema"`
	ForModel    bool            `json:"for_model"` // an agent file can offer it to the model, under tools without a command
	Granted     bool            `json:"granted"`   // the agent file grants it
}

// systemCalls reads the system call table. The plan of a row has the effect class,
// also if the row could not run.
func systemCalls() []systemCall {
	rows := syscalls.Table(&syscalls.World{Journal: syscalls.Journal{Bytes: func(abi.Data) ([]byte, error) { return []byte("{}"), nil }}})
	var all []systemCall
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		pl, _ := r.Plan(kernel.View{Spawn: &abi.Spawn{}}, abi.Call{Row: name})
		c := systemCall{Name: name, Description: r.Doc, Effect: pl.Effect, ForModel: slices.Contains(abi.ModelRows(), name)}
		if r.Schema != nil {
			c.Schema = r.Schema.Raw()
		}
		if c.Effect == "" {
			c.Effect = abi.Pure
		}
		all = append(all, c)
	}
	return all
}

func listTools(t *cli.Terminal, l listing, file string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", t.Paint(cli.Bold, "system calls"))
	for _, c := range l.Calls {
		notes := []string{string(c.Effect)}
		if c.Name == "tool" {
			notes = []string{"effect as the tool declares"}
		}
		if c.ForModel {
			notes = append(notes, "can be offered to a model")
		}
		if c.Granted {
			notes = append(notes, "granted")
		}
		fmt.Fprintf(&b, "  %-6s %s\n         %s\n         %s\n", c.Name, c.Description, strings.Join(notes, "; "), oneLine(c.Schema))
	}
	if file != "" {
		fmt.Fprintf(&b, "%s\n", t.Paint(cli.Bold, "tools of "+cli.Clean(file)))
	}
	for _, t := range l.Tools {
		notes := []string{string(t.Effect), "timeout " + t.Timeout.String(), cli.Plural(int64(t.Attempts), "attempt"), "$" + abi.FormatMoney(t.Cost) + " a call"}
		if t.Approval {
			notes = append(notes, "every call waits for approval")
		}
		fmt.Fprintf(&b, "  %s  %s\n         %s\n         %s\n", t.Name, cli.Clean(t.Description), strings.Join(notes, "; "), cli.Clean(strings.Join(t.Command, " ")))
		if len(t.Schema) > 0 {
			fmt.Fprintf(&b, "         arguments %s\n", oneLine(t.Schema))
		}
		if len(t.Result) > 0 {
			fmt.Fprintf(&b, "         result %s\n", oneLine(t.Result))
		}
	}
	return t.Print("%s", b.String())
}

// oneLine formats a schema in one line.
func oneLine(schema json.RawMessage) string {
	return cli.Clean(strings.Join(strings.Fields(string(schema)), " "))
}
