package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func keyCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Manage keys: programs use models with them, under limits",
		Long: `Manage keys, which let programs use models under limits. A key is a process: its
limits bind every request that is made with the key, its journal records them, and
the key stops working when the process ends. Programs written for OpenAI or
Anthropic use the key unchanged, with the base URL that kern key new prints. All
commands for processes work on keys: ps, log, show, limit, stop, cont, kill.`,
		Args: needSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Usage("kern key --help lists the commands", "expected new, list, show, narrow or revoke")
		},
	}
	cmd.AddCommand(keyNew(t, d), keyList(t, d), keyShow(t, d), keyNarrow(t, d), keyRevoke(t, d))
	return cmd
}

func keyNew(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	k := api.Key{Priority: abi.DefaultPriority}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "new [--money 5] [--wall 1h] [--name crew] ...",
		Short: "Make a key, and print it with the base URLs",
		Long: `Make a key, and print it with the base URLs. This is the only time that the key is
printed, because Kern keeps only its hash. In a program that kern exec runs, the
new key is a child of that program's process, unless --parent names another.`,
		Example: `  kern key new --money 5 --wall 1h --name crew
  kern key new --parent 7 --steps 20`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), d, func(c *api.Client) (err error) {
				d.NoteOutdated(cmd.Context(), c, "")
				if k.Parent == 0 {
					k.Parent, err = parentOf(cmd.Context(), t.Getenv, c)
				}
				if err != nil {
					return err
				}
				i, err := c.Keys.New(cmd.Context(), k)
				switch {
				case err != nil:
					return err
				case asJSON:
					return t.JSON(i)
				}
				return showKey(t, i)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&k.Name, "name", "", "the name of the process")
	f.StringVar(&k.Account, "account", "", "charge this named `account`")
	f.IntVar(&k.Priority, "priority", abi.DefaultPriority, "priority, from 0 (most urgent) to 99")
	f.StringVar(&k.Watchdog.Profile, "watchdog", "", "strict (the default, because warnings cannot reach the model), smart or off")
	f.IntVar(&k.Watchdog.Repeat, "repeat", 0, "how many equal tool calls with equal results are a loop; 0: three")
	f.Int64Var((*int64)(&k.Parent), "parent", 0, "the `pid` of the key that becomes the parent")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	addLimits(f, &k.Limits, abi.SettableUnits())
	return cmd
}

// showKey prints a new key, and how to use it.
func showKey(t *cli.Terminal, i api.KeyInfo) error {
	for _, format := range []string{"openai", "anthropic"} {
		if !i.Ways[format].Own {
			t.Note("kern: no key for %s is configured; a program with its own key can use the base URL that contains the Kern key", format)
		}
	}
	return t.Facts([][]string{{"process", strconv.FormatInt(int64(i.Pid), 10)}, {"key", i.Key}, {"OPENAI_BASE_URL", i.OpenAI},
		{"ANTHROPIC_BASE_URL", i.Anthropic}, {"base URL with key", i.InPath}, {"socket", i.Socket}})
}

// withKey runs f with a client and the process of a key, found by pid or name.
func withKey(ctx context.Context, t *cli.Terminal, d *daemon.Directory, name string, f func(c *api.Client, p *api.Process) error) error {
	return askDaemon(ctx, t, d, func(c *api.Client) error {
		l, err := c.Keys.List(ctx, false)
		if err != nil {
			return err
		}
		p, err := findKey(l.Keys, name)
		if pid, bad := parsePid(name); err != nil && bad == nil { // a key that has ended is found only by pid
			p, err = c.Keys.Show(ctx, pid)
		}
		if err != nil {
			return err
		}
		return f(c, &p)
	})
}

