package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

// hop are the headers that are about one connection, and those that would speak
// of this gateway or change what is metered.
var hop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Http2-Settings": true, "Host": true, "Content-Length": true, "Content-Encoding": true,
	"Accept-Encoding": true, "Expect": true, "Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"X-Real-Ip": true, "Origin": true, "Referer": true, "Via": true, "Alt-Svc": true, "Strict-Transport-Security": true,
}

// secret are the headers with which a program shows who it is.
var secret = []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Set-Cookie"}

// travelling copies the headers that go on: not those of the connection, nor
// those that Connection names, nor our own.
func travelling(from http.Header) http.Header {
	to := make(http.Header, len(from))
	var named []string
	for _, v := range from["Connection"] {
		for n := range strings.SplitSeq(v, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(n)))
		}
	}
	for name, values := range from {
		if !hop[name] && !slices.Contains(named, name) && !strings.HasPrefix(name, headers) {
			to[name] = values
		}
	}
	return to
}

// outbound are the headers of a request to a provider. No key of this gateway
// is among them, wherever it stood.
func outbound(from http.Header) http.Header {
	to := travelling(from)
	for name, values := range to {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, keyPrefix) }) {
			delete(to, name)
		}
	}
	to.Set("Accept-Encoding", "identity")
	to.Set("Content-Type", "application/json")
	return to
}

// plain are the headers of a request that say what it asks, and what kind of
// program does. Any other may say whose account is to pay, or where the request
// is to go on to, together with the key: of organizations, projects and
// subscriptions, of the gateways that stand before providers, and those that
// nobody here knows. A list of these is never whole.
var plain = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Content-Type": true, "User-Agent": true, "Idempotency-Key": true,
	"X-Request-Id": true, "X-Client-Request-Id": true, "Traceparent": true, "Tracestate": true,
	"Openai-Beta": true, "Anthropic-Beta": true, "Anthropic-Version": true, "Anthropic-Dangerous-Direct-Browser-Access": true,
	"X-App": true, "Originator": true, "Version": true, "Session_id": true, "Conversation_id": true,
}

const sdkHeaders = "X-Stainless-" // what the official libraries say of themselves

// credential says whether a request brings one of its own.
func credential(h http.Header) bool {
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		if v := h.Get(name); v != "" && !strings.Contains(v, keyPrefix) {
			return true
		}
	}
	return false
}

// anonymous takes out of the headers who the program is, and what only who pays
// may say.
func anonymous(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return !plain[name] && !strings.HasPrefix(name, sdkHeaders) })
}

// conceal takes credentials of the program out of words that are written down.
func conceal(s string, h http.Header) string {
	for _, name := range secret {
		for _, v := range h[name] {
			if _, after, ok := strings.Cut(v, " "); ok {
				v = after
			}
			if len(v) >= 8 {
				s = strings.ReplaceAll(s, v, "[key]")
			}
		}
	}
	return s
}

// query is what is sent on of a query: nothing of one with a key of this
// gateway in it.
func query(raw string) string {
	plain, err := url.PathUnescape(raw)
	if raw == "" || err != nil || strings.Contains(plain, keyPrefix) {
		return ""
	}
	return "?" + raw
}

// impersonal is what is sent on of a query to who does not know the program: which
// features and which version it wants.
func impersonal(query string) string {
	all, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	if err != nil {
		return ""
	}
	maps.DeleteFunc(all, func(name string, _ []string) bool { return name != "beta" && name != "api-version" })
	if len(all) == 0 {
		return ""
	}
	return "?" + all.Encode()
}

// accounts are the headers in which a provider says whose account it was.
var accounts = []string{"Openai-Organization", "Openai-Project", "Anthropic-Organization-Id"}

// shown copies the headers of an answer that a program may see.
func shown(to, from http.Header, own bool) {
	for name, values := range travelling(from) {
		if !slices.Contains(secret, name) && (own || !slices.Contains(accounts, name)) {
			to[name] = values
		}
	}
}

