// Package mockprovider is a provider of models for tests and demos. It speaks the
// formats of OpenAI and Anthropic as their own clients expect them, says what a
// script says, and has the manners of a real provider: limits on requests and
// tokens in a sliding minute, 429 with Retry-After and the usual headers, keys,
// bans, overload, latency, and faults on demand.
//
// It promises that what it tells can be known before: the same script, seed and
// requests give the same answers, usage and bill, and [Mock.Stats] is the truth
// of a provider's books: what it bills is what it sent, also to a client that
// hung up.
//
//	mock.go     configuration, keys, the way of a request
//	limit.go    sliding windows, bans
//	reply.go    what is said: script, echo, or a value of the asked schema
//	chat.go     POST /v1/chat/completions
//	responses.go POST /v1/responses
//	messages.go POST /v1/messages, /v1/messages/count_tokens
//	openai.go   embeddings, models, errors and headers of OpenAI
//	stream.go   events, their pace, and faults
//	stats.go    the books
package mockprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/model"
)

// Config says what a provider is like. The zero Config answers every request
// at once with the last thing that the user said.
type Config struct {
	Script  *model.Script            // nil: Reply, or an echo
	Scripts map[string]*model.Script // by model; others have Script
	Reply   string                   // what is always said without a script
	Price   model.Price              // where there is no script
	Models  []string                 // the only ones there are; empty: any name will do
	Keys    []string                 // the only ones that are accepted; empty: any, or none

	Limits   Limits
	Overload float64 // share of requests answered with 503 or 529
	Faults   []Fault

	Latency Spread  // before the answer begins
	TTFT    Spread  // before the first token
	TPS     float64 // tokens a second in one stream; 0: as fast as they go
	Chunk   int     // words in one event of a stream; 0: one

	Seed uint64
	Log  io.Writer // one line of JSON for each request; nil: none
}

// A Mock is a provider. It is safe for concurrent use.
type Mock struct {
	config Config
	mux    *http.ServeMux
	gates  gates
	books  books

	mu      sync.Mutex
	seq     uint64             // requests so far
	failed  map[[32]byte]int   // errors of the script that a conversation had
	kept    map[string]*thread // of stored responses, by id
	keptIDs []string           // oldest first
}

// New makes a provider.
func New(c Config) *Mock {
	m := &Mock{config: c, mux: http.NewServeMux(), failed: map[[32]byte]int{}, kept: map[string]*thread{}}
	m.gates.limits = c.Limits
	for _, base := range []string{"/v1", ""} { // base URLs with and without the version
		m.mux.HandleFunc("POST "+base+"/chat/completions", m.answers(chat{}))
		m.mux.HandleFunc("POST "+base+"/responses", m.answers(responses{m}))
		m.mux.HandleFunc("POST "+base+"/embeddings", m.answers(embeddings{}))
		m.mux.HandleFunc("POST "+base+"/messages", m.answers(messages{}))
		m.mux.HandleFunc("POST "+base+"/messages/count_tokens", m.answers(counting{}))
		m.mux.HandleFunc("GET "+base+"/models", m.models)
		m.mux.HandleFunc("GET "+base+"/models/{name}", m.models)
	}
	m.mux.HandleFunc("GET /mock/stats", m.stats)
	m.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		(&exchange{mock: m, w: w, r: r, vendor: vendorOf(r)}).refuse(&problem{
			status: http.StatusNotFound, kind: notFound,
			message: fmt.Sprintf("%s %s is not here; expected /v1/chat/completions, /v1/responses, /v1/embeddings, /v1/models, /v1/messages or /v1/messages/count_tokens", r.Method, r.URL.Path),
		})
	})
	return m
}

// ServeHTTP implements [http.Handler].
func (m *Mock) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Stats are the books as they stand.
func (m *Mock) Stats() Stats { return m.books.read() }

// Idle are the books when no request is under way. A client has read the end of
// its answer a moment before that is booked.
func (m *Mock) Idle(ctx context.Context) Stats {
	m.books.idle(ctx)
	return m.books.read()
}

// A face is one way to ask and to be answered.
type face interface {
	vendor() vendor
	parse(body []byte) (*ask, *problem)
	whole(a *answer) any         // the answer in one piece
	events(s *stream, a *answer) // the answer as a stream
}

// A vendor is a house style of errors and headers.
type vendor interface {
	problem(p *problem, id string) any
	headers(h http.Header, id string, l levels, now time.Time)
	overloaded() int
}

