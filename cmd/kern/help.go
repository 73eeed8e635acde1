package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/internal/cli"
)

// explained has commands explained by what they are for, in lines that fit.
func explained(t *cli.Terminal, root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		room := cmp.Or(t.Width(), cli.UsualWidth)
		_ = t.Print("%s", cli.Fill(cmp.Or(cmd.Long, cmd.Short), room))
		if !cmd.IsAdditionalHelpTopicCommand() {
			_ = t.Print("\n%s", usageOf(cmd, room))
		}
	})
	root.SetFlagErrorFunc(badFlag)
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Explain a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = below(about, rest)
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	})
}

// usageOf is how a command is used.
func usageOf(cmd *cobra.Command, room int) string {
	var b strings.Builder
	section := func(title, text string) {
		if text = strings.TrimRight(text, "\n"); text != "" {
			fmt.Fprintf(&b, "\n%s:\n%s\n", title, text)
		}
	}
	list := func(of func(c *cobra.Command) bool) (text string) {
		for _, c := range cmd.Commands() {
			if of(c) {
				text += cli.Wrap(fmt.Sprintf("  %-*s %s", cmd.Commands()[0].NamePadding(), c.Name(), c.Short), room, 3+c.NamePadding()) + "\n"
			}
		}
		return text
	}
	b.WriteString("Usage:\n")
	if !cmd.HasAvailableSubCommands() {
		b.WriteString(cli.Wrap("  "+cmd.UseLine(), room, 6) + "\n")
	} else {
		fmt.Fprintf(&b, "  %s COMMAND\n", cmd.CommandPath())
	}
	section("Examples", cmd.Example)
	for _, g := range cmd.Groups() {
		section(g.Title, list(func(c *cobra.Command) bool { return c.GroupID == g.ID }))
	}
	section("Commands", list(func(c *cobra.Command) bool { return c.GroupID == "" && c.IsAvailableCommand() }))
	section("To read (kern help NAME)", list((*cobra.Command).IsAdditionalHelpTopicCommand))
	section("Flags", cmd.LocalFlags().FlagUsagesWrapped(room))
	section("Flags of every command", cmd.InheritedFlags().FlagUsagesWrapped(room))
	return b.String()
}

// below is the Args of a command that is nothing without one of those below it.
func below(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help lists the commands"
	if !cmd.HasAvailableSubCommands() {
		hint = cmd.CommandPath() + " --help explains it"
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + strings.Join(near, ", or ") + "?"
	}
	return cli.Usage(hint, "there is no command %q", cmd.CommandPath()+" "+args[0])
}

// badFlag says in our words what is wrong with a flag, and what it expects.
func badFlag(cmd *cobra.Command, err error) error {
	var v *pflag.InvalidValueError
	var none *pflag.NotExistError
	switch args := cmd.Flags().Args(); {
	case errors.As(err, &none) && cmd.HasAvailableSubCommands() && len(args) > 0:
		return below(cmd, args) // nobody knows the flags of a command that is not there
	case errors.As(err, &none):
		return noFlag(cmd, none)
	case !errors.As(err, &v):
		return err
	}
	flag, cause := v.GetFlag(), errors.Unwrap(err)
	switch {
	case flag.Value.Type() == "bool":
		return fmt.Errorf("--%s is %q, expected true or false", flag.Name, v.GetValue())
	case errors.Is(cause, strconv.ErrSyntax), errors.Is(cause, strconv.ErrRange):
		return fmt.Errorf("--%s is %q, expected a whole number", flag.Name, v.GetValue())
	case strings.HasPrefix(cause.Error(), "time: "):
		return fmt.Errorf("--%s is %q, expected a duration such as 30s or 10m", flag.Name, v.GetValue())
	}
	why := cause.Error()
	if _, limit := flag.Value.(flagLimit); limit {
		_, why, _ = strings.Cut(why, ": ") // that it begins with is the flag
	}
	return fmt.Errorf("--%s: %s", flag.Name, why)
}

// noFlag names the flags that may be meant by one that is not there. What
// begins with a digit was to be a number.
func noFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	name := e.GetSpecifiedName()
	if short := e.GetSpecifiedShortnames(); short != "" && strings.Trim(short, "0123456789.") == "" {
		return cli.Usage(cmd.CommandPath()+" --help explains it", "-%s is no flag, and nothing here is less than 0", short)
	}
	meant := &cobra.Command{SuggestionsMinimumDistance: 2} // it knows what is near to a name, of commands
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		meant.AddCommand(&cobra.Command{Use: f.Name, SuggestFor: strings.Split(f.Name, "-"), Run: func(*cobra.Command, []string) {}})
	})
	near := meant.SuggestionsFor(name)
	if len(near) == 0 {
		return e
	}
	return cli.Usage("did you mean --"+strings.Join(near, ", or --")+"?", "unknown flag: --%s", name)
}

// exactly and atMost say what arguments a command expects.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return cli.Usage("see: "+cmd.CommandPath()+" --help", "%s, expected %s", cli.Plural(int64(len(args)), "argument"), what)
		}
		return nil
	}
}

// none is for a command that is told everything by flags.
var none = exactly(0, "none")

func atMost(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return cli.Usage("see: "+cmd.CommandPath()+" --help", "%s, expected %s", cli.Plural(int64(len(args)), "argument"), what)
		}
		return nil
	}
}
