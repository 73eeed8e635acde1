// Command overspend asks the one question that a spending limit is for: when
// many clients draw on one capped key at the same time, by how much is the cap
// passed, as the provider's own books tell?
//
// It is the provider (internal/mock: it bills every token that it sent, also to
// a client that hung up), starts Kern before it, and lets a thousand and ten
// thousand clients loose on a key that can pay a quarter of them: plain,
// streaming, with a third of the clients going away in the middle, and with the
// daemon killed by kill -9 and started again meanwhile.
//
// # Any other gateway
//
// The same clients and the same provider for any gateway that speaks the format
// of OpenAI, so that one table compares them:
//
//	go run ./bench/overspend -provider 127.0.0.1:9100 -name NAME -url URL -key KEY -cap DOLLARS -runs 1000,plain
//
// Give the gateway this provider (http://127.0.0.1:9100/v1, any key, a model
// called bench at 1 dollar a million tokens in and 10 out), make a fresh key
// with the cap as its budget, and run; -print-cap says which cap a run is to
// have. A run is a number of requests and a form: plain, stream or hangup.
//
// LiteLLM's proxy: in config.yaml a model_list with one entry, model_name
// bench, and in its litellm_params model openai/bench, api_base and api_key of
// the provider, input_cost_per_token 0.000001 and output_cost_per_token
// 0.00001; a master key and the address of a Postgres database under
// general_settings. Then POST /key/generate with {"models": ["bench"],
// "max_budget": CAP} under the master key gives the key; the URL is
// http://127.0.0.1:4000/v1.
//
// Bifrost: in config.json a custom provider based on openai with the provider's
// address as its base URL and one key for the model bench, a price override for
// it, and under governance a budget with max_limit CAP and a reset of a month,
// named by a virtual key that may use this provider; the key is sent as
// Authorization: Bearer, the model is called openai-bench/bench there (flag
// -model), and the URL is http://127.0.0.1:8080/v1.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/bench/rig"
	"github.com/kern-run/kern/internal/mock"
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
	provider, name, url, key, model, limit, runs string
	rounds                                       int
	printCap                                     bool
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.provider, "provider", "127.0.0.1:0", "where the provider listens")
	flag.StringVar(&o.name, "name", "kern", "what the gateway is called in the table")
	flag.StringVar(&o.url, "url", "", "base URL of a gateway that runs already; empty: Kern, started here")
	flag.StringVar(&o.key, "key", "", "key of that gateway, capped by -cap")
	flag.StringVar(&o.model, "model", "bench", "what the model is called there")
	flag.StringVar(&o.limit, "cap", "", "dollars that the key may spend; with -url")
	flag.StringVar(&o.runs, "runs", "", "such as 1000,plain 10000,hangup; empty: all")
	flag.IntVar(&o.rounds, "rounds", 1, "how often each run is made")
	flag.BoolVar(&o.printCap, "print-cap", false, "print the cap of each run, and end")
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
	p, err := startProvider(o.provider)
	if err != nil {
		return err
	}
	defer p.close()
	over := int64(0)
	fmt.Printf("%-10s %8s %-7s %10s %12s %12s %8s %8s %8s %7s %9s %9s\n", "gateway", "requests", "form", "cap $", "billed $", "over $", "answered", "refused", "hung up", "broken", "median", "whole")
	for _, r := range runs {
		for range o.rounds {
			line, n, err := o.once(p, r)
			if err != nil {
				return fmt.Errorf("%d %s: %w", r.requests, r.form, err)
			}
			fmt.Println(line)
			over += n
		}
	}
	if over > 0 {
		return fmt.Errorf("the provider billed %s dollars over the caps", abi.FormatMoney(over))
	}
	fmt.Println("nothing was billed over a cap")
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

// once makes one run on a fresh key, and says by how much its cap was passed.
func (o *options) once(p *provider, r run) (line string, over int64, err error) {
	limit := capFor(r.requests)
	l := load{url: o.url, key: o.key, model: o.model, requests: r.requests, stream: r.form != "plain", hangUp: r.form == "hangup", patience: 2 * time.Minute}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	before := p.mock.Stats().Nano
	killed := make(chan struct{})
	if o.url == "" {
		k, err := rig.Start(p.url, r.atOnce())
		if err != nil {
			return "", 0, err
		}
		defer k.Close()
		if l.url, l.key, err = k.Key(limit); err != nil {
			return "", 0, err
		}
		go func() {
			defer close(killed)
			if r.form == "kill" {
				err = killOnAndOff(ctx, k, p, r.requests/share/2, 3)
			}
		}()
	} else {
		if r.form == "kill" {
			return "", 0, fmt.Errorf("only Kern is killed by this program")
		}
		if limit, err = abi.ParseMoney(o.limit); err != nil {
			return "", 0, fmt.Errorf("-cap: %w", err)
		}
		close(killed)
	}
	start := time.Now()
	t := l.run(ctx)
	whole := time.Since(start)
	<-killed
	if err != nil {
		return "", 0, err
	}
	billed, err := p.settled(ctx, before)
	if err != nil {
		return "", 0, err
	}
	over = max(0, billed-limit)
	line = fmt.Sprintf("%-10s %8d %-7s %10s %12s %12s %8d %8d %8d %7d %9s %9s", o.name, r.requests, r.form, abi.FormatMoney(limit), abi.FormatMoney(billed), abi.FormatMoney(over),
		t.answered, t.refused, t.hungUp, t.broke, median(t.took).Round(100*time.Microsecond), whole.Round(time.Millisecond))
	for what, n := range t.odd {
		line += fmt.Sprintf("\n    %d x %s", n, what)
	}
	return line, over, nil
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
	mock   *mock.Mock
	server *http.Server
	url    string
}

func startProvider(at string) (*provider, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	m := mock.New(mock.Config{Reply: reply, Price: price, TPS: 300, Models: []string{"bench"}})
	p := &provider{mock: m, server: &http.Server{Handler: m}, url: "http://" + l.Addr().String() + "/v1"}
	go func() {
		if err := p.server.Serve(l); err != http.ErrServerClosed {
			fmt.Fprintln(os.Stderr, "the provider:", err)
		}
	}()
	return p, nil
}

func (p *provider) close() { p.server.Close() }

// settled waits until nothing is in flight, and says what was billed since.
func (p *provider) settled(ctx context.Context, before int64) (int64, error) {
	for {
		if s := p.mock.Stats(); s.InFlight == 0 {
			return s.Nano - before, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
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