func vendorOf(r *http.Request) vendor {
	if r.Header.Get("Anthropic-Version") != "" || strings.Contains(r.URL.Path, "/messages") {
		return anthropic{}
	}
	return openAI{}
}

// An ask is a request that was understood.
type ask struct {
	model   string
	stream  bool
	usage   bool          // a stream is to end with it
	choices int           // how many answers
	think   bool          // thoughts are to be shown, or counted
	schema  []byte        // of the text
	request model.Request // Index is how many answers the conversation holds
	extra   int           // tokens that request does not show: images, schema

	back    object                // what a response says of its request
	store   func(*answer) *thread // the conversation is kept
	texts   []int                 // tokens of what is embedded
	vectors func() []any          // what they become
	free    bool                  // nothing is said or billed
}

// maxBody is the largest request that is read.
const maxBody = 64 << 20

// An exchange is one request on its way.
type exchange struct {
	mock   *Mock
	w      http.ResponseWriter
	r      *http.Request
	vendor vendor

	seq    uint64
	rand   *rand.Rand
	begun  time.Time
	key    string // as a hash
	ask    *ask
	levels levels
	entry  Entry
}

// answers is the way of every request: heard, let in, answered, booked.
func (m *Mock) answers(f face) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{mock: m, w: w, r: r, vendor: f.vendor(), begun: time.Now(), key: hashed(keyOf(r))}
		m.mu.Lock()
		m.seq++
		x.seq = m.seq
		m.mu.Unlock()
		x.rand = rand.New(rand.NewPCG(m.config.Seed, x.seq))
		x.entry = Entry{Time: x.begun, Key: x.key, Path: r.URL.Path}
		done := m.books.enter(x.key)
		defer func() { done(x.finish()) }()
		q, p := x.hear(f)
		if p != nil {
			x.refuse(p)
			return
		}
		x.ask = q
		x.entry.Model, x.entry.Stream = q.model, q.stream
		a, p := x.think(q)
		if p == nil {
			var leave func(model.Usage)
			leave, p = x.admit(a)
			if p == nil {
				defer func() { leave(a.billed) }()
			}
		}
		if p != nil {
			x.refuse(p)
			return
		}
		x.say(f, a)
	}
}

// hear reads and understands the request.
func (x *exchange) hear(f face) (*ask, *problem) {
	if keys := x.mock.config.Keys; len(keys) > 0 && !slices.Contains(keys, keyOf(x.r)) {
		return nil, &problem{status: http.StatusUnauthorized, kind: badKey, message: "the key is missing or wrong; expected the one given with --key"}
	}
	if x.mock.gates.banned(x.key) {
		return nil, &problem{status: http.StatusForbidden, kind: forbidden, message: "this key is banned: it went on asking after too many answers with status 429"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	if err != nil {
		return nil, &problem{status: http.StatusRequestEntityTooLarge, kind: badRequest, message: fmt.Sprintf("the body cannot be read, or is larger than %d bytes", maxBody)}
	}
	q, p := f.parse(body)
	if p != nil {
		return nil, p
	}
	if all := x.mock.config.Models; len(all) > 0 && !slices.Contains(all, q.model) {
		return nil, &problem{status: http.StatusNotFound, kind: noModel, message: fmt.Sprintf("the model %q does not exist; expected one of %s", q.model, strings.Join(all, ", "))}
	}
	if x.mock.config.Overload > 0 && x.rand.Float64() < x.mock.config.Overload {
		return nil, x.overloaded()
	}
	return q, nil
}

func (x *exchange) overloaded() *problem {
	return &problem{status: x.vendor.overloaded(), kind: overloaded, message: "overloaded for the moment; try again later"}
}

// admit asks the limits. What it returns gives the place back.
func (x *exchange) admit(a *answer) (leave func(model.Usage), p *problem) {
	asked := a.usage.Output
	if a.ask.request.MaxOutput > 0 {
		asked = int64(a.ask.request.MaxOutput) * int64(max(a.ask.choices, 1))
	}
	t, levels, over := x.mock.gates.enter(x.key, x.ask.model, x.begun, a.usage.Input, asked)
	x.levels = levels
	if over != nil {
		return nil, over.problem(x.ask.model)
	}
	return func(u model.Usage) { x.mock.gates.leave(t, u) }, nil
}

// say sends the answer after its latency, and books what was sent.
func (x *exchange) say(f face, a *answer) {
	c := &x.mock.config
	a.billed = model.Usage{Input: a.usage.Input, CacheRead: a.usage.CacheRead, CacheWrite: a.usage.CacheWrite}
	defer func() { x.entry.Usage, x.entry.nano = a.billed, a.price.Cost(a.billed) }()
	s := &stream{x: x, fault: x.fault(), chunk: max(c.Chunk, 1), total: a.size(), first: c.TTFT.draw(x.rand)}
	x.entry.Fault = s.fault.Kind
	if c.TPS > 0 {
		s.pause = time.Duration(float64(time.Second) / c.TPS)
	}
	if !x.wait(c.Latency.draw(x.rand) + a.latency) {
		return
	}
	a.tell(s.fault)
	if x.ask.stream {
		x.head(http.StatusOK, true)
		s.flush()
		f.events(s, a)
	} else {
		if s.fault.Kind == Hang {
			s.hang()
		}
		if s.err != nil || !x.wait(s.first+s.pause*time.Duration(a.usage.Output)) {
			return
		}
		x.head(http.StatusOK, false)
		s.sent = s.total
		s.whole(f.whole(a))
	}
	a.billed.Output = a.usage.Output
	if s.err != nil && s.total > 0 {
		a.billed.Output = s.share(a.usage.Output)
	}
	if s.err == errCut {
		panic(http.ErrAbortHandler) // what breaks a connection
	}
}

// wait is false when the client is gone before d is over.
func (x *exchange) wait(d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-x.r.Context().Done():
		}
	}
	if x.r.Context().Err() != nil {
		x.entry.Aborted = true
		return false
	}
	return true
}

