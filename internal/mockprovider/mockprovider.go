// Package mockprovider is a provider for tests and demos. It speaks the formats
// of OpenAI and Anthropic as their own client libraries expect them, answers by
// a script, and limits like a real provider: requests and tokens in a sliding
// minute, 429 with Retry-After and the usual headers, keys, bans, overload,
// latency, and faults on demand.
//
// The same script, seed and requests give the same answers, usage and bill.
// [Mock.Stats] is the truth about the bill: the provider bills what it sent,
// also to a client that disconnected.
//
//   - mockprovider.go: configuration, keys, the path of a request
//   - limit.go: sliding windows, bans
//   - reply.go: the content of an answer: script, echo, or a value of a schema
//   - chat.go: POST /v1/chat/completions
//   - responses.go: POST /v1/responses
//   - messages.go: POST /v1/messages, /v1/messages/count_tokens
//   - openai.go: embeddings, models, errors and headers of OpenAI
//   - stream.go: events, their pace, and faults
//   - stats.go: what was asked and billed
//
// The formats are written here a second time on purpose: a mistake in
// internal/provider/format must not hide in a provider that shares its tables.
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

// A Config describes a provider. The zero Config answers every request at once
// with the last text of the user.
type Config struct {
	Script  *model.Script            // nil: Reply, or an echo
	Scripts map[string]*model.Script // by model; other models use Script
	Reply   string                   // the text of every answer without a script
	Price   model.Price              // without a script
	Known   bool                     // a model without a price has the one of Kern's table
	Models  []string                 // the models there are; empty: any name
	Keys    []string                 // the keys that are accepted; empty: any key, or none

	Limits   Limits
	Overload float64 // share of requests answered with 503 or 529
	Faults   []Fault

	Latency Spread  // before the answer begins
	TTFT    Spread  // before the first token
	TPS     float64 // tokens a second in one stream; 0: no pause
	Chunk   int     // words in one event of a stream; 0: one

	Seed uint64
	Log  io.Writer // one line of JSON for each request; nil: none
}

// A Mock is a provider. It is safe for concurrent use.
type Mock struct {
	config     Config
	mux        *http.ServeMux
	limiter    limiter
	statistics statistics

	mu        sync.Mutex
	seq       uint64                   // requests so far
	failed    map[[32]byte]int         // errors of the script that a conversation got
	stored    map[string]*conversation // stored responses, by id
	storedIDs []string                 // oldest first
}

// New returns a provider.
func New(c Config) *Mock {
	m := &Mock{config: c, mux: http.NewServeMux(), failed: map[[32]byte]int{}, stored: map[string]*conversation{}}
	m.limiter.limits = c.Limits
	for _, base := range []string{"/v1", ""} { // base URLs with and without the version
		m.mux.HandleFunc("POST "+base+"/chat/completions", m.handle(chat{}))
		m.mux.HandleFunc("POST "+base+"/responses", m.handle(responses{m}))
		m.mux.HandleFunc("POST "+base+"/embeddings", m.handle(embeddings{}))
		m.mux.HandleFunc("POST "+base+"/messages", m.handle(messages{}))
		m.mux.HandleFunc("POST "+base+"/messages/count_tokens", m.handle(countTokens{}))
		m.mux.HandleFunc("GET "+base+"/models", m.models)
		m.mux.HandleFunc("GET "+base+"/models/{name}", m.models)
	}
	m.mux.HandleFunc("GET /mock/stats", m.stats)
	m.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		(&handler{mock: m, w: w, r: r, vendor: vendorOf(r)}).refuse(&problem{
			status: http.StatusNotFound, kind: notFound,
			message: fmt.Sprintf("%s %s is not here; expected /v1/chat/completions, /v1/responses, /v1/embeddings, /v1/models, /v1/messages or /v1/messages/count_tokens", r.Method, r.URL.Path),
		})
	})
	return m
}

// ServeHTTP implements [http.Handler].
func (m *Mock) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Stats returns what was asked and billed so far.
func (m *Mock) Stats() Stats { return m.statistics.snapshot() }

