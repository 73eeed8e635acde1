package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A load is many clients that use one key at the same time.
type load struct {
	url, key, model string
	requests        int
	stream          bool
	hangUp          bool // every third client hangs up in the middle of its answer
	clients         int  // requests at a time; 0: all of them
	patience        time.Duration
}

// tally counts how the requests of a load ended.
type tally struct {
	mu                               sync.Mutex
	answered, refused, hungUp, broke int
	took                             []time.Duration // of the answered
	failures                         map[string]*failures
}

// failures are answers without text from the model, with the first of each kind.
type failures struct {
	n     int
	first string
}

// maxTokens is the output maximum of each request.
const maxTokens = 64

// run sends the requests and returns when all have ended. A request that finds no
// server is sent again, as clients do. A request that was cut off is not, because its
// outcome is unknown.
func (l *load) run(ctx context.Context) *tally {
	t := &tally{failures: make(map[string]*failures)}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.requests, DisableCompression: true}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	room := make(chan struct{}, cmp.Or(l.clients, l.requests))
	for i := range l.requests {
		room <- struct{}{}
		wg.Go(func() {
			l.sendUntilEnd(ctx, client, i, t)
			<-room
		})
	}
	wg.Wait()
	return t
}

func (l *load) sendUntilEnd(ctx context.Context, client *http.Client, i int, t *tally) {
	start := time.Now()
	for {
		status, body, err := l.send(ctx, client, i)
		t.mu.Lock()
		done := t.count(l.stream, status, body, err, time.Since(start))
		if !done && (ctx.Err() != nil || time.Since(start) > l.patience) {
			t.broke++
			t.keepFailure(fmt.Sprint(status), cmp.Or(body, fmt.Sprint(err)))
			done = true
		}
		t.mu.Unlock()
		if done {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond): // no server yet
		case <-ctx.Done():
		}
	}
}

var errHungUp = errors.New("the client hung up")

// keepFailure counts an answer without text, and keeps the first of its kind.
func (t *tally) keepFailure(what, body string) {
	s := t.failures[what]
	if s == nil {
		s = &failures{first: body}
		t.failures[what] = s
	}
	s.n++
}

// count counts how a request ended. It returns false if the request must be sent again.
func (t *tally) count(stream bool, status int, body string, err error, took time.Duration) bool {
	whole := !stream || strings.HasSuffix(strings.TrimSpace(body), "[DONE]")
	switch {
	case errors.Is(err, errHungUp):
		t.hungUp++
	case err != nil && status == 0:
		return false // no server
	case err != nil:
		t.broke++
		t.keepFailure("cut off", err.Error())
	case status == http.StatusOK && whole && !strings.Contains(body, `"error"`):
		t.answered++
		t.took = append(t.took, took)
	case status == http.StatusServiceUnavailable:
		return false
	case status >= 400 && status < 500 || status == http.StatusOK:
		t.refused++
		t.keepFailure(fmt.Sprint(status), body)
	default:
		t.broke++
		t.keepFailure(fmt.Sprint(status), body)
	}
	return true
}

func (l *load) send(ctx context.Context, client *http.Client, i int) (status int, body string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req := map[string]any{"model": l.model, "stream": l.stream, "max_tokens": maxTokens,
		"messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("question %d", i)}}}
	b, err := json.Marshal(req)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(l.url, "/")+"/chat/completions", bytes.NewReader(b))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+l.key)
	res, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	if l.hangUp && i%3 == 0 && res.StatusCode == http.StatusOK {
		return res.StatusCode, "", l.readAndHangUp(res.Body, i, cancel)
	}
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, string(all), err
}

// readAndHangUp reads a few lines of an answer, a different number for each client,
// and hangs up.
func (l *load) readAndHangUp(r io.Reader, i int, cancel context.CancelCauseFunc) error {
	lines := bufio.NewScanner(r)
	for range i % 20 {
		if !lines.Scan() {
			break
		}
	}
	cancel(errHungUp)
	return errHungUp
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}
