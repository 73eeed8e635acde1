package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/internal/mockprovider/load"
)

const crowdSize = 50

// crowdProvider takes 3,000 requests a minute and eight at a time, and bans who
// was refused twenty times.
func crowdProvider() (*mockprovider.Mock, string, func() error, error) {
	spread, err := mockprovider.ParseSpread("60ms±40ms")
	if err != nil {
		return nil, "", nil, err
	}
	m := mockprovider.New(mockprovider.Config{Script: load.Script(2), Latency: spread, Seed: crowdSize,
		Limits: mockprovider.Limits{Requests: 3000, Concurrency: 8, Ban: 20}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	s := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return m, "http://" + l.Addr().String() + "/v1", func() error {
		err := s.Close()
		<-served
		return err
	}, nil
}

// crowd sends fifty agents to a provider that bans who asks too often, each for
// itself, and then under Kern.
func (d *demo) crowd(ctx context.Context) (err error) {
	m, base, shut, err := crowdProvider()
	if err != nil {
		return err
	}
	raw := load.Agents{Base: base, Number: crowdSize}.Run(ctx)
	refused := m.Stats().Refused
	if err := shut(); err != nil {
		return err
	}
	d.say("     each for itself: %d finished, %d died in %s, after %d answers with status 429", raw.Finished, raw.Died, raw.Took.Round(10*time.Millisecond), refused)
	d.say("     the first died of: %s", raw.Why)

	m, base, shut, err = crowdProvider()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shut()) }()
	finished, took, err := d.researched(ctx, base)
	if err != nil {
		return err
	}
	s := m.Stats()
	d.say("     under Kern:      %d finished, %d died in %s, after %d answers with status 429", finished, crowdSize-finished, took.Round(10*time.Millisecond), s.Refused)
	d.check(raw.Died > 0 && finished == crowdSize, "raw, %d of %d agents died; under Kern all finished", raw.Died, crowdSize)
	d.check(s.OK == 3*crowdSize && s.Statuses["403"] == 0, "the provider counted %d answers, three for each agent, and banned nobody", s.OK)
	return nil
}

// researched runs the agents under a daemon of their own, which knows from its
// configuration what the provider grants.
func (d *demo) researched(ctx context.Context, base string) (finished int, took time.Duration, err error) {
	data := filepath.Join(d.dir, "crowd")
	if err := os.Mkdir(data, 0o700); err != nil {
		return 0, 0, err
	}
	err = errors.Join(d.file("crowd/kern.yaml", fmt.Sprintf(`
providers:
  openai:
    base_url: %q
    limits: {rpm: 3000, concurrency: 8}
    models: {m: {input: 3.00, output: 15.00, window: 100000, max_output: 1000}}
`, base)), d.file("researcher.yaml", `
name: researcher
model: openai:m
limits: {money: 0.10}
tools:
  - {name: search, command: [sh, -c, "echo a page"], effect: pure}
`))
	if err != nil {
		return 0, 0, err
	}
	a, err := host.ReadAgent(filepath.Join(d.dir, "researcher.yaml"))
	if err != nil {
		return 0, 0, err
	}
	spec, err := a.Spec("research and report")
	if err != nil {
		return 0, 0, err
	}
	d.say("   $ kern run --detach -f researcher.yaml 'research and report'  (fifty times)")
	if _, err := d.kern(ctx, "--data", data, "ps"); err != nil { // which starts the daemon
		return 0, 0, err
	}
	c, err := api.Dial(ctx, api.SocketOf(data), d.Version)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))); c.Close() }()
	began := time.Now()
	var pids []abi.Pid
	for range crowdSize {
		pid, err := c.Spawn(ctx, api.Run(spec))
		if err != nil {
			return 0, 0, err
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		var r host.Result
		if err := c.Result(ctx, pid, true, &r); err != nil {
			return 0, 0, err
		}
		if r.Exit == abi.ExitDone && r.Output == "the report" {
			finished++
		}
	}
	return finished, time.Since(began), nil
}