// Idle returns the Stats once no request is under way. A client reads the end
// of its answer a moment before the request is counted.
func (m *Mock) Idle(ctx context.Context) Stats {
	m.statistics.waitIdle(ctx)
	return m.statistics.snapshot()
}

// A format is one API of a provider.
type format interface {
	vendor() vendor
	parse(body []byte) (*request, *problem)
	body(a *answer) any          // the body of an answer
	events(s *stream, a *answer) // the events of a streamed answer
}

// A vendor writes errors and headers as one company does.
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

// A request is the content of a request in any format.
type request struct {
	model        string
	stream       bool
	usage        bool          // a stream ends with the usage
	choices      int           // number of answers
	showThoughts bool          // thoughts are shown, or counted
	schema       []byte        // of the text, if the answer must be JSON
	input        model.Request // Index counts the answers in the conversation
	extra        int           // tokens that are not in input: images, schema

	echoed   object                      // fields of the request that a response repeats
	store    func(*answer) *conversation // stores the conversation
	texts    []int                       // tokens of each embedded text
	vectors  func() []any                // their vectors
	noCharge bool                        // the answer is empty and free
}

// maxBody bounds the body of a request.
const maxBody = 64 << 20

// A handler serves one request.
type handler struct {
	mock   *Mock
	w      http.ResponseWriter
	r      *http.Request
	vendor vendor

	seq    uint64
	rand   *rand.Rand
	begun  time.Time
	key    string // as a hash
	req    *request
	levels levels
	entry  Entry
}

// handle is the path of every request: read it, find the reply, enter the
// limits, answer, count.
func (m *Mock) handle(f format) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &handler{mock: m, w: w, r: r, vendor: f.vendor(), begun: time.Now(), key: hashed(keyOf(r))}
		m.mu.Lock()
		m.seq++
		x.seq = m.seq
		m.mu.Unlock()
		x.rand = rand.New(rand.NewPCG(m.config.Seed, x.seq))
		x.entry = Entry{Time: x.begun, Key: x.key, Path: r.URL.Path}
		// Count the end of the request also if a fault breaks the connection by a panic.
		done := m.statistics.begin(x.key)
		defer func() { done(x.closeEntry()) }()
		q, p := x.readRequest(f)
		if p != nil {
			x.refuse(p)
			return
		}
		x.req = q
		x.entry.Model, x.entry.Stream = q.model, q.stream
		a, p := x.findReply(q)
		if p == nil {
			var leave func(model.Usage)
			leave, p = x.enterLimits(a)
			if p == nil {
				defer func() { leave(a.billed) }()
			}
		}
		if p != nil {
			x.refuse(p)
			return
		}
		x.sendAnswer(f, a)
	}
}

