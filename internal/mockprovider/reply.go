package mockprovider

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// thoughts are the thoughts of every answer with thoughts.
const thoughts = "The next step follows from what was said."

// An answer is the content of an answer in any format.
type answer struct {
	id       string
	created  int64
	req      *request
	thoughts string
	text     string
	calls    []model.ToolCall
	stop     model.Stop
	latency  time.Duration // from the script

	usage    model.Usage  // of the whole answer
	thinking int64        // output tokens of the thoughts
	reported *model.Usage // the stated usage; nil: none
	billed   model.Usage  // the usage of what was sent
}

// findReply builds the answer. An error in the script becomes a problem.
func (x *handler) findReply(q *request) (*answer, *problem) {
	a := &answer{id: fmt.Sprintf("%012d", x.seq), created: x.begun.Unix(), req: q}
	s := x.mock.script(q)
	a.latency = s.Latency
	if q.silent() {
		a.usage.Input = q.inputTokens()
		return a, nil
	}
	at, failure := x.mock.nextReply(x.key, s, q)
	if failure != nil {
		return nil, x.scriptedError(failure)
	}
	r := q.input
	r.Index = at
	if q.showThoughts {
		a.thoughts = thoughts
		a.thinking = int64(tokens.CountText(thoughts))
		if r.MaxOutput > 0 {
			a.thinking = min(a.thinking, int64(r.MaxOutput-1))
			a.thoughts = tokens.CutText(thoughts, int(a.thinking))
			r.MaxOutput -= int(a.thinking)
		}
	}
	still := model.Script{Name: s.Name, Price: s.Price, Window: s.Window, Repeat: s.Repeat, Replies: s.Replies}
	for e, err := range still.Stream(context.Background(), r) {
		switch {
		case err != nil:
			return nil, bad("the script %s: %v", s.Name, err)
		case e.Call != nil:
			// No provider uses an id for two calls, not even in two conversations.
			e.Call.ID = fmt.Sprintf("call_%s_%d", a.id, len(a.calls))
			a.calls = append(a.calls, *e.Call)
		case e.Done != nil:
			a.stop, a.usage = e.Done.Stop, e.Done.Usage
		default:
			a.text += e.Text
		}
	}
	a.usage.Input += int64(q.extra)
	a.usage.Output = (a.usage.Output + a.thinking) * int64(max(q.choices, 1))
	a.thinking *= int64(max(q.choices, 1))
	if s.Window > 0 && a.usage.Input > int64(s.Window) {
		return nil, &problem{status: http.StatusBadRequest, kind: tooLong, message: fmt.Sprintf("the prompt is too long: %d tokens, the window holds %d", a.usage.Input, s.Window)}
	}
	if q.store != nil {
		x.mock.keepConversation(q.store(a))
	}
	return a, nil
}

// silent reports whether the answer has no text: only tokens are counted.
func (q *request) silent() bool { return q.texts != nil || q.noCharge }

func (q *request) inputTokens() int64 {
	if q.noCharge {
		return 0
	}
	n := 0
	for _, t := range q.texts {
		n += t
	}
	return int64(n)
}

// script returns the script of a request. Without one it says the fixed reply,
// a value of the requested schema, or an echo.
func (m *Mock) script(q *request) *model.Script {
	if s := m.config.Scripts[q.model]; s != nil {
		return s
	}
	if m.config.Script != nil {
		return m.config.Script
	}
	text := m.config.Reply
	if text == "" {
		text = q.echo()
		if q.schema != nil {
			text = example(q.schema, text)
		}
	}
	return &model.Script{Name: "echo", Price: m.config.Price, Repeat: true, Replies: []model.Reply{{Text: text}}}
}

// echo returns the last text of the user or of a tool.
func (q *request) echo() string {
	for i := len(q.input.Messages) - 1; i >= 0; i-- {
		if msg := q.input.Messages[i]; (msg.Role == model.User || msg.Role == model.Tool) && msg.Text != "" {
			return msg.Text
		}
	}
	return "(nothing was said)"
}

// nextReply finds the reply for a conversation by the number of answers in it.
// Errors of the script before that reply come first, one for each try of the
// same conversation with the same key.
func (m *Mock) nextReply(key string, s *model.Script, q *request) (at int, failure *model.Reply) {
	answers := q.input.Index
	n := len(s.Replies)
	good := 0
	for i := range s.Replies {
		if s.Replies[i].Error == "" {
			good++
		}
	}
	round := 0
	if s.Repeat && good > 0 {
		round, answers = answers/good, answers%good
	}
	errors := 0
	for at = 0; at < n; at++ {
		switch {
		case s.Replies[at].Error != "":
			errors++
			continue
		case answers > 0:
			answers, errors = answers-1, 0
			continue
		}
		break
	}
	if errors > 0 {
		if i := m.countFailure(key, s, q, errors); i < errors {
			return 0, &s.Replies[at-errors+i]
		}
	}
	return at + round*n, nil
}