// streamed says that an answer comes as events.
func streamed(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// unreadable is what is wrong with an answer that is coded, though none was to
// be: nothing of it can be metered.
func unreadable(h http.Header) error {
	if coding := h.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &model.Error{Kind: model.Malformed, Message: "the answer is compressed by " + clip(coding) + ", expected one that is not"}
	}
	return nil
}

// head gives the client the head of an answer that is streamed.
func (x *exchange) head(resp *http.Response) {
	h := x.visit.w.Header()
	shown(h, resp.Header, x.pays)
	h.Set(pidHeader, strconv.FormatInt(int64(x.call.Pid), 10))
	h.Set(callHeader, strconv.FormatUint(x.call.N, 10))
	if x.stream {
		x.stands(h)
		x.begun = true
		x.visit.lend(time.Now())
		x.visit.w.WriteHeader(http.StatusOK)
		x.flush()
	}
}

// stands says what was taken and what is left.
func (x *exchange) stands(h http.Header) { stands(x.g.cfg.Kernel, x.call.Pid, h) }

func stands(k State, pid abi.Pid, h http.Header) {
	used, left := k.Stands(pid)
	h.Set(pidHeader, strconv.FormatInt(int64(pid), 10))
	h.Set(spentHeader, units(usedUnits, func(u abi.Unit) (int64, bool) { return used[u], u == abi.Money || used[u] != 0 }))
	if l := units(abi.Units, left.Get); l != "" {
		h.Set(leftHeader, l)
	}
}

// usedUnits are those that are told of what was taken: money and tokens.
const usedUnits = abi.OutputTokens + 1

// units writes amounts as money=0.25,steps=3.
func units(below abi.Unit, get func(abi.Unit) (int64, bool)) string {
	var b []byte
	for u := range below {
		if n, ok := get(u); ok {
			if len(b) > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, u.String()...), '='), abi.FormatUnit(u, n)...)
		}
	}
	return string(b)
}

// writeTime is how long a client may take to read what it was sent.
const writeTime = 60 * time.Second

// lend gives the client time to read what is written next.
func (v *visit) lend(now time.Time) {
	v.lent = now.Add(writeTime)
	_ = http.NewResponseController(v.w).SetWriteDeadline(v.lent) // a test's recorder has none
}

// write gives the client a part of its answer. The last one goes when the
// request ends, together with what HTTP puts behind it. A client that does not
// read any more is gone.
func (x *exchange) write(b []byte, last bool) {
	if x.gone || len(b) == 0 {
		return
	}
	x.spoke = time.Now()
	if x.visit.lent.Sub(x.spoke) < writeTime/2 {
		x.visit.lend(x.spoke)
	}
	if _, err := x.visit.w.Write(b); err != nil {
		x.gone = true
	} else if !last {
		x.flush()
	}
}

func (x *exchange) flush() {
	if http.NewResponseController(x.visit.w).Flush() != nil {
		x.gone = true
	}
}

// finish gives the client the end of its answer, now that it is written down:
// what was kept back, or why there is none.
func (x *exchange) finish(res abi.Result) {
	e := res.Err
	if e == nil {
		e = x.refused
	}
	switch end := x.g.cfg.Kernel.Ending(x.call.Pid); {
	case e == nil, x.told:
		x.whereof()
	case end != nil && slices.Contains([]abi.Code{abi.Interrupted, abi.OutcomeUnknown, abi.ProcessExited}, e.Code):
		x.cut(end)
	case x.failure != nil && !(x.failure.status == http.StatusTooManyRequests && e.Code == abi.ModelBadRequest) && res.Outcome != abi.Refused && !x.begun && e.Code != abi.Interrupted && e.Code != abi.OutcomeUnknown:
		x.echo()
	default:
		x.cut(e)
	}
}

// whereof ends an answer that is whole.
func (x *exchange) whereof() {
	if x.stream {
		h := http.Header{}
		x.stands(h)
		x.write(append([]byte(": kern pid="+strconv.FormatInt(int64(x.call.Pid), 10)+" call="+strconv.FormatUint(x.call.N, 10)+
			" spent "+h.Get(spentHeader)+" left "+h.Get(leftHeader)+"\n\n"), x.tail...), true)
		return
	}
	h := x.visit.w.Header()
	x.stands(h)
	h.Set("Content-Length", strconv.Itoa(len(x.whole)))
	x.write(x.whole, true)
}