// readRequest reads and parses the request.
func (x *handler) readRequest(f format) (*request, *problem) {
	if keys := x.mock.config.Keys; len(keys) > 0 && !slices.Contains(keys, keyOf(x.r)) {
		return nil, &problem{status: http.StatusUnauthorized, kind: badKey, message: "the key is missing or wrong; expected the one given with --key"}
	}
	if x.mock.limiter.banned(x.key) {
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

func (x *handler) overloaded() *problem {
	return &problem{status: x.vendor.overloaded(), kind: overloaded, message: "overloaded for the moment; try again later"}
}

// enterLimits takes the request from the limits. leave gives the unused part
// back.
func (x *handler) enterLimits(a *answer) (leave func(model.Usage), p *problem) {
	asked := a.usage.Output
	if a.req.input.MaxOutput > 0 {
		asked = int64(a.req.input.MaxOutput) * int64(max(a.req.choices, 1))
	}
	t, levels, over := x.mock.limiter.enter(x.key, x.req.model, x.begun, a.usage.Input, asked)
	x.levels = levels
	if over != nil {
		return nil, over.problem(x.req.model)
	}
	return func(u model.Usage) { x.mock.limiter.leave(t, u) }, nil
}

// sendAnswer sends the answer after its latency and counts what was sent.
func (x *handler) sendAnswer(f format, a *answer) {
	c := &x.mock.config
	a.billed = model.Usage{Input: a.usage.Input, CacheRead: a.usage.CacheRead, CacheWrite: a.usage.CacheWrite}
	defer func() {
		x.entry.Usage, x.entry.nano = a.billed, c.priceOf(a.req.model, a.usage.Input+a.usage.CacheRead+a.usage.CacheWrite).Cost(a.billed)
	}()
	s := &stream{x: x, fault: x.fault(), chunk: max(c.Chunk, 1), total: a.paidBytes(), first: c.TTFT.draw(x.rand)}
	x.entry.Fault = s.fault.Kind
	if c.TPS > 0 {
		s.pause = time.Duration(float64(time.Second) / c.TPS)
	}
	if !x.pause(c.Latency.draw(x.rand) + a.latency) {
		return
	}
	a.reportUsage(s.fault)
	if x.req.stream {
		x.writeHeaders(http.StatusOK, true)
		s.flush()
		f.events(s, a)
	} else {
		if s.fault.Kind == Hang {
			s.hang()
		}
		if s.err != nil || !x.pause(s.first+s.pause*time.Duration(a.usage.Output)) {
			return
		}
		x.writeHeaders(http.StatusOK, false)
		s.sent = s.total
		s.writeBody(f.body(a))
	}
	a.billed.Output = a.usage.Output
	if s.err != nil && s.total > 0 {
		a.billed.Output = s.partSent(a.usage.Output)
	}
	if s.err == errCut {
		panic(http.ErrAbortHandler) // breaks the connection
	}
}

// pause waits for d. It returns false if the client disconnects first.
func (x *handler) pause(d time.Duration) bool {
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

// writeHeaders sends the headers of every answer.
func (x *handler) writeHeaders(status int, stream bool) {
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

func (x *handler) id() string { return fmt.Sprintf("req_%012d", x.seq) }

// refuse answers with an error.
func (x *handler) refuse(p *problem) {
	if x.begun.IsZero() {
		x.begun = time.Now()
	}
	if p.kind == noAnswer {
		x.entry.Aborted = true
		panic(http.ErrAbortHandler)
	}
	if p.status == http.StatusTooManyRequests && x.key != "" {
		x.mock.limiter.countRefusal(x.key, x.begun)
	}
	if p.status == http.StatusTooManyRequests && p.wait == 0 {
		p.wait = time.Second
	}
	if p.wait > 0 {
		h := x.w.Header()
		h.Set("Retry-After", fmt.Sprint(int64((p.wait+time.Second-1)/time.Second)))
		h.Set("Retry-After-Ms", fmt.Sprint(p.wait.Milliseconds()+1))
	}
	x.writeHeaders(p.status, false)
	b, err := encode(x.vendor.problem(p, x.id()))
	if err == nil {
		_, err = x.w.Write(b)
	}
	x.entry.Error = p.message
	x.entry.Aborted = err != nil
}

// closeEntry completes the entry of the request and logs it.
func (x *handler) closeEntry() Entry {
	x.entry.Millis = time.Since(x.begun).Milliseconds()
	if x.mock.config.Log != nil {
		if b, err := encode(x.entry); err == nil {
			x.mock.mu.Lock()
			defer x.mock.mu.Unlock()
			_, _ = x.mock.config.Log.Write(append(b, '\n')) // a full log stops nothing
		}
	}
	return x.entry
}

// keyOf returns the key of a client, from the header of either vendor.
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

// hashed names a key without showing it.
func hashed(key string) string {
	if key == "" {
		return "none"
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// HashKey returns the name of a key in [Stats].
func HashKey(key string) string { return hashed(key) }

// A problem is an error before a vendor words it.
type problem struct {
	status  int
	kind    kind
	message string
	wait    time.Duration // Retry-After; 0: none
	what    string        // the limit: requests, tokens ...
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
	noAnswer    kind = "noAnswer" // no answer at all
)

func bad(format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, kind: badRequest, message: fmt.Sprintf(format, args...)}
}