// countFailure counts the errors that a conversation got at this place.
func (m *Mock) countFailure(key string, s *model.Script, q *request, most int) int {
	b, err := json.Marshal([]any{key, s.Name, q.model, q.input.Messages})
	if err != nil {
		return most
	}
	sum := sha256.Sum256(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.failed[sum]
	if n < most {
		m.failed[sum]++
	}
	return n
}

// scriptedError returns an error of the script and bills its usage.
func (x *handler) scriptedError(r *model.Reply) *problem {
	if r.Input != nil {
		x.entry.Usage.Input = int64(*r.Input)
	}
	if r.Output != nil {
		x.entry.Usage.Output = int64(*r.Output)
	}
	x.entry.nano = x.mock.config.priceOf(x.entry.Model, x.entry.Usage.Input).Cost(x.entry.Usage)
	p := &problem{message: "the script says so"}
	switch r.Error {
	case model.RateLimit:
		p.status, p.kind, p.what = http.StatusTooManyRequests, rateLimited, requests
	case model.Overloaded:
		p = x.overloaded()
	case model.Auth:
		p.status, p.kind = http.StatusUnauthorized, badKey
	case model.Context:
		p.status, p.kind = http.StatusBadRequest, tooLong
	case model.Network:
		p.kind = noAnswer
	default:
		p.status, p.kind = http.StatusBadRequest, badRequest
	}
	return p
}

// priceOf returns the price of a request with so many input tokens: of the script,
// else of the flag, else of the table by which Kern books.
func (c *Config) priceOf(name string, input int64) model.Price {
	p := c.Price
	switch {
	case c.Scripts[name] != nil:
		p = c.Scripts[name].Price
	case c.Script != nil:
		p = c.Script.Price
	}
	if p != (model.Price{}) || !c.Known {
		return p
	}
	now := time.Now()
	for _, provider := range []string{"openai", "anthropic"} {
		if e, ok := catalog.Find(nil, provider, name, now); ok {
			f := model.Facts{Price: e.Price, Long: e.Long, Beyond: e.Beyond}
			return f.At(input)
		}
	}
	return p
}

// reportUsage sets the usage that the answer states.
func (a *answer) reportUsage(f Fault) {
	u := a.usage
	switch f.Kind {
	case NoUsage:
		return
	case WrongUsage:
		u.Output = max(0, u.Output+int64(f.At))
	}
	a.reported = &u
}

// paidBytes returns the size of everything in an answer that is paid for.
func (a *answer) paidBytes() int {
	n := len(a.thoughts) + len(a.text)
	for _, c := range a.calls {
		n += len(c.Name) + len(c.Args)
	}
	return n * max(a.req.choices, 1)
}

// A conversation is stored with a response.
type conversation struct {
	id       string
	messages []model.Message
}

// maxKept bounds the stored responses.
const maxKept = 4096

func (m *Mock) keepConversation(t *conversation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored[t.id] = t
	m.storedIDs = append(m.storedIDs, t.id)
	if len(m.storedIDs) > maxKept {
		delete(m.stored, m.storedIDs[0])
		m.storedIDs = m.storedIDs[1:]
	}
}

func (m *Mock) conversation(id string) *conversation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored[id]
}

// checkResults refuses a conversation as providers do: a tool call without its
// result, or a result without its call.
func checkResults(all []model.Message) *problem {
	open := map[string]bool{}
	for i, msg := range all {
		if msg.Role == model.Tool {
			if !open[msg.CallID] {
				return bad("message %d is the result of the call %q, and no such call stands before it", i, msg.CallID)
			}
			delete(open, msg.CallID)
			continue
		}
		if id, ok := smallest(open); ok {
			return bad("the call %q has no result before message %d; expected one message with the result of each call", id, i)
		}
		for _, c := range msg.Calls {
			open[c.ID] = true
		}
	}
	if id, ok := smallest(open); ok {
		return bad("the call %q has no result; expected one message with the result of each call", id)
	}
	return nil
}

func smallest(set map[string]bool) (string, bool) {
	least, found := "", false
	for k := range set {
		if !found || k < least {
			least, found = k, true
		}
	}
	return least, found
}

// content is a text or a list of parts: texts and images.
type content struct {
	text   string
	images int
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *content) UnmarshalJSON(b []byte) error {
	var parts []struct{ Type, Text, Refusal string }
	switch b = bytes.TrimSpace(b); {
	case len(b) == 0 || string(b) == "null":
		return nil
	case b[0] == '"':
		return json.Unmarshal(b, &c.text)
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return fmt.Errorf("the content is %.20s, expected a string or a list of parts", b)
	}
	var all strings.Builder
	for _, p := range parts {
		all.WriteString(p.Text + p.Refusal)
		if strings.Contains(p.Type, "image") {
			c.images++
		}
	}
	c.text = all.String()
	return nil
}

// perImage is the number of tokens of an image, in any format.
const perImage = 85

// decode parses a body.
func decode(body []byte, to any) *problem {
	if err := json.Unmarshal(body, to); err != nil {
		return bad("the body cannot be read: %v", err)
	}
	return nil
}