func findKey(keys []api.Process, name string) (none api.Process, _ error) {
	var found []api.Process
	for _, p := range keys {
		switch {
		case strconv.FormatInt(int64(p.Pid), 10) == name:
			return p, nil
		case p.Name == name && p.State != abi.Exited:
			found = append(found, p)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return none, cli.Usage("kern key list lists them", "there is no key %q; expected the pid of a key, or the name of a living one", name)
	}
	return none, cli.Usage("use the pid; kern key list shows it", "%d keys are named %q", len(found), name)
}

func keyList(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys and the addresses of the gateway",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return copyOnce(cmd.Context(), t, d, func(c *api.Client, w io.Writer) error { return c.Keys.CopyList(cmd.Context(), w) })
			}
			return report(cmd.Context(), t, d, false, func(c *api.Client) (api.KeyList, error) { return c.Keys.List(cmd.Context(), all) },
				func(t *cli.Terminal, l api.KeyList) error { return listKeys(t, l, all) })
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include keys that were revoked or have ended")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func listKeys(t *cli.Terminal, l api.KeyList, all bool) error {
	t.Note("kern: gateway: %s (OpenAI format), %s (Anthropic format)", l.Gateway.OpenAI, l.Gateway.Anthropic)
	var rows [][]string
	for _, p := range l.Keys {
		if p.State == abi.Exited && !all {
			continue
		}
		rows = append(rows, []string{strconv.FormatInt(int64(p.Pid), 10), cli.Clean(p.Name), stateOf(&p), strconv.FormatInt(p.Usage.ModelCalls, 10),
			strconv.FormatInt(p.Usage.Tokens, 10), "$" + p.Usage.Money, cli.LimitsLine(p.Limits), cli.Age(time.Duration(p.AgeMS) * time.Millisecond)})
	}
	if len(rows) == 0 {
		t.Note("kern: no keys; make one with: kern key new --money 5")
		return nil
	}
	return t.Table([]cli.Column{{Head: "PID"}, {Head: "NAME", Least: 8}, {Head: "STATE", Least: 12}, {Head: "CALLS", Spare: 2}, {Head: "TOKENS", Spare: 1}, {Head: "MONEY", Spare: 5}, {Head: "LIMITS", Least: 16, Spare: 4}, {Head: "AGE", Spare: 3}}, rows)
}

func keyShow(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show what a key has used, and its limits",
		Args:  exactly(1, "the pid or name of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withKey(cmd.Context(), t, d, args[0], func(_ *api.Client, p *api.Process) error {
				if asJSON {
					return t.JSON(p)
				}
				rows := [][]string{{"process", strconv.FormatInt(int64(p.Pid), 10)}, {"name", cli.Clean(p.Name)}, {"state", stateOf(p)},
					{"limits", cli.LimitsLine(p.Limits)}, {"used", usedLine(p.Usage)}}
				if p.Account != "" {
					rows = append(rows, []string{"account", cli.Clean(p.Account)})
				}
				return t.Facts(rows)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func keyNarrow(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var l abi.Limits
	var asJSON bool
	cmd := &cobra.Command{
		Use: "narrow KEY --money 1 ...", SuggestFor: []string{"limit"},
		Short: "Lower limits of a key",
		Long:  `Lower limits of a key. narrow never raises a limit; kern limit PID does.`,
		Args:  exactly(1, "the pid or name of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.IsZero() {
				return cli.Usage("for example: kern key narrow crew --money 1", "expected a limit to lower")
			}
			return withKey(cmd.Context(), t, d, args[0], func(c *api.Client, p *api.Process) error {
				now, err := c.Change(cmd.Context(), p.Pid, api.Change{Limits: l, Narrow: true, By: t.User()})
				var e *abi.Error
				if errors.As(err, &e) && e.Code == abi.InvalidArguments {
					return cli.Usage(e.Hint, "%s", e.Message)
				}
				if err != nil {
					return err
				}
				if asJSON {
					return t.JSON(now)
				}
				return t.Print("key %d: limits %s\n", p.Pid, cli.LimitsLine(now.Limits))
			})
		},
	}
	addLimits(cmd.Flags(), &l, abi.SettableUnits())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the process as a JSON object")
	return cmd
}

func keyRevoke(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "End a key at once, and everything that runs with it",
		Args:  exactly(1, "the pid or name of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withKey(cmd.Context(), t, d, args[0], func(c *api.Client, p *api.Process) error {
				err := c.Signal(cmd.Context(), p.Pid, api.Signal{Signal: abi.Kill, By: t.User()})
				if err != nil || !asJSON {
					return err
				}
				now, err := c.Show(cmd.Context(), p.Pid)
				if err != nil {
					return err
				}
				return t.JSON(now)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the process as a JSON object")
	return cmd
}
