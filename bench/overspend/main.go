// Command overspend asks the one question that a spending limit is for: when
// many clients draw on one capped key at the same time, by how much is the cap
// passed, as the provider's own books tell?
//
// It is the provider (internal/mockprovider: it bills every token that it sent, also to
// a client that hung up), starts Kern before it, and lets a thousand and ten
// thousand clients loose on a key that can pay a quarter of them: plain,
// streaming, with a third of the clients going away in the middle, and with the
// daemon killed by kill -9 and started again meanwhile.
//
// Kern is started by this program; the same clients and the same provider ask
// any other gateway that speaks the format of OpenAI, in the same table:
//
//	go run ./bench/overspend [-runs ...] kern 'NAME URL MODEL COMMAND' ...
//
// README.md beside this file tells how LiteLLM's proxy and Bifrost are set up
// for that, and what was seen.
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

// price is what the provider bills.
var price = model.Price{Input: 1_000_000_000, Output: 10_000_000_000}

// reply is what it says: about half of what a request allows.
var reply = strings.TrimSpace(strings.Repeat("word ", 30))

// A run is one line of the table.
type run struct {
	requests int
	form     string // plain, stream, hangup, kill
}

// plan is what is run when nothing is said.
var plan = []run{{1000, "plain"}, {1000, "stream"}, {1000, "hangup"}, {1000, "kill"}, {10000, "plain"}, {10000, "stream"}, {10000, "hangup"}, {10000, "kill"}}

// share is which part of the requests a key can pay.
const share = 4

// capFor is the limit for so many requests: what a share of them costs, to the
// dollar's thousandth.
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
	runs, err := o.chosen()
	if err != nil || o.printCap {
		for _, r := range runs {
			fmt.Println(r.requests, r.form, abi.FormatMoney(capFor(r.requests)))
		}
		return err
	}
	if o.gateways, err = rig.Gateways(flag.Args()); err != nil {
		return err
	}
	p, err := startProvider(o.provider)
	if err != nil {
		return err
	}
	defer p.close()
	return o.table(p, runs)
}

const (
	heading = "%-16s %8s %-7s %8s %11s %11s %8s %8s %8s %7s %9s %9s\n"
	row     = "%-16s %8d %-7s %8s %11s %11s %8d %8d %8d %7d %9s %9s\n"
)

// table makes every run with every gateway in turn. What Kern lets pass is a
// fault of this repository, so it ends with an error; what others do is told.
func (o *options) table(p *provider, runs []run) error {
	fmt.Printf(heading, "gateway", "requests", "form", "cap $", "billed $", "over $", "answered", "refused", "hung up", "broken", "median", "whole")
	over := make([]int64, len(o.gateways))
	warm := make(map[string]bool)
	for _, r := range runs {
		for range o.rounds {
			for i, g := range o.gateways {
				if r.form == "kill" && g.URL != "" {
					continue // only Kern is killed by this program
				}
				if !warm[g.Name] && g.URL != "" {
					warm[g.Name] = true
					if err := o.warm(p, &g); err != nil {
						return err
					}
				}
				limit := capFor(r.requests)
				d, err := o.once(p, &g, r, limit, 2*time.Minute)
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
			err = fmt.Errorf("kern let its caps be passed")
		}
	}
	return err
}

// warm asks a gateway a few times with a key of its own before its first run:
// first requests load what is loaded late, and show that there is a way.
func (o *options) warm(p *provider, g *rig.Gateway) error {
	d, err := o.once(p, g, run{20, "plain"}, 1_000_000_000, 20*time.Second)
	if err == nil && (d.answered < 20 || d.billed == 0) {
		err = fmt.Errorf("of 20 requests under a cap of a dollar it answered %d, and the provider billed $%s", d.answered, abi.FormatMoney(d.billed))
		for what, s := range d.saw {
			err = fmt.Errorf("%w; %d x %s %q", err, s.n, what, s.first)
		}
	}
	if err != nil {
		return fmt.Errorf("%s, to warm up: %w", g.Name, err)
	}
	return nil
}

func (o *options) chosen() (runs []run, err error) {
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

// done is how a run ended.
type done struct {
	*tally
	billed int64
	whole  time.Duration
}

func (d *done) print(name string, r run, limit int64) {
	fmt.Printf(row, name, r.requests, r.form, abi.FormatMoney(limit), abi.FormatMoney(d.billed), abi.FormatMoney(max(0, d.billed-limit)),
		d.answered, d.refused, d.hungUp, d.broke, median(d.took).Round(100*time.Microsecond), d.whole.Round(time.Millisecond))
	for _, what := range slices.Sorted(maps.Keys(d.saw)) {
		fmt.Printf("    %d x %s %.110q\n", d.saw[what].n, what, d.saw[what].first)
	}
}

// once makes one run on a fresh key. A client that finds nobody, or is told to
// come again, does so for as long as its patience lasts.
func (o *options) once(p *provider, g *rig.Gateway, r run, limit int64, patience time.Duration) (d *done, err error) {
	l := load{url: g.URL, model: g.Model, requests: r.requests, stream: r.form != "plain", hangUp: r.form == "hangup", clients: o.clients, patience: patience}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	before, err := p.quiet()
	if err != nil {
		return nil, err
	}
	killed := make(chan struct{})
	if g.URL == "" {
		k, err := rig.Start("", p.url, r.atOnce())
		if err != nil {
			return nil, err
		}
		defer k.Close()
		if l.url, l.key, err = k.Key(limit); err != nil {
			return nil, err
		}
		go func() {
			defer close(killed)
			if r.form == "kill" {
				err = killOnAndOff(ctx, k, p, r.requests/share/2, 3)
			}
		}()
	} else {
		if l.key, err = g.Key(limit); err != nil {
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
	after, err := p.quiet()
	d.billed = after.Nano - before.Nano
	return d, errors.Join(err, alone(before, after))
}

// atOnce is how many calls may be at the provider. What a kill cuts off keeps
// its reservation, so where there are kills they must not take all of the cap.
func (r run) atOnce() int {
	if r.form == "kill" {
		return max(1, r.requests/100)
	}
	return r.requests
}

// provider is the one who bills.
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

// quiet waits until nothing has come or gone for a while, since a gateway may
// still send what its clients no longer wait for, and returns the books.
func (p *provider) quiet() (s mockprovider.Stats, err error) {
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

// alone says whether one key of the provider was used between two looks into
// its books: a gateway that still sends what another run left would be taken
// for the one that is measured.
func alone(before, after mockprovider.Stats) error {
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

// killOnAndOff kills the daemon so many times, each when the provider has got
// another part of the requests that the key can pay and is at work on some.
func killOnAndOff(ctx context.Context, k *rig.Daemon, p *provider, paid, times int) error {
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
