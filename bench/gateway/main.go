// Command gateway measures what it costs to go through Kern's gateway in place
// of straight to a provider: the same clients, the same provider (kern mock, a
// process of its own), once without and once with a daemon between them that
// counts, limits and journals every call on disk.
//
// Clients, provider and daemon share the processors of this machine, so what is
// seen under many clients at once is more than the daemon's part.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/bench/rig"
)

const (
	rounds = 3 // without and with, in turn
	idle   = 10_000
)

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "a tenth of the requests, to see that it works")
	flag.Parse()
	files := rig.Files(4 * idle)
	n := 1
	if *quick {
		n = 10
	}
	if err := disk(); err != nil {
		log.Fatal(err)
	}
	for _, f := range []func(int) error{streams, answers, most, func(n int) error { return resting(min(idle, int(files/2)-500) / n) }} {
		if err := f(n); err != nil {
			log.Fatal(err)
		}
	}
}

// disk prints what it takes to put something on this disk: a call has two
// records there, one before the provider is asked and one before the program
// sees the end of the answer.
func disk() error {
	f, err := os.CreateTemp("", "kern-bench-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range 500 {
		start := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	fmt.Printf("a write of 4 KiB that is synced, twice a call: p50 %s, p99 %s\n", short(at(took, 50)), short(at(took, 99)))
	return nil
}

// pair is a provider, and Kern before it.
type pair struct {
	bare, kern client
	daemon     *rig.Daemon
	end        func()
}

// begin starts both. A stream has ten events.
func begin(mock ...string) (p *pair, err error) {
	url, end, err := rig.Mock(append([]string{"--reply", strings.TrimSpace(strings.Repeat("word ", 10)), "--price", "1/10"}, mock...)...)
	if err != nil {
		return nil, err
	}
	p = &pair{end: end}
	if p.daemon, err = rig.Start(url, 4*idle); err != nil {
		end()
		return nil, err
	}
	p.bare = newClient(url, "any")
	base, key, err := p.daemon.Key(1_000_000_000_000_000)
	if err != nil {
		p.close()
		return nil, err
	}
	p.kern = newClient(base, key)
	return p, nil
}

func (p *pair) close() {
	p.daemon.Close()
	p.end()
}

// client asks one question again and again.
type client struct {
	http     *http.Client
	url, key string
}

func newClient(url, key string) client {
	return client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * idle, DisableCompression: true}}, url + "/chat/completions", key}
}

// ask sends a request and reads its answer. It says when the first of it came
// and when the last did.
func (c *client) ask(ctx context.Context, stream bool) (first, last time.Duration, err error) {
	b, err := json.Marshal(map[string]any{"model": "bench", "stream": stream, "max_tokens": 64,
		"messages": []map[string]string{{"role": "system", "content": "You are a measuring rod."}, {"role": "user", "content": "How long is this?"}}})
	if err != nil {
		return 0, 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(b))
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.key)
	start := time.Now()
	res, err := c.http.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	body := bufio.NewReader(res.Body)
	line, err := body.ReadString('\n')
	first = time.Since(start)
	if err != nil && err != io.EOF {
		return 0, 0, err
	}
	rest, err := io.ReadAll(body)
	if res.StatusCode != http.StatusOK || strings.Contains(line+string(rest), `"error"`) {
		return 0, 0, fmt.Errorf("%s: %s%s", res.Status, line, rest)
	}
	return first, time.Since(start), err
}

// times are those of many answers.
type times struct{ first, last []time.Duration }