// head sends the headers that every answer has.
func (x *exchange) head(status int, stream bool) {
	h := x.w.Header()
	x.vendor.headers(h, x.id(), x.levels, x.begun)
	h.Set("Content-Type", "application/json")
	if stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
	}
	x.entry.Status = status
	x.w.WriteHeader(status)
}

func (x *exchange) id() string { return fmt.Sprintf("req_%012d", x.seq) }

// refuse answers with an error.
func (x *exchange) refuse(p *problem) {
	if x.begun.IsZero() {
		x.begun = time.Now()
	}
	if p.kind == lost {
		x.entry.Aborted = true
		panic(http.ErrAbortHandler)
	}
	if p.status == http.StatusTooManyRequests && x.key != "" {
		x.mock.gates.refused(x.key, x.begun)
	}
	if p.status == http.StatusTooManyRequests && p.wait == 0 {
		p.wait = time.Second
	}
	if p.wait > 0 {
		h := x.w.Header()
		h.Set("Retry-After", fmt.Sprint(int64((p.wait+time.Second-1)/time.Second)))
		h.Set("Retry-After-Ms", fmt.Sprint(p.wait.Milliseconds()+1))
	}
	x.head(p.status, false)
	b, err := encode(x.vendor.problem(p, x.id()))
	if err == nil {
		_, err = x.w.Write(b)
	}
	x.entry.Error = p.message
	x.entry.Aborted = err != nil
}

// finish is the entry for the books.
func (x *exchange) finish() Entry {
	x.entry.Millis = time.Since(x.begun).Milliseconds()
	if x.mock.config.Log != nil {
		if b, err := encode(x.entry); err == nil {
			x.mock.mu.Lock()
			defer x.mock.mu.Unlock()
			_, _ = x.mock.config.Log.Write(append(b, '\n')) // a log that is full stops nothing
		}
	}
	return x.entry
}

// keyOf is the key that a client showed, in either house style.
func keyOf(r *http.Request) string {
	if k := r.Header.Get("X-Api-Key"); k != "" {
		return k
	}
	a := r.Header.Get("Authorization")
	if k, ok := strings.CutPrefix(a, "Bearer "); ok {
		return k
	}
	return a
}

// hashed names a key without telling it.
func hashed(key string) string {
	if key == "" {
		return "none"
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// HashKey is the name of a key in [Stats].
func HashKey(key string) string { return hashed(key) }

// A problem is an error before a face has put it into words.
type problem struct {
	status  int
	kind    kind
	message string
	wait    time.Duration // Retry-After; 0: not said
	what    string        // of a limit: requests, tokens ...
	never   bool          // the request is larger than the limit
}

type kind string

const (
	badRequest  kind = "bad request"
	badKey      kind = "bad key"
	forbidden   kind = "forbidden"
	notFound    kind = "not found"
	noModel     kind = "no model"
	tooLong     kind = "too long"
	rateLimited kind = "rate limited"
	overloaded  kind = "overloaded"
	lost        kind = "lost" // no answer at all
)

func bad(format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, kind: badRequest, message: fmt.Sprintf(format, args...)}
}
