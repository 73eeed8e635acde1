package mockprovider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/model"
)

// A Tally counts requests.
type Tally struct {
	Requests  int64  `json:"requests"`
	OK        int64  `json:"ok"`
	Refused   int64  `json:"refused"`    // 429
	Errors    int64  `json:"errors"`     // other answers that are not 200
	Aborted   int64  `json:"aborted"`    // the client disconnected, or a fault cut it off
	Input     int64  `json:"input"`      // tokens, billed
	Output    int64  `json:"output"`     // tokens, billed
	Nano      int64  `json:"nano"`       // nano-dollars, billed
	Dollars   string `json:"dollars"`    // nano as dollars
	InFlight  int    `json:"in_flight"`  // now
	Most      int    `json:"concurrent"` // the highest number at one time
	FirstSeen int64  `json:"first_seen"` // milliseconds since 1970
	LastSeen  int64  `json:"last_seen"`
}

// Stats count what was asked and billed.
type Stats struct {
	Tally
	Statuses map[string]int64 `json:"statuses"`
	Keys     map[string]Tally `json:"keys"`   // by the hash of the key, or "none"
	Models   map[string]Tally `json:"models"` // of the requests that could be parsed
}

// An Entry is the log line of one request.
type Entry struct {
	Time    time.Time   `json:"time"`
	Key     string      `json:"key"`
	Path    string      `json:"path"`
	Model   string      `json:"model,omitempty"`
	Status  int         `json:"status"`
	Stream  bool        `json:"stream,omitempty"`
	Usage   model.Usage `json:"usage"`
	Millis  int64       `json:"ms"`
	Aborted bool        `json:"aborted,omitempty"`
	Fault   string      `json:"fault,omitempty"`
	Error   string      `json:"error,omitempty"`

	nano int64
}

// statistics count requests as they begin and end.
type statistics struct {
	mu     sync.Mutex
	all    Tally
	status map[string]int64
	keys   map[string]*Tally
	models map[string]*Tally
	left   chan struct{} // closed when a request ends; nil if nothing waits
}

// begin counts a new request. The result counts its end.
func (b *statistics) begin(key string) func(Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys == nil {
		b.keys, b.models, b.status = map[string]*Tally{}, map[string]*Tally{}, map[string]int64{}
	}
	k := tallyOf(b.keys, key)
	b.all.begin()
	k.begin()
	return func(e Entry) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.status[strconv.Itoa(e.Status)]++
		b.all.end(e)
		k.end(e)
		b.all.InFlight--
		k.InFlight--
		if b.left != nil {
			close(b.left)
			b.left = nil
		}
		if e.Model != "" {
			m := tallyOf(b.models, e.Model)
			m.Requests++
			m.end(e)
			m.FirstSeen = cmp.Or(m.FirstSeen, e.Time.UnixMilli())
		}
	}
}

func tallyOf(m map[string]*Tally, k string) *Tally {
	t := m[k]
	if t == nil {
		t = &Tally{}
		m[k] = t
	}
	return t
}

func (t *Tally) begin() {
	if t.FirstSeen == 0 {
		t.FirstSeen = time.Now().UnixMilli()
	}
	t.Requests++
	t.InFlight++
	t.Most = max(t.Most, t.InFlight)
}

func (t *Tally) end(e Entry) {
	switch {
	case e.Status == http.StatusOK:
		t.OK++
	case e.Status == http.StatusTooManyRequests:
		t.Refused++
	default:
		t.Errors++
	}
	if e.Aborted {
		t.Aborted++
	}
	t.Input += e.Usage.Input + e.Usage.CacheRead + e.Usage.CacheWrite
	t.Output += e.Usage.Output
	t.Nano += e.nano
	t.LastSeen = time.Now().UnixMilli()
}

// waitIdle waits until no request is under way, or ctx ends.
func (b *statistics) waitIdle(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		if b.all.InFlight == 0 {
			b.mu.Unlock()
			return
		}
		if b.left == nil {
			b.left = make(chan struct{})
		}
		left := b.left
		b.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
		}
	}
}

func (b *statistics) snapshot() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{Tally: b.all.shown(), Statuses: maps.Clone(b.status), Keys: map[string]Tally{}, Models: map[string]Tally{}}
	for k, t := range b.keys {
		s.Keys[k] = t.shown()
	}
	for k, t := range b.models {
		s.Models[k] = t.shown()
	}
	return s
}

func (t Tally) shown() Tally {
	t.Dollars = abi.FormatMoney(t.Nano)
	return t
}

// stats is GET /mock/stats. With ?idle=1 it waits until no request is under
// way.
func (m *Mock) stats(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("idle") != "" {
		m.statistics.waitIdle(r.Context())
	}
	b, err := encode(m.Stats())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // a client that disconnected does not need it
}

// encode writes v as JSON without the escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
