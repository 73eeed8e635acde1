package demo

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

//go:embed agents
var agents embed.FS

// installed is where the tests install the SDKs, below the working directory.
const installed = ".tools/clients"

// An unmodified is an agent that knows nothing of Kern.
type unmodified struct {
	what string
	argv []string
	env  string
}

// unmodified finds an agent that this machine can run: with the official SDK,
// or else a plain one.
func (d *demo) unmodified(ctx context.Context) (u unmodified, err error) {
	write := func(name, as string) string {
		b, e := agents.ReadFile("agents/" + name)
		err = errors.Join(err, e, os.WriteFile(filepath.Join(d.dir, as), b, 0o600))
		return filepath.Join(d.dir, as)
	}
	here, err := os.Getwd()
	if err != nil {
		return u, err
	}
	for _, python := range []string{filepath.Join(here, installed, "py/bin/python"), "python3"} {
		if exec.CommandContext(ctx, python, "-c", "import openai").Run() == nil {
			return unmodified{"the official OpenAI SDK for Python", []string{python, write("openai.py", "agent.py")}, "PYTHONDONTWRITEBYTECODE=1"}, err
		}
	}
	modules := "NODE_PATH=" + filepath.Join(here, installed, "node/node_modules")
	node := exec.CommandContext(ctx, "node", "-e", "require('openai')")
	node.Env = append(os.Environ(), modules)
	if node.Run() == nil {
		return unmodified{"the official OpenAI SDK for Node", []string{"node", write("openai.cjs", "agent.cjs")}, modules}, err
	}
	return unmodified{"plain HTTP, for no SDK is installed here (make test installs them)", []string{"go", "run", write("plain.go.txt", "plain.go")}, "GOWORK=off"}, err
}

// stranger runs an agent that was written for a provider, and never asks for
// less, until its money is spent.
func (d *demo) stranger(ctx context.Context) (err error) {
	script, err := model.ParseScript("runaway", []byte("price: {input: 3.00, output: 15.00}\nrepeat: true\nreplies:\n  - {calls: [{tool: search, args: {page: 1}}]}\n  - {calls: [{tool: search, args: {page: 2}}]}\n"))
	if err != nil {
		return err
	}
	m := mockprovider.New(mockprovider.Config{Script: script})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() { err = errors.Join(err, s.Close()); <-served }()
	data := filepath.Join(d.dir, "exec")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := d.file("exec/kern.yaml", fmt.Sprintf("providers:\n  openai: {base_url: \"http://%s/v1\", models: {gpt-6-luna: {input: 3.00, output: 15.00, window: 100000, max_output: 100}}}\n", l.Addr())); err != nil {
		return err
	}
	defer func() {
		_, stopped := d.kern(context.WithoutCancel(ctx), "--data", data, "stop-daemon")
		err = errors.Join(err, stopped)
	}()
	u, err := d.unmodified(ctx)
	if err != nil {
		return err
	}
	return d.governed(ctx, u, m)
}

// governed runs the agent under a limit, and compares the books.
func (d *demo) governed(ctx context.Context, u unmodified, m *mockprovider.Mock) error {
	const limit = "0.02"
	summary := filepath.Join(d.dir, "exec.json")
	d.say("     the agent uses %s", u.what)
	d.say("   $ kern exec --money %s -- %s", limit, strings.Join(append([]string{filepath.Base(u.argv[0])}, shortened(u.argv[1:])...), " "))
	args := append([]string{"exec", "--data", filepath.Join(d.dir, "exec"), "--money", limit, "--watchdog", "off", "--json-summary", summary, "--"}, u.argv...)
	cmd := exec.CommandContext(ctx, d.Self, args...)
	cmd.Env = environ(u.env)
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	b, err := os.ReadFile(summary)
	if err != nil {
		return fmt.Errorf("%w: %s", err, notes.String())
	}
	var r struct{ Process host.Result }
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	spent, err := abi.ParseMoney(r.Process.Usage.Money)
	if err != nil {
		return err
	}
	billed := m.Stats()
	lines := strings.Split(strings.TrimSpace(notes.String()), "\n")
	d.say("     %s", lines[len(lines)-1])
	d.check(cmd.ProcessState.ExitCode() == 124 && r.Process.Code == abi.LimitMoney, "it was stopped by its limit, after %d searches, with exit code %d", bytes.Count(out.Bytes(), []byte("search")), cmd.ProcessState.ExitCode())
	d.check(spent > 0 && spent <= 20_000_000, "$%s of $%s are spent: the next call might have cost more than was left", abi.FormatMoney(spent), limit)
	d.check(spent == billed.Nano, "the provider billed $%s for %d calls, to the last digit what Kern booked", abi.FormatMoney(billed.Nano), billed.OK)
	return nil
}

// shortened are arguments without the directories of files.
func shortened(args []string) (list []string) {
	for _, a := range args {
		list = append(list, filepath.Base(a))
	}
	return list
}