// cut ends an answer with an error: in its middle, or in its place.
func (x *exchange) cut(e *abi.Error) {
	if x.begun {
		x.write(x.meter.Cut(e.Code, e.Message, e.Hint), true)
		return
	}
	h := x.visit.w.Header()
	for name := range h { // of an answer that is not given
		if !strings.HasPrefix(name, headers) {
			h.Del(name)
		}
	}
	h.Set(callHeader, strconv.FormatUint(x.call.N, 10))
	x.visit.fail(e)
}

// echo gives the client the provider's own error, as it came.
func (x *exchange) echo() {
	h := x.visit.w.Header()
	shown(h, x.failure.header, x.pays)
	x.stands(h)
	h.Set(callHeader, strconv.FormatUint(x.call.N, 10))
	x.visit.w.WriteHeader(x.failure.status)
	x.write(x.failure.body, true)
}

// noSocket sends a program that tries a web socket first, as Codex does, to
// what is spoken here.
var noSocket = &abi.Error{Code: abi.InvalidCall, Message: "web sockets are not spoken here; expected the method POST"}

// fail answers with an error in the caller's own format.
func (v *visit) fail(err error) {
	var e *abi.Error
	if !errors.As(err, &e) {
		e = &abi.Error{Code: abi.InvalidCall, Message: err.Error()}
	}
	status := format.Status(e.Code)
	switch {
	case e.Code == abi.BadKey:
		status = http.StatusUnauthorized
	case e == tooLarge:
		status = http.StatusRequestEntityTooLarge
	case e == noSocket:
		status = http.StatusUpgradeRequired
	case e.Code == abi.UnknownRow:
		status = http.StatusNotFound
	}
	message := e.Message
	if e.Where != "" {
		message += " (at " + e.Where + ")"
	}
	h := v.head()
	if status < 500 && status != http.StatusTooManyRequests {
		h.Set(format.NoRetry, "false")
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(format.ErrorBody(v.face, status, e.Code, message, e.Hint)) // a client that went away hears nothing
}

// head begins an answer of our own: whose it is and how that stands, once it is
// known.
func (v *visit) head() http.Header {
	v.lend(time.Now())
	h := v.w.Header()
	h.Set("Content-Type", "application/json")
	if v.session != nil {
		stands(v.kernel, v.session.pid, h)
	}
	return h
}

// json answers with a value.
func (v *visit) json(x any) {
	b, err := json.Marshal(x)
	if err != nil {
		v.fail(&abi.Error{Code: abi.Internal, Message: err.Error()})
		return
	}
	v.head()
	_, _ = v.w.Write(append(b, '\n'))
}

// models lists what the configuration names, in the caller's own format, or
// tells of one of them.
func (g *Gateway) models(v *visit) {
	face := v.face
	names := g.cfg.Models.Models(face.Vendor())
	list := []any{}
	for _, n := range names {
		if face == format.Messages {
			list = append(list, map[string]any{"type": "model", "id": n, "display_name": n, "created_at": "1970-01-01T00:00:00Z"})
		} else {
			list = append(list, map[string]any{"id": n, "object": "model", "created": 0, "owned_by": "kern"})
		}
	}
	switch i := slices.Index(names, v.rest); {
	case v.rest != "" && i < 0:
		v.fail(&abi.Error{Code: abi.UnknownModel, Message: "the configuration names no model " + clip(v.rest)})
	case v.rest != "":
		v.json(list[i])
	case face == format.Messages:
		v.json(map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil})
	default:
		v.json(map[string]any{"object": "list", "data": list})
	}
}

// counted answers with what a request is admitted by, which is never less than
// the provider will bill: nothing is sent.
func (g *Gateway) counted(v *visit) {
	body, err := v.body()
	if err != nil {
		v.fail(err)
		return
	}
	q, err := format.Parse(format.Messages, body)
	if err != nil {
		v.fail(err)
		return
	}
	x, err := g.exchange(v, q)
	if err != nil {
		v.fail(err)
		return
	}
	_, in := x.bounded(v.session.pid)
	v.json(map[string]int64{"input_tokens": in})
}

