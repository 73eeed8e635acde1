package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern"
	"github.com/kern-run/kern/internal/server"
	"github.com/kern-run/kern/internal/sys"
)

func doctorCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can enforce, and print the effective configuration",
		Long: `Say what this host can enforce, and print the effective configuration. Keys are
not printed, only where they come from and whether they are there. It starts no
daemon.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := examine(a, cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = a.json(x)
			} else {
				err = printDoctor(a, x)
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
	return cmd
}

// An examination is what doctor finds.
type examination struct {
	Version  string        `json:"version"`
	Host     string        `json:"host"`
	Data     string        `json:"data"`
	Config   string        `json:"config"`
	Daemon   *server.About `json:"daemon"` // null: none runs
	Checks   []check       `json:"checks"`
	Limits   []string      `json:"limits"` // what can be limited here
	Settings any           `json:"settings"`
}

// A check is something that this host must be able to do.
type check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Note string `json:"note"`
}

func examine(a *app, ctx context.Context) (x examination, err error) {
	x = examination{Version: version, Host: host(), Limits: []string{}}
	for _, u := range sys.Units() {
		x.Limits = append(x.Limits, u.String())
	}
	c, dir, err := a.running(ctx)
	if dir == "" {
		return x, err
	}
	x.Data = dir
	if err == nil {
		defer c.Close()
		about, err := c.About(ctx)
		if err != nil {
			return x, err
		}
		x.Daemon = &about
	}
	s, file, err := a.settings(dir)
	x.Config = file
	if err != nil {
		x.Checks = append(x.Checks, check{"configuration", false, err.Error()})
	} else {
		note := file
		if s.File == "" {
			note = "none; everything as it is by default"
		}
		x.Checks = append(x.Checks, check{"configuration", true, note})
		x.Settings = describe(s, a.getenv)
	}
	x.Checks = append(x.Checks, writable(dir))
	x.Checks = append(x.Checks, hostChecks()...)
	x.Checks = append(x.Checks, sandboxChecks(a, ctx)...)
	return x, nil
}

// writable looks whether the data directory can be used, and makes nothing.
func writable(dir string) check {
	c := check{Name: "data directory", Note: dir}
	for d := dir; ; d = filepath.Dir(d) {
		i, err := os.Stat(d)
		switch {
		case os.IsNotExist(err) && d != filepath.Dir(d):
			c.Note = dir + " (not made yet)"
			continue
		case err != nil:
			c.Note = err.Error()
		case !i.IsDir():
			c.Note = d + " is not a directory"
		case d == dir && i.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
			c.OK = true
			c.Note = fmt.Sprintf("%s (mode %o: others may look into it; the journal's files are private all the same)", dir, i.Mode().Perm())
		default:
			c.OK = canWrite(d)
			if !c.OK {
				c.Note = d + " cannot be written"
			}
		}
		return c
	}
}

// settingsView is the effective configuration, without keys.
type settingsView struct {
	File      string                  `json:"file"`
	Yield     string                  `json:"yield"`
	Prices    string                  `json:"prices"`
	Providers map[string]providerView `json:"providers"`
}

type providerView struct {
	BaseURL     string `json:"base_url"`
	Key         string `json:"key"`         // where it comes from, and whether it is there
	Concurrency int    `json:"concurrency"` // calls at one time; 0: as many as it bears

	Limits kern.Traffic `json:"limits"`
}

// describe says what settings come to, together with the environment.
func describe(s kern.Settings, getenv func(string) string) settingsView {
	v := settingsView{File: s.File, Yield: s.Yield, Prices: s.PriceFile, Providers: make(map[string]providerView)}
	if v.Yield == "" {
		v.Yield = "ask"
	}
	if v.Prices == "" {
		v.Prices = "built in"
	}
	envs := map[string]struct{ base, key, usual string }{
		"openai":    {"OPENAI_BASE_URL", "OPENAI_API_KEY", "https://api.openai.com/v1"},
		"anthropic": {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "https://api.anthropic.com"},
	}
	for _, name := range append(sortedKeys(s.Providers), sortedKeys(envs)...) {
		env := envs[name]
		p := s.Providers[name]
		q := providerView{BaseURL: p.BaseURL, Concurrency: s.Traffic[name].Concurrency, Limits: s.Traffic[name]}
		if q.BaseURL == "" {
			if q.BaseURL = getenv(env.base); q.BaseURL == "" {
				q.BaseURL = env.usual
			}
		}
		keyEnv := p.KeyEnv
		if keyEnv == "" {
			keyEnv = env.key
		}
		_, err := os.Stat(p.KeyFile)
		switch {
		case p.KeyFile != "" && err != nil:
			q.Key = "not there: the file " + p.KeyFile + " cannot be read"
		case p.KeyFile != "":
			q.Key = "from the file " + p.KeyFile
		case getenv(keyEnv) != "":
			q.Key = "from the variable " + keyEnv
		case keyEnv == "":
			q.Key = "none"
		default:
			q.Key = "not there: the variable " + keyEnv + " is not set"
		}
		v.Providers[name] = q
	}
	return v
}

// grants is what a provider is said to grant.
func grants(l kern.TrafficLimits) string {
	var all []string
	for _, u := range []struct {
		n    int64
		what string
	}{{l.Requests, "requests"}, {l.Tokens, "tokens"}, {l.Input, "input tokens"}, {l.Output, "output tokens"}} {
		if u.n > 0 {
			all = append(all, fmt.Sprintf("%d %s a minute", u.n, u.what))
		}
	}
	if l.Concurrency > 0 {
		all = append(all, fmt.Sprintf("at most %d calls at a time", l.Concurrency))
	}
	if all == nil {
		return "limits as it tells them"
	}
	return strings.Join(all, ", ")
}

func printDoctor(a *app, x examination) error {
	rows := [][]string{{"kern", x.Version}, {"host", x.Host}, {"data", x.Data}, {"config", x.Config}}
	daemon := "none runs; any command that needs one starts it"
	if d := x.Daemon; d != nil {
		daemon = fmt.Sprintf("version %s, process %d, since %s, at %s", d.Version, d.Pid, d.Started.Local().Format("2006-01-02 15:04:05"), d.Socket)
	}
	rows = append(rows, []string{"daemon", daemon})
	for _, c := range x.Checks {
		mark := a.paint(a.outTTY, green, "ok")
		if !c.OK {
			mark = a.paint(a.outTTY, red, "NO")
		}
		rows = append(rows, []string{c.Name, mark + "  " + clean(c.Note)})
	}
	rows = append(rows, []string{"limits", fmt.Sprint(x.Limits)})
	if v, ok := x.Settings.(settingsView); ok {
		rows = append(rows, []string{"yield", v.Yield}, []string{"prices", v.Prices})
		for _, name := range sortedKeys(v.Providers) {
			p := v.Providers[name]
			rows = append(rows, []string{name, fmt.Sprintf("%s, key %s, %s", clean(p.BaseURL), clean(p.Key), grants(p.Limits.Limits))})
			for _, m := range sortedKeys(p.Limits.Models) {
				rows = append(rows, []string{"  " + clean(m), grants(p.Limits.Models[m])})
			}
		}
	}
	return table(a.stdout, rows)
}
