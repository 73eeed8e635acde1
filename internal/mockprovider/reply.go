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

	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// thoughts are what a model thinks when it is asked to.
const thoughts = "The next step follows from what was said."

// An answer is what will be said.
type answer struct {
	id       string
	created  int64
	ask      *ask
	thoughts string
	text     string
	calls    []model.ToolCall
	stop     model.Stop
	price    model.Price
	latency  time.Duration // that the script asks for

	usage    model.Usage  // all of it
	thinking int64        // output of it that is thoughts
	told     *model.Usage // as the answer says; nil: it says nothing
	billed   model.Usage  // what was sent
}

// think finds what is to be said. An error that the script wants is a problem.
func (x *exchange) think(q *ask) (*answer, *problem) {
	a := &answer{id: fmt.Sprintf("%012d", x.seq), created: x.begun.Unix(), ask: q}
	s := x.mock.script(q)
	a.price, a.latency = s.Price, s.Latency
	if q.silent() {
		a.usage.Input = q.input()
		return a, nil
	}
	at, failure := x.mock.turn(x.key, s, q)
	if failure != nil {
		return nil, x.scripted(failure)
	}
	r := q.request
	r.Index = at
	if q.think {
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
		x.mock.keep(q.store(a))
	}
	return a, nil
}

// silent is a request that nothing is said to: its tokens are counted.
func (q *ask) silent() bool { return q.texts != nil || q.free }

func (q *ask) input() int64 {
	if q.free {
		return 0
	}
	n := 0
	for _, t := range q.texts {
		n += t
	}
	return int64(n)
}

// script is the one for a request; without a script, one that says the fixed
// reply, a value of the schema that was asked for, or what the user said last.
func (m *Mock) script(q *ask) *model.Script {
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

// echo is what was said last: by the user, or by a tool.
func (q *ask) echo() string {
	for i := len(q.request.Messages) - 1; i >= 0; i-- {
		if msg := q.request.Messages[i]; (msg.Role == model.User || msg.Role == model.Tool) && msg.Text != "" {
			return msg.Text
		}
	}
	return "(nothing was said)"
}

// turn finds the reply for a conversation: as many replies as it holds answers
// are passed over. The errors that stand before the reply come first, one to
// each try of the same conversation with the same key.
func (m *Mock) turn(key string, s *model.Script, q *ask) (at int, failure *model.Reply) {
	answers := q.request.Index
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
		if i := m.failure(key, s, q, errors); i < errors {
			return 0, &s.Replies[at-errors+i]
		}
	}
	return at + round*n, nil
}

// failure counts the errors a conversation had at this place.
func (m *Mock) failure(key string, s *model.Script, q *ask, most int) int {
	b, err := json.Marshal([]any{key, s.Name, q.model, q.request.Messages})
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

// scripted is an error that the script wants, with what it bills.
func (x *exchange) scripted(r *model.Reply) *problem {
	if r.Input != nil {
		x.entry.Usage.Input = int64(*r.Input)
	}
	if r.Output != nil {
		x.entry.Usage.Output = int64(*r.Output)
	}
	x.entry.nano = x.mock.config.priceOf(x.entry.Model).Cost(x.entry.Usage)
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
		p.kind = lost
	default:
		p.status, p.kind = http.StatusBadRequest, badRequest
	}
	return p
}

func (c *Config) priceOf(name string) model.Price {
	switch {
	case c.Scripts[name] != nil:
		return c.Scripts[name].Price
	case c.Script != nil:
		return c.Script.Price
	}
	return c.Price
}

// tell decides what the answer says of its usage.
func (a *answer) tell(f Fault) {
	u := a.usage
	switch f.Kind {
	case NoUsage:
		return
	case WrongUsage:
		u.Output = max(0, u.Output+int64(f.At))
	}
	a.told = &u
}

// size is how many bytes an answer has that are paid for.
func (a *answer) size() int {
	n := len(a.thoughts) + len(a.text)
	for _, c := range a.calls {
		n += len(c.Name) + len(c.Args)
	}
	return n * max(a.ask.choices, 1)
}

// A thread is a conversation that the provider keeps.
type thread struct {
	id       string
	messages []model.Message
}

// maxKept is how many stored responses are remembered.
const maxKept = 4096

func (m *Mock) keep(t *thread) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[t.id] = t
	m.keptIDs = append(m.keptIDs, t.id)
	if len(m.keptIDs) > maxKept {
		delete(m.kept, m.keptIDs[0])
		m.keptIDs = m.keptIDs[1:]
	}
}

func (m *Mock) thread(id string) *thread {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[id]
}

// check finds what a provider refuses in a conversation: a call without its
// result, and a result without its call.
func check(all []model.Message) *problem {
	open := map[string]bool{}
	for i, msg := range all {
		if msg.Role == model.Tool {
			if !open[msg.CallID] {
				return bad("message %d is the result of the call %q, and no such call stands before it", i, msg.CallID)
			}
			delete(open, msg.CallID)
			continue
		}
		if id, ok := anyOf(open); ok {
			return bad("the call %q has no result before message %d; expected one message with the result of each call", id, i)
		}
		for _, c := range msg.Calls {
			open[c.ID] = true
		}
	}
	if id, ok := anyOf(open); ok {
		return bad("the call %q has no result; expected one message with the result of each call", id)
	}
	return nil
}

func anyOf(set map[string]bool) (string, bool) {
	least, found := "", false
	for k := range set {
		if !found || k < least {
			least, found = k, true
		}
	}
	return least, found
}

// content is a text, or parts of which some have a text and some are images.
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

// perImage is what an image counts, in any format.
const perImage = 85

// decode reads a body.
func decode(body []byte, to any) *problem {
	if err := json.Unmarshal(body, to); err != nil {
		return bad("the body cannot be read: %v", err)
	}
	return nil
}
