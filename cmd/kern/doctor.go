package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/daemon"
	"github.com/kern-run/kern/model"
)

func doctorCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var asJSON, models bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this host can enforce, and show the configuration",
		Long: `Check what this host can enforce, and print the effective configuration. Keys are
never printed, only where each comes from and whether it is set. doctor starts no
daemon. It connects to the configured providers, but sends them no request.

With --models it lists the models with a known price instead, in dollars per
million tokens; kern.yaml adds others.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if models {
				return printPrices(t, d, asJSON)
			}
			x, err := examine(cmd.Context(), t, d)
			if err != nil {
				return err
			}
			if asJSON {
				err = t.JSON(x)
			} else {
				err = printDoctor(t, x)
			}
			for _, c := range x.Checks {
				if err == nil && !c.OK {
					err = &exitError{code: exitFailed}
				}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.Flags().BoolVar(&models, "models", false, "list the models with a known price")
	return cmd
}

// printPrices lists the prices of models. Requests past a size have a line of their
// own.
func printPrices(t *cli.Terminal, d *daemon.Directory, asJSON bool) error {
	s, _, err := d.Settings()
	if err != nil {
		return err
	}
	list := s.Priced(time.Now())
	if asJSON {
		return t.JSON(list)
	}
	var rows [][]string
	line := func(name string, p model.Price, window, most int) {
		row := []string{cli.Clean(name)}
		for _, n := range []int64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
			row = append(row, abi.FormatMoney(n))
		}
		rows = append(rows, append(row, strconv.Itoa(window), strconv.Itoa(most)))
	}
	for _, e := range list {
		if e.Beyond == 0 {
			line(e.Model, e.Price, e.Window, e.MaxOutput)
			continue
		}
		line(e.Model, e.Price, e.Beyond, e.MaxOutput)
		line("  longer requests", e.Long, e.Window, e.MaxOutput)
	}
	t.Note("kern: prices in dollars per million tokens; window and maximum in tokens")
	return t.Table([]cli.Column{{Head: "MODEL", Least: 16, End: true}, {Head: "INPUT"}, {Head: "OUTPUT"}, {Head: "CACHE READ", Spare: 4}, {Head: "CACHE WRITE", Spare: 3}, {Head: "WINDOW", Spare: 2}, {Head: "MAX OUTPUT", Spare: 1}}, rows)
}

// An examination is everything that doctor finds.
type examination struct {
	Version  string     `json:"version"`
	Host     string     `json:"host"`
	Data     string     `json:"data"`
	Config   string     `json:"config"`
	Daemon   *api.About `json:"daemon"`           // null if none runs
	Holder   string     `json:"holder,omitempty"` // the pid of another program that has the journal open
	Checks   []check    `json:"checks"`
	Limits   []string   `json:"limits"` // units that can be limited
	Settings any        `json:"settings"`

	Providers map[string]reachability `json:"providers"` // only the configured ones
	Warnings  []string                `json:"warnings,omitempty"`
}

// A check is one ability of this host.
type check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Note string `json:"note"`
}

func examine(ctx context.Context, t *cli.Terminal, d *daemon.Directory) (x examination, err error) {
	x = examination{Version: version, Host: describeHost(), Limits: unitNames(abi.SettableUnits())}
	dir, err := d.Path()
	if err != nil {
		return x, err
	}
	x.Data = dir
	if c, err := d.Dial(ctx); err == nil {
		defer c.Close()
		about, err := c.About(ctx)
		if err != nil {
			return x, err
		}
		x.Daemon = &about
		if old := d.Outdated(ctx, c, ""); old != "" {
			x.Checks = append(x.Checks, check{"daemon's configuration", false, old})
		}
	} else {
		x.Holder = daemon.Holder(dir)
	}
	s, file, err := d.Settings()
	x.Config = file
	if err != nil {
		x.Checks = append(x.Checks, check{"configuration", false, err.Error()})
	} else {
		note := file
		if s.File == "" {
			note = "no kern.yaml; every setting has its default"
		}
		x.Checks = append(x.Checks, check{"configuration", true, note})
		v := s.View(t.Getenv)
		x.Settings, x.Warnings, x.Providers = v, s.Warnings(t.Getenv), connectAll(ctx, v)
	}
	x.Checks = append(x.Checks, checkData(dir))
	x.Checks = append(x.Checks, hostChecks()...)
	x.Checks = append(x.Checks, checkSandboxes(ctx, t, d)...)
	return x, nil
}

// checkData checks that the data directory can be used, and creates nothing.
func checkData(dir string) check {
	c, note := check{Name: "data directory"}, dir
	for d := dir; ; d = filepath.Dir(d) {
		i, err := os.Stat(d)
		switch {
		case os.IsNotExist(err) && d != filepath.Dir(d):
			note = dir + " (does not exist yet)"
			continue
		case err != nil:
			c.Note = err.Error()
		case !i.IsDir():
			c.Note = d + " is not a directory"
		default:
			if c.Note = explainFull(d); c.Note != "" {
				return c
			}
			c.OK, c.Note = true, note
			if d == dir && i.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
				c.Note = fmt.Sprintf("%s (mode %o: other users can list it; the files of the journal are private anyway)", dir, i.Mode().Perm())
			}
		}
		return c
	}
}

func printDoctor(t *cli.Terminal, x examination) error {
	rows := [][]string{{"kern", x.Version}, {"host", x.Host}, {"data", x.Data}, {"config", x.Config}}
	daemon := "not running; the next command that needs it starts it"
	if x.Holder != "" {
		daemon = fmt.Sprintf("not running; a program that embeds Kern holds the directory (process %s), and kern commands wait for its end", x.Holder)
	}
	if d := x.Daemon; d != nil {
		daemon = fmt.Sprintf("version %s, process %d, since %s, at %s", d.Version, d.Pid, d.Started.Local().Format("2006-01-02 15:04:05"), d.Socket)
	}
	rows = append(rows, []string{"daemon", daemon})
	for _, c := range x.Checks {
		mark := t.Paint(cli.Green, "ok")
		if !c.OK {
			mark = t.Paint(cli.Red, "NO")
		}
		rows = append(rows, []string{c.Name, mark + "  " + cli.Clean(c.Note)})
	}
	rows = append(rows, []string{"limits", strings.Join(x.Limits, ", ")})
	if v, ok := x.Settings.(config.SettingsView); ok {
		rows = append(rows, []string{"yield", v.Yield}, []string{"prices", v.Prices}, []string{"gateway", v.Gateway}, []string{"workspaces", cli.Clean(v.Spaces.String())})
		for _, name := range cli.SortedKeys(v.Providers) {
			p := v.Providers[name]
			rows = append(rows, []string{name, fmt.Sprintf("%s, key %s, %s%s", cli.Clean(p.BaseURL), cli.Clean(p.Key), p.Limits.String(), x.Providers[name].suffix(t))})
			for _, header := range cli.SortedKeys(p.Headers) {
				rows = append(rows, []string{"  header " + header, cli.Clean(p.Headers[header])})
			}
			if len(p.Fallback) > 0 {
				rows = append(rows, []string{"  falls back to", cli.Clean(strings.Join(p.Fallback, ", "))})
			}
			if len(p.Free) > 0 {
				rows = append(rows, []string{"  no extra price", cli.Clean(strings.Join(p.Free, ", "))})
			}
			for _, m := range cli.SortedKeys(p.Limits.Models) {
				rows = append(rows, []string{"  " + cli.Clean(m), p.Limits.Models[m].String()})
			}
		}
	}
	for _, w := range x.Warnings {
		rows = append(rows, []string{"warning", cli.Clean(w)})
	}
	return t.Facts(rows)
}