// many makes so many clients ask so often each. They begin one after the other,
// over a time, as clients do that know nothing of each other.
func (c *client) many(clients, each int, over time.Duration, stream bool) (t times, took time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i := range clients {
		wg.Go(func() {
			time.Sleep(over * time.Duration(i) / time.Duration(clients))
			for range each {
				first, last, e := c.ask(context.Background(), stream)
				mu.Lock()
				t.first, t.last = append(t.first, first), append(t.last, last)
				err = errors.Join(err, e)
				mu.Unlock()
				if e != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return t, time.Since(start), err
}

// both measures without and with Kern, in turn, after one round to warm up.
func (p *pair) both(clients, each int, over time.Duration, stream bool) (bare, kern times, err error) {
	for i := range rounds + 1 {
		b, _, err := p.bare.many(clients, each, over, stream)
		if err != nil {
			return bare, kern, err
		}
		k, _, err := p.kern.many(clients, each, over, stream)
		if err != nil {
			return bare, kern, err
		}
		if i > 0 {
			bare.first, bare.last = append(bare.first, b.first...), append(bare.last, b.last...)
			kern.first, kern.last = append(kern.first, k.first...), append(kern.last, k.last...)
		}
	}
	return bare, kern, nil
}

const row = "%-44s %10s %10s %10s %12s\n"

func heading(what string) {
	fmt.Printf("\n%s\n"+row, what, "", "bare", "kern", "added", "aim")
}

// percentiles prints what going through Kern adds.
func percentiles(what string, bare, kern []time.Duration, aims map[float64]string) {
	slices.Sort(bare)
	slices.Sort(kern)
	for _, p := range []float64{50, 99, 99.9} {
		b, k := at(bare, p), at(kern, p)
		fmt.Printf(row, fmt.Sprintf("%s, p%v", what, p), short(b), short(k), short(k-b), aims[p])
	}
}

func at(d []time.Duration, p float64) time.Duration { return d[int(float64(len(d)-1)*p/100)] }

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// moderate is what is aimed at where the machine is not the limit.
var moderate = map[float64]string{50: "<= 0.3ms", 99: "<= 1ms"}

// streams: the first event at once, then ten tokens in half a second.
func streams(n int) error {
	p, err := begin("--tps", "20")
	if err != nil {
		return err
	}
	defer p.close()
	heading("streams: the first event at once, then 20 tokens a second")
	for _, c := range []int{10, 100, 1000} {
		bare, kern, err := p.both(c, max(2, 400/c/n), 500*time.Millisecond, true)
		if err != nil {
			return err
		}
		aims := moderate
		if c > 100 {
			aims = nil
		}
		percentiles(fmt.Sprintf("%d at once, to the first event", c), bare.first, kern.first, aims)
		percentiles(fmt.Sprintf("%d at once, to the end", c), bare.last, kern.last, nil)
	}
	return nil
}

// answers: whole ones, after 20 ms.
func answers(n int) error {
	p, err := begin("--latency", "20ms")
	if err != nil {
		return err
	}
	defer p.close()
	heading("whole answers: after 20 ms")
	for _, c := range []int{1, 10, 100} {
		bare, kern, err := p.both(c, max(2, 600/c/n), 20*time.Millisecond, false)
		if err != nil {
			return err
		}
		aims := moderate
		if c > 10 {
			aims = nil
		}
		percentiles(fmt.Sprintf("%d at once", c), bare.last, kern.last, aims)
	}
	return nil
}

// most: as many as go through, from a provider that answers at once.
func most(n int) error {
	p, err := begin()
	if err != nil {
		return err
	}
	defer p.close()
	heading("requests a second, 64 clients, a provider that answers at once")
	const clients = 64
	each := 100 / n
	var bare, kern []float64
	for range rounds + 1 {
		for _, x := range []struct {
			c    *client
			into *[]float64
		}{{&p.bare, &bare}, {&p.kern, &kern}} {
			_, took, err := x.c.many(clients, each, 0, false)
			if err != nil {
				return err
			}
			*x.into = append(*x.into, float64(clients*each)/took.Seconds())
		}
	}
	slices.Sort(bare)
	slices.Sort(kern)
	b, k := bare[len(bare)/2], kern[len(kern)/2]
	fmt.Printf(row, "median of rounds", fmt.Sprintf("%.0f/s", b), fmt.Sprintf("%.0f/s", k), fmt.Sprintf("%.2fx", k/b), "")
	return nil
}

// resting: streams that have begun and say nothing.
func resting(n int) error {
	p, err := begin("--fault", "hang@2")
	if err != nil {
		return err
	}
	defer p.close()
	warm, stop := context.WithCancel(context.Background())
	if err := p.kern.begin(warm, stop); err != nil {
		return err
	}
	before, err := p.daemon.Resident()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var open, ended sync.WaitGroup
	var mu sync.Mutex
	var wrong error
	gates := make(chan struct{}, 200) // so many begin at a time
	for range n {
		open.Add(1)
		gates <- struct{}{}
		ended.Go(func() {
			e := p.kern.begin(ctx, func() { <-gates; open.Done() })
			mu.Lock()
			wrong = errors.Join(wrong, e)
			mu.Unlock()
		})
	}
	open.Wait()
	after, err := p.daemon.Resident()
	cancel()
	ended.Wait()
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	fmt.Printf("\n%d streams that have begun and rest: %.0f MB, %.1f KiB each\n", n, float64(after-before)/1e6, float64(after-before)/1024/float64(n))
	return nil
}

// begin starts a stream, says when it has begun, and holds it until ctx ends.
func (c *client) begin(ctx context.Context, begun func()) error {
	once := sync.OnceFunc(begun)
	defer once()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(`{"model":"bench","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"wait"}]}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.key)
	res, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body := bufio.NewReader(res.Body)
	if _, err := body.ReadString('\n'); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %v", res.Status, err)
	}
	once()
	_, err = io.Copy(io.Discard, body)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("a stream ended by itself: %v", err)
}
