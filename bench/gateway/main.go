// Command gateway measures the time that Kern's gateway adds to a request. Clients
// ask kern mock, in a process of its own: once directly, and once through a daemon
// that limits and journals every call on disk.
//
// A call writes two records: one before the provider is asked, and one before the
// program sees the end of the answer. Two baselines are measured in the same rounds:
// two bare synced writes on the same disk, and a reverse proxy of the standard
// library. No durable gateway in a process of its own can add less than both. A
// second daemon keeps its directory in memory, so it shows Kern's part without
// the disk.
//
// Clients, provider and daemon share the processors of this machine, so the times
// under many clients contain more than the daemon's part. The processor time of the
// daemon is printed beside them.
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
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/bench/rig"
)

const (
	rounds = 3 // of each variant, in turn
	idle   = 10_000
)

func main() {
	log.SetFlags(0)
	if target := os.Getenv(proxyOf); target != "" {
		log.Fatal(proxy(target))
	}
	quick := flag.Bool("quick", false, "a tenth of the requests, to see that it works")
	provider := flag.String("provider", "9100", "port of the provider that other gateways ask")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: gateway [flags] [kern 'NAME URL MODEL COMMAND' ...]\n"+
			"With gateways named as for bench/overspend it compares them; without, it measures Kern.")
		flag.PrintDefaults()
	}
	flag.Parse()
	files := rig.RaiseFileLimit(4 * idle)
	n := 1
	if *quick {
		n = 10
	}
	if flag.NArg() > 0 {
		gateways, err := rig.ParseGateways(flag.Args())
		if err == nil {
			err = compareGateways(*provider, gateways, n)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	for _, f := range []func(int) error{measureStreams, measureAnswers, measureThroughput, func(n int) error { return measureIdleStreams(min(idle, int(files/2)-500) / n) }} {
		if err := f(n); err != nil {
			log.Fatal(err)
		}
	}
}

// disk writes records of the journal's size to a file, and syncs each.
type disk struct {
	f *os.File
	n int64
}

// The journal writes two pages with a header each for a record, into a log that it
// reuses.
const (
	recordSize = 2 * (24 + 4096)
	logSize    = 4 << 20
)

func newDisk() (*disk, error) {
	f, err := os.CreateTemp("", "kern-bench-")
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(make([]byte, logSize)); err == nil {
		err = f.Sync()
	}
	return &disk{f: f}, err
}

func (d *disk) close() {
	d.f.Close()
	os.Remove(d.f.Name())
}

// writeRecord returns the time that one synced record takes.
func (d *disk) writeRecord() (time.Duration, error) {
	start := time.Now()
	_, err := d.f.WriteAt(make([]byte, recordSize), d.n%(logSize/recordSize)*recordSize)
	d.n++
	if err == nil {
		err = d.f.Sync()
	}
	return time.Since(start), err
}

// writeCalls returns the times of the records of n calls: the first record of each,
// and both together. A pause separates the records, as in real calls.
func (d *disk) writeCalls(n int) (t times, err error) {
	for range n {
		var took [2]time.Duration
		for i := range took {
			time.Sleep(2 * time.Millisecond)
			if took[i], err = d.writeRecord(); err != nil {
				return t, err
			}
		}
		t.first, t.last = append(t.first, took[0]), append(t.last, took[0]+took[1])
	}
	return t, nil
}

// reply is the answer of the provider.
var reply = strings.TrimSpace(strings.Repeat("word ", 10))

// memory is a file system in memory, on Linux.
const memory = "/dev/shm"

// setup is a provider with three ways to it: Kern, Kern in memory, and a bare proxy.
type setup struct {
	bare, proxy, kern client
	inMemory          client // no URL where there is no such file system
	daemon            *rig.Daemon
	disk              *disk
	proxyPid          int // the proxy's pid
	ends              []func()
}

// newSetup starts everything. A stream has ten events.
func newSetup(mock ...string) (p *setup, err error) {
	at, end, err := rig.StartMock(append([]string{"--reply", reply, "--price", "1/10"}, mock...)...)
	if err != nil {
		return nil, err
	}
	p = &setup{ends: []func(){end}, bare: newClient(at, "any")}
	if err := p.startFronts(at); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// startFronts starts the daemons and the proxy.
func (p *setup) startFronts(at string) (err error) {
	if p.daemon, p.kern, err = p.startDaemon("", at); err != nil {
		return err
	}
	if _, none := os.Stat(memory); none == nil {
		if _, p.inMemory, err = p.startDaemon(memory, at); err != nil {
			return err
		}
	}
	var end func()
	if p.proxy, p.proxyPid, end, err = startProxy(p.bare.url); err != nil {
		return err
	}
	p.ends = append(p.ends, end)
	if p.disk, err = newDisk(); err == nil {
		p.ends = append(p.ends, p.disk.close)
	}
	return err
}

// startDaemon starts a daemon with its directory below parent, and makes a key.
func (p *setup) startDaemon(parent, at string) (*rig.Daemon, client, error) {
	d, err := rig.StartDaemon(parent, at, 4*idle)
	if err != nil {
		return nil, client{}, err
	}
	p.ends = append(p.ends, d.Close)
	base, key, err := d.NewKey(1_000_000_000_000_000)
	return d, newClient(base, key), err
}

func (p *setup) close() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// client sends one request again and again.
type client struct {
	http     *http.Client
	url, key string
	model    string
}

func newClient(url, key string) client {
	return client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * idle, DisableCompression: true}}, url + "/chat/completions", key, "bench"}
}

