// Command gateway measures what it costs to go through Kern's gateway in place
// of straight to a provider: the same clients, the same provider (kern mock, a
// process of its own), once without and once with a daemon between them that
// counts, limits and journals every call on disk.
//
// A call has two records on disk, one before the provider is asked and one before
// the program sees the end of the answer. What it takes to put them there is
// measured in the same rounds, on the same disk, with nothing around it, and
// stands beside what is added, and so does what a reverse proxy of the standard
// library adds, which passes on and does nothing else: no gateway that is a
// program of its own and keeps its word can add less than the two. A second Kern
// keeps its directory in memory, where to sync takes no time: what that one adds
// is Kern's own part of what the first one does.
//
// Clients, provider and daemon share the processors of this machine, so what is
// seen under many clients at once is more than the daemon's part. Its own part is
// the processor time that it took.
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
	rounds = 3 // without and with, in turn
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
	files := rig.Files(4 * idle)
	n := 1
	if *quick {
		n = 10
	}
	if flag.NArg() > 0 {
		gateways, err := rig.Gateways(flag.Args())
		if err == nil {
			err = beside(*provider, gateways, n)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	for _, f := range []func(int) error{streams, answers, most, func(n int) error { return resting(min(idle, int(files/2)-500) / n) }} {
		if err := f(n); err != nil {
			log.Fatal(err)
		}
	}
}

// disk writes as the journal does, and nothing else.
type disk struct {
	f *os.File
	n int64
}

// The journal writes two pages for a record, each with a head, into a log that
// is used again.
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

// record is what it takes to put one there.
func (d *disk) record() (time.Duration, error) {
	start := time.Now()
	_, err := d.f.WriteAt(make([]byte, recordSize), d.n%(logSize/recordSize)*recordSize)
	d.n++
	if err == nil {
		err = d.f.Sync()
	}
	return time.Since(start), err
}

// calls is what the records of so many calls take, a little apart, as calls are:
// the first of each, and both.
func (d *disk) calls(n int) (t times, err error) {
	for range n {
		var took [2]time.Duration
		for i := range took {
			time.Sleep(2 * time.Millisecond)
			if took[i], err = d.record(); err != nil {
				return t, err
			}
		}
		t.first, t.last = append(t.first, took[0]), append(t.last, took[0]+took[1])
	}
	return t, nil
}

// reply is what the provider says.
var reply = strings.TrimSpace(strings.Repeat("word ", 10))

// memory is where a file system in memory is, on Linux.
const memory = "/dev/shm"

// pair is a provider, and before it Kern, Kern in memory, and a proxy that only
// passes on.
type pair struct {
	bare, proxy, kern client
	inMemory          client // without a URL where there is no such file system
	daemon            *rig.Daemon
	disk              *disk
	passing           int // the proxy's pid
	ends              []func()
}

// begin starts both. A stream has ten events.
func begin(mock ...string) (p *pair, err error) {
	at, end, err := rig.Mock(append([]string{"--reply", reply, "--price", "1/10"}, mock...)...)
	if err != nil {
		return nil, err
	}
	p = &pair{ends: []func(){end}, bare: newClient(at, "any")}
	if err := p.before(at); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// before starts what stands before the provider.
func (p *pair) before(at string) (err error) {
	if p.daemon, p.kern, err = p.daemonIn("", at); err != nil {
		return err
	}
	if _, none := os.Stat(memory); none == nil {
		if _, p.inMemory, err = p.daemonIn(memory, at); err != nil {
			return err
		}
	}
	var end func()
	if p.proxy, p.passing, end, err = startProxy(p.bare.url); err != nil {
		return err
	}
	p.ends = append(p.ends, end)
	if p.disk, err = newDisk(); err == nil {
		p.ends = append(p.ends, p.disk.close)
	}
	return err
}

// daemonIn starts a daemon that keeps its directory there, with a key to it.
func (p *pair) daemonIn(parent, at string) (*rig.Daemon, client, error) {
	d, err := rig.Start(parent, at, 4*idle)
	if err != nil {
		return nil, client{}, err
	}
	p.ends = append(p.ends, d.Close)
	base, key, err := d.Key(1_000_000_000_000_000)
	return d, newClient(base, key), err
}

func (p *pair) close() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// client asks one question again and again.
type client struct {
	http     *http.Client
	url, key string
	model    string
}

func newClient(url, key string) client {
	return client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * idle, DisableCompression: true}}, url + "/chat/completions", key, "bench"}
}

// ask sends a request and reads its answer. It says when the first of it came
// and when the last did.
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

// seen is what was measured without and with Kern, of the proxy, and of the disk
// alone.
type seen struct {
	bare, kern, inMemory, proxy, disk times
	processor                         struct{ kern, proxy time.Duration }
}

func (t *times) add(more times) {
	t.first, t.last = append(t.first, more.first...), append(t.last, more.last...)
}

