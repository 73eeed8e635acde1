// Package cassette records real HTTP traffic with a provider and replays it in
// tests. [Recorder] and [Player] are RoundTrippers for the HTTP client of
// provider.Config.
//
// A cassette is a text file with one exchange per line, as JSON. Of the request it
// holds method, path and body. Of the answer it holds the status, the headers that
// Kern reads, the text, and the sizes of the pieces in which the text came.
//
// A cassette never holds keys: it drops the request headers and replaces their
// keys everywhere else. A request that differs from the recorded one is an error
// that shows the difference.
package cassette

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// An exchange is one line of a cassette.
type exchange struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body,omitempty"` // as sent; a JSON string if the body is not JSON
	Status int             `json:"status"`
	Header http.Header     `json:"header,omitempty"`
	Text   string          `json:"text,omitempty"`  // the whole answer
	Sizes  []int           `json:"sizes,omitempty"` // sizes of the pieces in which Text came
	Broke  string          `json:"broke,omitempty"` // the error that cut the answer
}

// sizesMatch reports whether the sizes add up to the length of the text.
func (x exchange) sizesMatch() bool {
	sum := 0
	for _, n := range x.Sizes {
		if n <= 0 || n > len(x.Text)-sum {
			return false
		}
		sum += n
	}
	return sum == len(x.Text)
}

// A Recorder is an [http.RoundTripper] that writes all its exchanges to a cassette.
type Recorder struct {
	inner http.RoundTripper

	mu  sync.Mutex
	f   *os.File
	err error // the first error of writing an exchange
}

// Record creates a cassette at path, which must not exist. The Recorder sends
// requests by inner; nil means [http.DefaultTransport]. The caller closes it.
func Record(path string, inner http.RoundTripper) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if inner == nil {
		inner = http.DefaultTransport
	}
	return &Recorder{inner: inner, f: f}, nil
}

// Close closes the file. It returns an error if an exchange was not written.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.f.Close())
}

// RoundTrip implements [http.RoundTripper]. It writes the exchange when the answer
// is read to its end or closed.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := drain(req)
	if err != nil {
		return nil, err
	}
	// A RoundTripper may not change the request of its caller.
	sent := req.Clone(req.Context())
	sent.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := r.inner.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	keys := keysOf(req.Header)
	x := &exchange{Method: req.Method, Path: req.URL.Path, Body: asJSON(hide(string(body), keys)), Status: resp.StatusCode, Header: http.Header{}}
	for name, values := range resp.Header {
		if keptHeader(name) {
			for _, v := range values {
				x.Header[name] = append(x.Header[name], hide(v, keys))
			}
		}
	}
	resp.Body = &recordedBody{inner: resp.Body, x: x, write: func() { r.write(x, keys) }}
	return resp, nil
}