// ask sends a request and reads its answer. It returns the times to the first line
// and to the end.
func (c *client) ask(ctx context.Context, stream bool) (first, last time.Duration, err error) {
	b, err := json.Marshal(map[string]any{"model": c.model, "stream": stream, "max_tokens": 64,
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

// times are the times of many answers.
type times struct{ first, last []time.Duration }

// askMany runs clients that send a number of requests each. Their starts are spread
// over a time, because real clients are not synchronised.
func (c *client) askMany(clients, each int, over time.Duration, stream bool) (t times, took time.Duration, err error) {
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

// samples are the measurements of every variant and of the bare disk.
type samples struct {
	bare, kern, inMemory, proxy, disk times
	processor                         struct{ kern, proxy time.Duration }
}

func (t *times) add(more times) {
	t.first, t.last = append(t.first, more.first...), append(t.last, more.last...)
}

// measure asks every variant in turn, after one round to warm up.
func (p *setup) measure(clients, each int, over time.Duration, stream bool) (s samples, err error) {
	none := func() (time.Duration, error) { return 0, nil }
	proxyPid := func() (time.Duration, error) { return rig.ProcessorTime(p.proxyPid) }
	for i := range rounds + 1 {
		for _, x := range []struct {
			c         *client
			processor func() (time.Duration, error)
			into      *times
			took      *time.Duration
		}{
			{&p.bare, none, &s.bare, new(time.Duration)},
			{&p.proxy, proxyPid, &s.proxy, &s.processor.proxy},
			{&p.kern, p.daemon.ProcessorTime, &s.kern, &s.processor.kern},
			{&p.inMemory, none, &s.inMemory, new(time.Duration)},
		} {
			if x.c.url == "" {
				continue
			}
			before, err := x.processor()
			if err != nil {
				return s, err
			}
			t, _, err := x.c.askMany(clients, each, over, stream)
			if err != nil {
				return s, err
			}
			after, err := x.processor()
			if err != nil {
				return s, err
			}
			if i > 0 {
				x.into.add(t)
				*x.took += after - before
			}
		}
		d, err := p.disk.writeCalls(150)
		if err != nil {
			return s, err
		}
		if i > 0 {
			s.disk.add(d)
		}
	}
	return s, nil
}

const row = "%-42s %10s %10s %10s %10s %10s %10s %10s\n"

func printHeading(what string) {
	fmt.Printf("\n%s\n"+row, what, "", "bare", "kern", "added", "in memory", "a proxy", "the disk", "aim")
}

// printPercentiles prints the time that Kern adds on disk and in memory, the time
// that the proxy adds, and the time of the bare writes.
func (s *samples) printPercentiles(what string, of func(*times) []time.Duration, aims map[float64]string) {
	bare, kern, inMemory, proxy, disk := of(&s.bare), of(&s.kern), of(&s.inMemory), of(&s.proxy), of(&s.disk)
	for _, d := range [][]time.Duration{bare, kern, inMemory, proxy, disk} {
		slices.Sort(d)
	}
	for _, p := range []float64{50, 99, 99.9} {
		b, k, own := percentile(bare, p), percentile(kern, p), "-"
		if len(inMemory) > 0 {
			own = short(percentile(inMemory, p) - b)
		}
		fmt.Printf(row, fmt.Sprintf("%s, p%v", what, p), short(b), short(k), short(k-b), own, short(percentile(proxy, p)-b), short(percentile(disk, p)), aims[p])
	}
}

func untilFirst(t *times) []time.Duration { return t.first }
func untilEnd(t *times) []time.Duration   { return t.last }

// printProcessorTime prints the processor time of the daemon and of the proxy.
func (s *samples) printProcessorTime() {
	n := time.Duration(len(s.kern.last))
	fmt.Printf(row, "  its processor time, a request", "", short(s.processor.kern/n), "", "", short(s.processor.proxy/n), "", "")
}

func percentile(d []time.Duration, p float64) time.Duration { return d[int(float64(len(d)-1)*p/100)] }

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// moderate are the aims for loads that do not saturate the machine.
var moderate = map[float64]string{50: "<= 0.3ms", 99: "<= 1ms"}

// measureStreams: the first event at once, then ten tokens in half a second.
func measureStreams(n int) error {
	p, err := newSetup("--tps", "20")
	if err != nil {
		return err
	}
	defer p.close()
	printHeading("streams: the first event at once, then 20 tokens a second")
	for _, c := range []int{10, 100, 1000} {
		s, err := p.measure(c, max(2, 400/c/n), 500*time.Millisecond, true)
		if err != nil {
			return err
		}
		aims := moderate
		if c > 100 {
			aims = nil
		}
		s.printPercentiles(fmt.Sprintf("%d at once, to the first event", c), untilFirst, aims)
		s.printPercentiles(fmt.Sprintf("%d at once, to the end", c), untilEnd, nil)
		s.printProcessorTime()
	}
	return nil
}

// measureAnswers: whole answers, after 20 ms.
func measureAnswers(n int) error {
	p, err := newSetup("--latency", "20ms")
	if err != nil {
		return err
	}
	defer p.close()
	printHeading("whole answers: after 20 ms")
	for _, c := range []int{1, 10, 100} {
		s, err := p.measure(c, max(2, 600/c/n), 20*time.Millisecond, false)
		if err != nil {
			return err
		}
		aims := moderate
		if c > 10 {
			aims = nil
		}
		s.printPercentiles(fmt.Sprintf("%d at once", c), untilEnd, aims)
		s.printProcessorTime()
	}
	return nil
}

// measureThroughput: the most requests a second, from a provider without latency.
func measureThroughput(n int) error {
	p, err := newSetup()
	if err != nil {
		return err
	}
	defer p.close()
	printHeading("requests a second, 64 clients, a provider that answers at once")
	const clients = 64
	each := 100 / n
	var bare, proxy, kern []float64
	for range rounds + 1 {
		for _, x := range []struct {
			c    *client
			into *[]float64
		}{{&p.bare, &bare}, {&p.proxy, &proxy}, {&p.kern, &kern}} {
			_, took, err := x.c.askMany(clients, each, 0, false)
			if err != nil {
				return err
			}
			*x.into = append(*x.into, float64(clients*each)/took.Seconds())
		}
	}
	var median [3]float64
	for i, rates := range [][]float64{bare, proxy, kern} {
		slices.Sort(rates)
		median[i] = rates[len(rates)/2]
	}
	b, x, k := median[0], median[1], median[2]
	fmt.Printf(row, "median of rounds", fmt.Sprintf("%.0f/s", b), fmt.Sprintf("%.0f/s", k), fmt.Sprintf("%.2fx", k/b), "", fmt.Sprintf("%.2fx", x/b), "", "")
	return nil
}

// measureIdleStreams: streams that have begun and are silent. Most of the memory of
// each is net/http: two connections with their goroutines and buffers. So a reverse
// proxy of the standard library is measured beside it.
func measureIdleStreams(n int) error {
	p, err := newSetup("--fault", "hang@2")
	if err != nil {
		return err
	}
	defer p.close()
	kern, err := p.kern.idleMemory(n, p.daemon.ResidentMemory)
	if err != nil {
		return err
	}
	floor, err := p.proxy.idleMemory(n, func() (int64, error) { return rig.ResidentMemory(p.proxyPid) })
	if err != nil {
		return err
	}
	fmt.Printf("\n%d silent streams: %.0f MB, %.1f KiB each; through a bare httputil.ReverseProxy %.1f KiB\n",
		n, float64(kern)/1e6, float64(kern)/1024/float64(n), float64(floor)/1024/float64(n))
	return nil
}

// idleMemory returns the memory that n silent streams add.
func (c *client) idleMemory(n int, resident func() (int64, error)) (int64, error) {
	warm, stop := context.WithCancel(context.Background())
	if err := c.openStream(warm, stop); err != nil {
		return 0, err
	}
	before, err := resident()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var open, ended sync.WaitGroup
	var mu sync.Mutex
	var wrong error
	gates := make(chan struct{}, 200) // limits how many begin at a time
	for range n {
		open.Add(1)
		gates <- struct{}{}
		ended.Go(func() {
			e := c.openStream(ctx, func() { <-gates; open.Done() })
			mu.Lock()
			wrong = errors.Join(wrong, e)
			mu.Unlock()
		})
	}
	open.Wait()
	after, err := resident()
	cancel()
	ended.Wait()
	return after - before, errors.Join(err, wrong)
}

// proxyOf is the variable that turns this program into a reverse proxy.
const proxyOf = "KERN_BENCH_PROXY_OF"

func proxy(target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return http.Serve(l, &httputil.ReverseProxy{FlushInterval: -1, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * idle, DisableCompression: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			b, _ := io.ReadAll(r.In.Body) // an answer before the end of the request would break the connection
			r.Out.URL, r.Out.Body = u, io.NopCloser(bytes.NewReader(b))
		}})
}

// startProxy starts a proxy in front of a provider, in a process of its own.
func startProxy(target string) (c client, pid int, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return c, 0, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), proxyOf+"="+target)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return c, 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return c, 0, nil, err
	}
	end = func() {
		_ = cmd.Process.Kill() // it keeps no state
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return c, 0, nil, err
	}
	return newClient(strings.TrimSpace(line), "any"), cmd.Process.Pid, end, nil
}

// openStream starts a stream, calls begun, and holds the stream until ctx ends.
func (c *client) openStream(ctx context.Context, begun func()) error {
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
