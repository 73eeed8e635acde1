package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/mockprovider"
)

// BenchmarkAdded asks the provider, bare and through the gateway, one request
// after the other, and tells what the gateway adds to the median and to the
// 99th percentile; in turn with them what the disk alone takes for two writes of
// the size of a record, and what the library's own proxy adds, which does
// nothing but pass on: that much is in what is added.
func BenchmarkAdded(b *testing.B) {
	for _, stream := range []bool{false, true} {
		b.Run(fmt.Sprintf("stream=%v", stream), func(b *testing.B) {
			r := newRig(b, mockprovider.Config{Reply: "a short answer of some words"}, "")
			k := r.key("money=1000000")
			body := chat("hello there", `,"max_tokens":50`)
			if stream {
				body = chat("hello there", `,"max_tokens":50,"stream":true`)
			}
			ask := func(url, key string) time.Duration {
				start := time.Now()
				q, err := http.NewRequest("POST", url+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				q.Header.Set("Authorization", "Bearer "+key)
				resp, err := r.front.Client().Do(q)
				if err != nil {
					b.Fatal(err)
				}
				defer resp.Body.Close()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(resp.StatusCode, err)
				}
				return time.Since(start)
			}
			f, err := os.Create(filepath.Join(b.TempDir(), "disk"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			const record, most = 8240, 400 // bytes, and how many until the log is used again
			n := int64(0)
			write := func() {
				if _, err := f.WriteAt(make([]byte, record), n%most*record); err != nil || f.Sync() != nil {
					b.Fatal(err)
				}
				n++
			}
			for range most {
				write()
			}
			for range 50 {
				ask(r.up.URL, providerKey)
				ask(r.front.URL, k.Key)
			}
			up, err := url.Parse(r.up.URL)
			if err != nil {
				b.Fatal(err)
			}
			proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				b, _ := io.ReadAll(r.In.Body) // else an answer that is quicker than the request breaks the connection
				r.SetURL(up)
				r.Out.Body = io.NopCloser(bytes.NewReader(b))
			}})
			defer proxy.Close()
			var bare, passed, through, disk []time.Duration
			for b.Loop() {
				bare = append(bare, ask(r.up.URL, providerKey))
				passed = append(passed, ask(proxy.URL, providerKey))
				through = append(through, ask(r.front.URL, k.Key))
				start := time.Now()
				write()
				write()
				disk = append(disk, time.Since(start))
			}
			at := func(d []time.Duration, p float64) float64 {
				slices.Sort(d)
				return float64(d[int(p*float64(len(d)-1))].Microseconds())
			}
			for _, p := range []float64{0.5, 0.99} {
				b.ReportMetric(at(bare, p), fmt.Sprintf("bare-p%v-µs", p*100))
				b.ReportMetric(at(passed, p)-at(bare, p), fmt.Sprintf("proxy-p%v-µs", p*100))
				b.ReportMetric(at(through, p)-at(bare, p), fmt.Sprintf("added-p%v-µs", p*100))
				b.ReportMetric(at(disk, p), fmt.Sprintf("disk-p%v-µs", p*100))
			}
		})
	}
}

// BenchmarkCarried sends many requests at a time: what two cores carry, with
// client and provider on them.
func BenchmarkCarried(b *testing.B) {
	r := newRig(b, mockprovider.Config{Reply: "a short answer of some words"}, "")
	k := r.key("money=1000000")
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	b.Cleanup(c.CloseIdleConnections)
	body := chat("hello there", `,"max_tokens":50`)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			q, err := http.NewRequest("POST", r.front.URL+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			q.Header.Set("Authorization", "Bearer "+k.Key)
			resp, err := c.Do(q)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b.Error(resp.StatusCode)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