func (r *Recorder) write(x *exchange, keys []string) {
	// A key may span two pieces, so a text with a key becomes a single piece.
	if clean := hide(x.Text, keys); clean != x.Text {
		x.Text, x.Sizes = clean, []int{len(clean)}
	}
	x.Broke = hide(x.Broke, keys)
	var err error
	// JSON would replace the other bytes, and the replay would differ silently.
	if !utf8.ValidString(x.Text) {
		err = fmt.Errorf("%s %s: the answer is not UTF-8, and a cassette holds text", x.Method, x.Path)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.f.Write(append(encode(x), '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

func drain(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

func keysOf(h http.Header) (keys []string) {
	for _, v := range []string{strings.TrimPrefix(h.Get("Authorization"), "Bearer "), h.Get("X-Api-Key")} {
		if v != "" {
			keys = append(keys, v)
		}
	}
	return keys
}

// hide replaces keys in s, both in plain form and as written in JSON.
func hide(s string, keys []string) string {
	for _, k := range keys {
		quoted := string(encode(k))
		s = strings.NewReplacer(k, "[key]", quoted[1:len(quoted)-1], "[key]").Replace(s)
	}
	return s
}

// encode writes v as JSON without the escapes for HTML, because people read
// cassettes.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only strings, numbers and valid JSON are given here
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func keptHeader(name string) bool {
	name = strings.ToLower(name)
	return name == "content-type" || strings.HasPrefix(name, "retry-after") || strings.Contains(name, "ratelimit-")
}

func asJSON(s string) json.RawMessage {
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	return encode(s)
}

type recordedBody struct {
	inner io.ReadCloser
	x     *exchange
	text  []byte
	once  sync.Once
	write func()
}

func (b *recordedBody) done() {
	b.x.Text = string(b.text)
	b.write()
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.inner.Read(p)
	if n > 0 {
		b.text = append(b.text, p[:n]...)
		// The pieces are kept, because a reader of a stream may fail only at certain cuts.
		b.x.Sizes = append(b.x.Sizes, n)
	}
	if err != nil {
		if err != io.EOF {
			b.x.Broke = err.Error()
		}
		b.once.Do(b.done)
	}
	return n, err
}

func (b *recordedBody) Close() error {
	err := b.inner.Close()
	b.once.Do(b.done)
	return err
}

// A Player is an [http.RoundTripper] that answers from a cassette. It plays each
// exchange once. A request gets the first equal exchange that is left. Without one
// the request fails, and the error shows the difference from the next exchange.
type Player struct {
	path string

	mu   sync.Mutex
	left []exchange
}

// Replay reads a cassette and returns its Player.
func Replay(path string) (*Player, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer f.Close()
	p := &Player{path: path}
	in := bufio.NewReader(f)
	for line := 1; ; line++ {
		b, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(b)) > 0 {
			var x exchange
			dec := json.NewDecoder(bytes.NewReader(b))
			// A field with a typo would be ignored, and the test would prove less than it says.
			dec.DisallowUnknownFields()
			if err := dec.Decode(&x); err != nil {
				return nil, fmt.Errorf("%s:%d: not an exchange: %w", path, line, err)
			}
			if !x.sizesMatch() {
				return nil, fmt.Errorf("%s:%d: the sizes do not add up to the text", path, line)
			}
			p.left = append(p.left, x)
		}
		if err == io.EOF {
			return p, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
}

// Left returns the number of exchanges that are not played yet.
func (p *Player) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.left)
}

// RoundTrip implements [http.RoundTripper]. It takes the first equal exchange.
func (p *Player) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := drain(req)
	if err != nil {
		return nil, err
	}
	got := exchange{Method: req.Method, Path: req.URL.Path, Body: asJSON(hide(string(body), keysOf(req.Header)))}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Concurrent requests arrive in any order, so each takes the first exchange that fits.
	for i, x := range p.left {
		if x.differs(got) == "" {
			p.left = slices.Delete(p.left, i, i+1)
			return &http.Response{
				Status: http.StatusText(x.Status), StatusCode: x.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
				Header: x.Header, Body: &playedBody{ctx: req.Context(), x: x}, ContentLength: -1, Request: req,
			}, nil
		}
	}
	if len(p.left) == 0 {
		return nil, fmt.Errorf("%s: %s %s, but the cassette is at its end", p.path, got.Method, got.Path)
	}
	return nil, fmt.Errorf("%s: the request is not the recorded one: %s", p.path, p.left[0].differs(got))
}

// differs describes the first difference of got from the recorded request. It is
// empty if the requests are equal.
func (x exchange) differs(got exchange) string {
	if x.Method != got.Method || x.Path != got.Path {
		return fmt.Sprintf("recorded %s %s, got %s %s", x.Method, x.Path, got.Method, got.Path)
	}
	if bytes.Equal(x.Body, got.Body) {
		return ""
	}
	want, now := map[string]string{}, map[string]string{}
	flatten(want, "", x.Body)
	flatten(now, "", got.Body)
	all := maps.Clone(want)
	maps.Copy(all, now)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		if want[at] != now[at] {
			return fmt.Sprintf("at %q recorded %s, got %s", at, clip(want[at]), clip(now[at]))
		}
	}
	return ""
}

// flatten puts each value of a JSON text into to, by its JSON pointer. Objects and
// arrays get entries too, so that a difference in kind shows.
func flatten(to map[string]string, at string, text json.RawMessage) {
	var object map[string]json.RawMessage
	var array []json.RawMessage
	switch text = bytes.TrimSpace(text); {
	case len(text) > 0 && text[0] == '{' && json.Unmarshal(text, &object) == nil:
		to[at] = "an object"
		for k, v := range object {
			flatten(to, at+"/"+k, v)
		}
	case len(text) > 0 && text[0] == '[' && json.Unmarshal(text, &array) == nil:
		to[at] = "an array"
		for i, v := range array {
			flatten(to, at+"/"+strconv.Itoa(i), v)
		}
	default:
		to[at] = string(text)
	}
}

func clip(s string) string {
	const most = 80
	switch {
	case s == "":
		return "nothing"
	case len(s) > most:
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// playedBody is the body of a replayed answer. It returns the pieces in their
// recorded sizes.
type playedBody struct {
	ctx context.Context
	x   exchange
}

func (b *playedBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b.x.Sizes) == 0 {
		if b.x.Broke != "" {
			return 0, errors.New(b.x.Broke)
		}
		return 0, io.EOF
	}
	n := copy(p, b.x.Text[:b.x.Sizes[0]])
	b.x.Text = b.x.Text[n:]
	if b.x.Sizes[0] -= n; b.x.Sizes[0] == 0 {
		b.x.Sizes = b.x.Sizes[1:]
	}
	return n, nil
}

func (b *playedBody) Close() error { return nil }
