package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kern-run/kern/internal/cli"
)

// setHelp makes the help of all commands fit the width of the terminal.
func setHelp(t *cli.Terminal, root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		room := cmp.Or(t.Width(), cli.UsualWidth)
		_ = t.Print("%s", cli.Fill(cmp.Or(cmd.Long, cmd.Short), room))
		if !cmd.IsAdditionalHelpTopicCommand() {
			_ = t.Print("\n%s", usageOf(cmd, room))
		}
	})
	root.SetFlagErrorFunc(explainFlag)
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Explain a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = needSubcommand(about, rest)
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	})
}

// usageOf formats the usage of a command: subcommands, examples and flags.
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
	section("More help (kern help NAME)", list((*cobra.Command).IsAdditionalHelpTopicCommand))
	section("Flags", cmd.LocalFlags().FlagUsagesWrapped(room))
	section("Flags of every command", cmd.InheritedFlags().FlagUsagesWrapped(room))
	return b.String()
}

// needSubcommand is the Args of a command that only groups others.
func needSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help lists the commands"
	if !cmd.HasAvailableSubCommands() {
		hint = cmd.CommandPath() + " --help explains the command"
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := withoutRepeats(cmd.SuggestionsFor(args[0])); len(near) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + strings.Join(near, ", or ") + "?"
	}
	return cli.Usage(hint, "there is no command %q", cmd.CommandPath()+" "+args[0])
}

// withoutRepeats keeps the first of equal names.
func withoutRepeats(names []string) (once []string) {
	for _, n := range names {
		if !slices.Contains(once, n) {
			once = append(once, n)
		}
	}
	return once
}

// explainFlag rewrites an error about a flag: what is wrong, and what it expects.
func explainFlag(cmd *cobra.Command, err error) error {
	var v *pflag.InvalidValueError
	var none *pflag.NotExistError
	switch args := cmd.Flags().Args(); {
	case errors.As(err, &none) && cmd.HasAvailableSubCommands() && len(args) > 0:
		return needSubcommand(cmd, args) // an unknown command has no known flags
	case errors.As(err, &none):
		return suggestFlag(cmd, none)
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
		_, why, _ = strings.Cut(why, ": ") // the message begins with the unit, which the flag names already
	}
	return fmt.Errorf("--%s: %s", flag.Name, why)
}

// suggestFlag names the flags that an unknown flag may mean. A flag that begins
// with a digit was meant as a negative number.
func suggestFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	name := e.GetSpecifiedName()
	if short := e.GetSpecifiedShortnames(); short != "" && strings.Trim(short, "0123456789.") == "" {
		return cli.Usage(cmd.CommandPath()+" --help explains the command", "-%s is not a flag, and no value here is negative", short)
	}
	meant := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra finds similar names of commands, not of flags
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		meant.AddCommand(&cobra.Command{Use: f.Name, SuggestFor: strings.Split(f.Name, "-"), Run: func(*cobra.Command, []string) {}})
	})
	near := meant.SuggestionsFor(name)
	if len(near) == 0 {
		return e
	}
	return cli.Usage("did you mean --"+strings.Join(near, ", or --")+"?", "unknown flag: --%s", name)
}

// exactly and atMost check the number of arguments.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return cli.Usage("see: "+cmd.CommandPath()+" --help", "%s, expected %s", cli.Plural(int64(len(args)), "argument"), what)
		}
		return nil
	}
}

func atLeast(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return cli.Usage("see: "+cmd.CommandPath()+" --help", "%s, expected %s", cli.Plural(int64(len(args)), "argument"), what)
		}
		return nil
	}
}

// noArgs is for a command that takes only flags.
var noArgs = exactly(0, "none")

func atMost(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return cli.Usage("see: "+cmd.CommandPath()+" --help", "%s, expected %s", cli.Plural(int64(len(args)), "argument"), what)
		}
		return nil
	}
}
