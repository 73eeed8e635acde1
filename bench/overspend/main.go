// Command overspend measures how far many clients pass the limit of one key, by the
// provider's own bill.
//
// The program itself is the provider: internal/mockprovider bills every token that it
// sent, also after a client hung up. It starts Kern in front of it. Then a thousand
// and ten thousand clients use a key that can pay a quarter of them. They run plain,
// streaming, with a third of the clients hanging up, and with the daemon killed by
// kill -9 and started again.
//
// The same clients and the same provider also measure any other gateway that speaks
// the format of OpenAI, in the same table:
//
//	go run ./bench/overspend [-runs ...] kern 'NAME URL MODEL COMMAND' ...
//
// README.md shows how to set up LiteLLM's proxy and Bifrost, and past results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/bench/rig"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

// price is the price that the provider bills.
var price = model.Price{Input: 1_000_000_000, Output: 10_000_000_000}

// reply is its answer, about half as long as a request allows.
var reply = strings.TrimSpace(strings.Repeat("word ", 30))

// A run is one line of the table.
type run struct {
	requests int
	form     string // plain, stream, hangup, kill
}

// plan lists the runs of a call without -runs.
var plan = []run{{1000, "plain"}, {1000, "stream"}, {1000, "hangup"}, {1000, "kill"}, {10000, "plain"}, {10000, "stream"}, {10000, "hangup"}, {10000, "kill"}}

// A key can pay one of share requests.
const share = 4

// capFor returns the limit for a number of requests: the price of a share of them,
// rounded to a thousandth of a dollar.
func capFor(requests int) int64 {
	one := price.Cost(model.Usage{Input: 12, Output: 30})
	return int64(requests/share) * one / 1_000_000 * 1_000_000
}

type options struct {
	provider, runs  string
	rounds, clients int
	printCap        bool
	gateways        []rig.Gateway
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.provider, "provider", "127.0.0.1:0", "where the provider listens")
	flag.StringVar(&o.runs, "runs", "", "such as 1000,plain 10000,hangup; empty: all")
	flag.IntVar(&o.rounds, "rounds", 1, "how often each run is made")
	flag.IntVar(&o.clients, "clients", 0, "how many requests at a time; 0: all of a run")
	flag.BoolVar(&o.printCap, "print-cap", false, "print the cap of each run, and end")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: overspend [flags] [kern] ['NAME URL MODEL COMMAND' ...]\n"+
			"COMMAND prints a fresh key of that gateway that may spend $CAP dollars; without arguments Kern alone is asked.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := o.main(); err != nil {
		log.Fatal(err)
	}
}

func (o *options) main() error {
	runs, err := o.chosenRuns()
	if err != nil || o.printCap {
		for _, r := range runs {
			fmt.Println(r.requests, r.form, abi.FormatMoney(capFor(r.requests)))
		}
		return err
	}
	if o.gateways, err = rig.ParseGateways(flag.Args()); err != nil {
		return err
	}
	p, err := startProvider(o.provider)
	if err != nil {
		return err
	}
	defer p.close()
	return o.printTable(p, runs)
}

const (
	heading = "%-16s %8s %-7s %8s %11s %11s %8s %8s %8s %7s %9s %9s\n"
	row     = "%-16s %8d %-7s %8s %11s %11s %8d %8d %8d %7d %9s %9s\n"
)

// printTable makes every run with every gateway in turn. Overspend of Kern is a
// defect, so it ends with an error; overspend of others is printed.
func (o *options) printTable(p *provider, runs []run) error {
	fmt.Printf(heading, "gateway", "requests", "form", "cap $", "billed $", "over $", "answered", "refused", "hung up", "broken", "median", "whole")
	over := make([]int64, len(o.gateways))
	warm := make(map[string]bool)
	for _, r := range runs {
		for range o.rounds {
			for i, g := range o.gateways {
				if r.form == "kill" && g.URL != "" {
					continue // this program can kill Kern only
				}
				if !warm[g.Name] && g.URL != "" {
					warm[g.Name] = true
					if err := o.warmUp(p, &g); err != nil {
						return err
					}
				}
				limit := capFor(r.requests)
				d, err := o.runOnce(p, &g, r, limit, 2*time.Minute)
				if err != nil {
					return fmt.Errorf("%s, %d %s: %w", g.Name, r.requests, r.form, err)
				}
				d.print(g.Name, r, limit)
				over[i] += max(0, d.billed-limit)
			}
		}
	}
	var err error
	for i, g := range o.gateways {
		fmt.Printf("%s: the provider billed $%s over the caps\n", g.Name, abi.FormatMoney(over[i]))
		if g.URL == "" && over[i] > 0 {
			err = fmt.Errorf("kern passed its limits")
		}
	}
	return err
}

// warmUp sends a few requests with a key of their own before the first run. They
// load what a gateway loads late, and show that it can be reached.
func (o *options) warmUp(p *provider, g *rig.Gateway) error {
	d, err := o.runOnce(p, g, run{20, "plain"}, 1_000_000_000, 20*time.Second)
	if err == nil && (d.answered < 20 || d.billed == 0) {
		err = fmt.Errorf("of 20 requests under a cap of a dollar it answered %d, and the provider billed $%s", d.answered, abi.FormatMoney(d.billed))
		for what, s := range d.failures {
			err = fmt.Errorf("%w; %d x %s %q", err, s.n, what, s.first)
		}
	}
	if err != nil {
		return fmt.Errorf("%s, to warm up: %w", g.Name, err)
	}
	return nil
}