// all measures without and with Kern, the proxy and the disk alone, in turn,
// after one round to warm up.
func (p *pair) all(clients, each int, over time.Duration, stream bool) (s seen, err error) {
	none := func() (time.Duration, error) { return 0, nil }
	passing := func() (time.Duration, error) { return rig.Processor(p.passing) }
	for i := range rounds + 1 {
		for _, x := range []struct {
			c         *client
			processor func() (time.Duration, error)
			into      *times
			took      *time.Duration
		}{
			{&p.bare, none, &s.bare, new(time.Duration)},
			{&p.proxy, passing, &s.proxy, &s.processor.proxy},
			{&p.kern, p.daemon.Processor, &s.kern, &s.processor.kern},
			{&p.inMemory, none, &s.inMemory, new(time.Duration)},
		} {
			if x.c.url == "" {
				continue
			}
			before, err := x.processor()
			if err != nil {
				return s, err
			}
			t, _, err := x.c.many(clients, each, over, stream)
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
		d, err := p.disk.calls(150)
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

func heading(what string) {
	fmt.Printf("\n%s\n"+row, what, "", "bare", "kern", "added", "in memory", "a proxy", "the disk", "aim")
}

// percentiles prints what going through Kern adds, what that is where its
// directory is in memory, what going through the proxy adds, and what the disk
// alone takes for the records that must be there.
func (s *seen) percentiles(what string, of func(*times) []time.Duration, aims map[float64]string) {
	bare, kern, inMemory, proxy, disk := of(&s.bare), of(&s.kern), of(&s.inMemory), of(&s.proxy), of(&s.disk)
	for _, d := range [][]time.Duration{bare, kern, inMemory, proxy, disk} {
		slices.Sort(d)
	}
	for _, p := range []float64{50, 99, 99.9} {
		b, k, own := at(bare, p), at(kern, p), "-"
		if len(inMemory) > 0 {
			own = short(at(inMemory, p) - b)
		}
		fmt.Printf(row, fmt.Sprintf("%s, p%v", what, p), short(b), short(k), short(k-b), own, short(at(proxy, p)-b), short(at(disk, p)), aims[p])
	}
}

func toFirst(t *times) []time.Duration { return t.first }
func toEnd(t *times) []time.Duration   { return t.last }

// own prints what the daemon and the proxy themselves take.
func (s *seen) own() {
	n := time.Duration(len(s.kern.last))
	fmt.Printf(row, "  its processor time, a request", "", short(s.processor.kern/n), "", "", short(s.processor.proxy/n), "", "")
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
		s, err := p.all(c, max(2, 400/c/n), 500*time.Millisecond, true)
		if err != nil {
			return err
		}
		aims := moderate
		if c > 100 {
			aims = nil
		}
		s.percentiles(fmt.Sprintf("%d at once, to the first event", c), toFirst, aims)
		s.percentiles(fmt.Sprintf("%d at once, to the end", c), toEnd, nil)
		s.own()
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
		s, err := p.all(c, max(2, 600/c/n), 20*time.Millisecond, false)
		if err != nil {
			return err
		}
		aims := moderate
		if c > 10 {
			aims = nil
		}
		s.percentiles(fmt.Sprintf("%d at once", c), toEnd, aims)
		s.own()
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
	var bare, proxy, kern []float64
	for range rounds + 1 {
		for _, x := range []struct {
			c    *client
			into *[]float64
		}{{&p.bare, &bare}, {&p.proxy, &proxy}, {&p.kern, &kern}} {
			_, took, err := x.c.many(clients, each, 0, false)
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

// resting: streams that have begun and say nothing. Most of what each takes are
// two connections and the goroutines and buffers that net/http has for them, so a
// reverse proxy of the standard library, which does nothing else, stands beside.
func resting(n int) error {
	p, err := begin("--fault", "hang@2")
	if err != nil {
		return err
	}
	defer p.close()
	kern, err := p.kern.rest(n, p.daemon.Resident)
	if err != nil {
		return err
	}
	floor, err := p.proxy.rest(n, func() (int64, error) { return rig.Resident(p.passing) })
	if err != nil {
		return err
	}
	fmt.Printf("\n%d streams that have begun and rest: %.0f MB, %.1f KiB each; through a bare httputil.ReverseProxy %.1f KiB\n",
		n, float64(kern)/1e6, float64(kern)/1024/float64(n), float64(floor)/1024/float64(n))
	return nil
}

// rest is how much n streams that have begun add to what resident tells.
func (c *client) rest(n int, resident func() (int64, error)) (int64, error) {
	warm, stop := context.WithCancel(context.Background())
	if err := c.begin(warm, stop); err != nil {
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
	gates := make(chan struct{}, 200) // so many begin at a time
	for range n {
		open.Add(1)
		gates <- struct{}{}
		ended.Go(func() {
			e := c.begin(ctx, func() { <-gates; open.Done() })
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

// proxyOf is the variable that makes a reverse proxy of this program.
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
			b, _ := io.ReadAll(r.In.Body) // else an answer that is quicker than the request breaks the connection
			r.Out.URL, r.Out.Body = u, io.NopCloser(bytes.NewReader(b))
		}})
}

// startProxy starts one before a provider, as a program of its own.
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
		_ = cmd.Process.Kill() // it has nothing to lose
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return c, 0, nil, err
	}
	return newClient(strings.TrimSpace(line), "any"), cmd.Process.Pid, end, nil
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
