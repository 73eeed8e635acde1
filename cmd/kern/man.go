package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/cli"
)

func manCommand(t *cli.Terminal) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the help of every command as manual pages",
		Long: `Write the help of every command and topic as manual pages into a directory, such as
~/.local/share/man/man1. Then man kern-run shows what kern run --help prints.`,
		Args: exactly(1, "a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return cli.Usage("name a directory that can be written", "%v", err)
			}
			written := 0
			var write func(c *cobra.Command) error
			write = func(c *cobra.Command) error {
				name := strings.ReplaceAll(c.CommandPath(), " ", "-")
				c.InitDefaultHelpFlag()
				if err := os.WriteFile(filepath.Join(args[0], name+".1"), []byte(manPage(name, c)), 0o644); err != nil {
					return err
				}
				written++
				for _, below := range c.Commands() {
					if below.Hidden {
						continue
					}
					if err := write(below); err != nil {
						return err
					}
				}
				return nil
			}
			if err := write(cmd.Root()); err != nil {
				return err
			}
			t.Note("kern: wrote %s to %s", cli.Plural(int64(written), "page"), args[0])
			return nil
		},
	}
}

// manPage formats the help of a command for man. The text is not filled again,
// because its indented lines are examples.
func manPage(name string, c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"kern %s\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), version, roff(name), roff(c.Short))
	section := func(title, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", title, roff(text))
		}
	}
	section("DESCRIPTION", c.Long)
	if !c.IsAdditionalHelpTopicCommand() {
		section("USAGE", usageOf(c, cli.UsualWidth))
	}
	return b.String()
}

// roff escapes what the formatter of man would obey.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