func (o *options) chosenRuns() (runs []run, err error) {
	if o.runs == "" {
		return plan, nil
	}
	for _, s := range strings.Fields(o.runs) {
		n, form, ok := strings.Cut(s, ",")
		k, err := strconv.Atoi(n)
		if err != nil || !ok || k < 1 {
			return nil, fmt.Errorf("-runs: %q; expected a number and a form such as 1000,plain", s)
		}
		switch form {
		case "plain", "stream", "hangup", "kill":
		default:
			return nil, fmt.Errorf("-runs: %q; expected plain, stream, hangup or kill", s)
		}
		runs = append(runs, run{k, form})
	}
	return runs, nil
}

// done is the result of a run.
type done struct {
	*tally
	billed int64
	whole  time.Duration
}

func (d *done) print(name string, r run, limit int64) {
	fmt.Printf(row, name, r.requests, r.form, abi.FormatMoney(limit), abi.FormatMoney(d.billed), abi.FormatMoney(max(0, d.billed-limit)),
		d.answered, d.refused, d.hungUp, d.broke, median(d.took).Round(100*time.Microsecond), d.whole.Round(time.Millisecond))
	for _, what := range slices.Sorted(maps.Keys(d.failures)) {
		fmt.Printf("    %d x %s %.110q\n", d.failures[what].n, what, d.failures[what].first)
	}
}

// runOnce makes one run on a fresh key. A client that finds no server, or is told to
// retry, tries again until its patience ends.
func (o *options) runOnce(p *provider, g *rig.Gateway, r run, limit int64, patience time.Duration) (d *done, err error) {
	l := load{url: g.URL, model: g.Model, requests: r.requests, stream: r.form != "plain", hangUp: r.form == "hangup", clients: o.clients, patience: patience}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	before, err := p.waitForQuiet()
	if err != nil {
		return nil, err
	}
	killed := make(chan struct{})
	if g.URL == "" {
		k, err := rig.StartDaemon("", p.url, r.atOnce())
		if err != nil {
			return nil, err
		}
		defer k.Close()
		if l.url, l.key, err = k.NewKey(limit); err != nil {
			return nil, err
		}
		go func() {
			defer close(killed)
			if r.form == "kill" {
				err = killRepeatedly(ctx, k, p, r.requests/share/2, 3)
			}
		}()
	} else {
		if l.key, err = g.NewKey(limit); err != nil {
			return nil, err
		}
		close(killed)
	}
	start := time.Now()
	d = &done{tally: l.run(ctx)}
	d.whole = time.Since(start)
	<-killed
	if err != nil {
		return nil, err
	}
	after, err := p.waitForQuiet()
	d.billed = after.Nano - before.Nano
	return d, errors.Join(err, checkOneKey(before, after))
}

// atOnce returns how many calls may be at the provider. A call that a kill cuts off
// keeps its reservation, so few calls may be open where there are kills.
func (r run) atOnce() int {
	if r.form == "kill" {
		return max(1, r.requests/100)
	}
	return r.requests
}

// provider answers and bills.
type provider struct {
	mock   *mockprovider.Mock
	server *http.Server
	url    string
}

func startProvider(at string) (*provider, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	m := mockprovider.New(mockprovider.Config{Reply: reply, Price: price, TPS: 300, Models: []string{"bench"}})
	p := &provider{mock: m, server: &http.Server{Handler: m}, url: "http://" + l.Addr().String() + "/v1"}
	go func() {
		if err := p.server.Serve(l); err != http.ErrServerClosed {
			fmt.Fprintln(os.Stderr, "the provider:", err)
		}
	}()
	return p, nil
}

func (p *provider) close() { p.server.Close() }

// waitForQuiet waits until no request has come for a while, because a gateway may
// still send requests that no client waits for. It returns the bill.
func (p *provider) waitForQuiet() (s mockprovider.Stats, err error) {
	const quiet, patience = 2 * time.Second, 2 * time.Minute
	end := time.Now().Add(patience)
	var last int64
	for since := time.Now(); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s = p.mock.Stats()
		if s.InFlight > 0 || s.Requests != last {
			last, since = s.Requests, time.Now()
		}
		if time.Since(since) >= quiet {
			return s, nil
		}
	}
	return s, fmt.Errorf("the provider was still asked %s after the last client had gone", patience)
}

// checkOneKey reports an error if more than one key was used between two bills. A
// gateway that still sends requests of an earlier run would falsify the result.
func checkOneKey(before, after mockprovider.Stats) error {
	var used []string
	for key, t := range after.Keys {
		if t.Requests > before.Keys[key].Requests {
			used = append(used, key)
		}
	}
	if len(used) > 1 {
		return fmt.Errorf("%d keys were used at the provider in one run; expected the key of one gateway", len(used))
	}
	return nil
}

// killRepeatedly kills the daemon a number of times. Each time the provider has got
// another part of the requests that the key can pay, and works on some.
func killRepeatedly(ctx context.Context, k *rig.Daemon, p *provider, paid, times int) error {
	before := p.mock.Stats().Requests
	for i := range times {
		for s := p.mock.Stats(); s.InFlight == 0 || s.Requests-before < int64(paid*(i+1)/(times+1)); s = p.mock.Stats() {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("the provider got %d requests, too few to kill the daemon %d times", s.Requests-before, times)
			}
		}
		if err := k.Kill(); err != nil {
			return err
		}
		if err := k.Serve(); err != nil {
			return err
		}
	}
	return nil
}