// self tells a program how its process stands.
func (g *Gateway) self(v *visit) {
	used, left := g.cfg.Kernel.Stands(v.session.pid)
	v.json(map[string]any{"pid": v.session.pid, "used": used, "left": left, "ending": g.cfg.Kernel.Ending(v.session.pid)})
}

// derive makes a key for a child of the key's process.
func (g *Gateway) derive(v *visit) {
	body, err := v.body()
	if err != nil {
		v.fail(err)
		return
	}
	var k struct {
		Name     string     `json:"name"`
		Limits   abi.Limits `json:"limits"`
		Priority int        `json:"priority"`
	}
	if bad := jsontext.Check(body, jsontext.UniqueKeys); bad != nil {
		v.fail(&abi.Error{Code: abi.InvalidArguments, Message: "the body is not JSON: " + bad.Error(), Where: bad.Pointer})
		return
	}
	err = json.Unmarshal(body, &k)
	for key := range jsontext.Members(bytes.TrimSpace(body)) { // encoding/json does not tell cases apart
		if name := string(key); !slices.Contains([]string{"name", "limits", "priority"}, name) {
			err = fmt.Errorf("there is %q", clip(name))
		}
	}
	if err != nil {
		v.fail(&abi.Error{Code: abi.InvalidArguments, Message: "expected an object with name, limits and priority: " + err.Error()})
		return
	}
	if k.Priority < 0 || k.Priority > abi.MaxPriority || len(k.Name) > 64 {
		v.fail(&abi.Error{Code: abi.InvalidArguments, Message: "expected a name of at most 64 bytes, and a priority from 0 to " + strconv.Itoa(abi.MaxPriority)})
		return
	}
	if err := enforceable(&k.Limits); err != nil {
		v.fail(err)
		return
	}
	i, err := g.Issue(v.r.Context(), Key{Name: k.Name, Limits: k.Limits, Priority: k.Priority, Parent: v.session.pid})
	if err != nil {
		v.fail(err)
		return
	}
	v.json(map[string]any{"pid": i.Pid, "key": i.Key, "openai_base_url": i.OpenAI, "anthropic_base_url": i.Anthropic})
}

// pathOf is where an entrance is at a provider.
var pathOf = map[format.Face]string{
	format.Chat: "/chat/completions", format.Responses: "/responses", format.Embeddings: "/embeddings", format.Messages: "/v1/messages",
}

// value is what is recorded of an answer.
func (x *exchange) value(s *format.Seen) json.RawMessage {
	r := syscalls.Reply{Text: s.Text, Stop: s.Stop}
	if x.way.At > 0 {
		r.Model = x.route().Facts.Name
	}
	for _, c := range s.Calls {
		r.Calls = append(r.Calls, model.ToolCall{ID: c.ID, Name: c.Name, Args: c.Args})
	}
	b, _ := json.Marshal(r) // texts always can
	return b
}

// subject is what tells one request from another.
func subject(parts []abi.Hash) []byte {
	var b []byte
	for i := range parts {
		b = append(b, parts[i][:]...)
	}
	return b
}

// ways remembers for a while where requests for a model go.
type ways struct {
	cfg provider.Config

	mu    sync.Mutex
	kept  map[[2]string][]*provider.Endpoint
	until time.Time
}

// wayTime is how long prices and keys are taken to be what they were.
const wayTime = time.Minute

func (w *ways) find(format, name string) ([]*provider.Endpoint, error) {
	key := [2]string{format, name}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.After(w.until) || len(w.kept) > 1000 {
		w.kept, w.until = make(map[[2]string][]*provider.Endpoint), now.Add(wayTime)
	}
	if r := w.kept[key]; r != nil {
		return r, nil
	}
	r, err := w.cfg.Routes(format, name)
	if err == nil {
		w.kept[key] = r
	}
	return r, err
}

func clip(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
