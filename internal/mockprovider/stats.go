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
	Aborted   int64  `json:"aborted"`    // the client hung up, or was cut off
	Input     int64  `json:"input"`      // tokens, billed
	Output    int64  `json:"output"`     // tokens, billed
	Nano      int64  `json:"nano"`       // nano-dollars, billed
	Dollars   string `json:"dollars"`    // the same
	InFlight  int    `json:"in_flight"`  // now
	Most      int    `json:"concurrent"` // the most at one time
	FirstSeen int64  `json:"first_seen"` // milliseconds since 1970
	LastSeen  int64  `json:"last_seen"`
}

// Stats are a provider's books.
type Stats struct {
	Tally
	Statuses map[string]int64 `json:"statuses"`
	Keys     map[string]Tally `json:"keys"`   // by the hash of the key, or "none"
	Models   map[string]Tally `json:"models"` // of requests that were understood
}

// An Entry is one request, as the log shows it.
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

// books are kept as requests come and go.
type books struct {
	mu     sync.Mutex
	all    Tally
	status map[string]int64
	keys   map[string]*Tally
	models map[string]*Tally
	left   chan struct{} // closed when a request leaves; nil: nobody waits for one
}

// enter books that a request came; what it returns books how it went.
func (b *books) enter(key string) func(Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys == nil {
		b.keys, b.models, b.status = map[string]*Tally{}, map[string]*Tally{}, map[string]int64{}
	}
	k := one(b.keys, key)
	b.all.came()
	k.came()
	return func(e Entry) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.status[strconv.Itoa(e.Status)]++
		b.all.went(e)
		k.went(e)
		b.all.InFlight--
		k.InFlight--
		if b.left != nil {
			close(b.left)
			b.left = nil
		}
		if e.Model != "" {
			m := one(b.models, e.Model)
			m.Requests++
			m.went(e)
			m.FirstSeen = cmp.Or(m.FirstSeen, e.Time.UnixMilli())
		}
	}
}

func one(m map[string]*Tally, k string) *Tally {
	t := m[k]
	if t == nil {
		t = &Tally{}
		m[k] = t
	}
	return t
}

func (t *Tally) came() {
	if t.FirstSeen == 0 {
		t.FirstSeen = time.Now().UnixMilli()
	}
	t.Requests++
	t.InFlight++
	t.Most = max(t.Most, t.InFlight)
}

func (t *Tally) went(e Entry) {
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

// idle waits until no request is under way, or ctx ends.
func (b *books) idle(ctx context.Context) {
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

func (b *books) read() Stats {
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

// stats is GET /mock/stats; with ?idle=1, when no request is under way.
func (m *Mock) stats(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("idle") != "" {
		m.books.idle(r.Context())
	}
	b, err := encode(m.Stats())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // a client that is gone does not want it
}

// encode writes v without the escapes that are meant for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
