package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/mock"
)

// BenchmarkAdded asks the provider, bare and through the gateway, one request
// after the other, and tells what the gateway adds to the median and to the
// 99th percentile.
func BenchmarkAdded(b *testing.B) {
	for _, stream := range []bool{false, true} {
		b.Run(fmt.Sprintf("stream=%v", stream), func(b *testing.B) {
			r := newRig(b, mock.Config{Reply: "a short answer of some words"}, "")
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
			for range 50 {
				ask(r.up.URL, providerKey)
				ask(r.front.URL, k.Key)
			}
			var bare, through []time.Duration
			for b.Loop() {
				bare = append(bare, ask(r.up.URL, providerKey))
				through = append(through, ask(r.front.URL, k.Key))
			}
			at := func(d []time.Duration, p float64) float64 {
				slices.Sort(d)
				return float64(d[int(p*float64(len(d)-1))].Microseconds())
			}
			for _, p := range []float64{0.5, 0.99} {
				b.ReportMetric(at(bare, p), fmt.Sprintf("bare-p%v-µs", p*100))
				b.ReportMetric(at(through, p)-at(bare, p), fmt.Sprintf("added-p%v-µs", p*100))
			}
		})
	}
}

// BenchmarkCarried sends many requests at a time: what two cores carry, with
// client and provider on them.
func BenchmarkCarried(b *testing.B) {
	r := newRig(b, mock.Config{Reply: "a short answer of some words"}, "")
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
