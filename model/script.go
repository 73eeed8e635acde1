package model

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/internal/yamlfile"
)

// A Script is a model that answers with the replies of a file. Its answers depend only
// on the file and the request. [Request.Index] chooses the reply, so a resumed or
// forked process gets the right one.
type Script struct {
	Name    string // of the file, as in the reference
	Price   Price
	Window  int
	Latency time.Duration
	Repeat  bool
	Replies []Reply

	once    sync.Once
	largest int // the largest output of a reply
}

// A Reply is what a [Script] answers to one model call.
type Reply struct {
	Text  string
	Calls []ScriptCall
	Error Kind // fails instead of replying; the failure is billed Input and Output, 0 if nil

	Input, Output *int // usage; nil: counted
}

// A ScriptCall is a tool call of a [Reply]. Args is JSON, or the raw string of
// the file.
type ScriptCall struct{ Tool, Args string }

// scriptErrors lists the kinds of error that a script may name.
var scriptErrors = []Kind{RateLimit, Overloaded, Auth, BadRequest, Context, Network}

// A document is a Kern file that is read strictly: unknown keys are errors.
type document struct{ *yamlfile.Document }

// ParseScript parses a script. It uses name only in errors and in Facts.
func ParseScript(name string, data []byte) (*Script, error) {
	sd, root, err := yamlfile.Parse(name, data)
	if err != nil {
		return nil, err
	}
	d := document{sd}
	s := &Script{Name: name}
	err = d.Mapping(root, "a script", []string{"price", "window", "latency", "repeat", "replies"}, map[string]yamlfile.Field{
		"price": func(n ast.Node, what string) error {
			return d.Mapping(n, what, []string{"input", "output"}, map[string]yamlfile.Field{
				"input": yamlfile.Into(&s.Price.Input, d.Dollars), "output": yamlfile.Into(&s.Price.Output, d.Dollars),
			})
		},
		"window":  yamlfile.Into(&s.Window, d.Count),
		"latency": yamlfile.Into(&s.Latency, d.Duration),
		"repeat":  yamlfile.Into(&s.Repeat, d.Boolean),
		"replies": func(n ast.Node, what string) error {
			s.Replies = []Reply{}
			return d.List(n, what, yamlfile.AppendTo(&s.Replies, d.reply))
		},
	})
	if err != nil {
		return nil, err
	}
	if s.Replies == nil {
		return nil, d.Errorf(root, "the key replies is missing, expected a list with one reply per model call")
	}
	return s, nil
}

func (d document) reply(n ast.Node) (r Reply, err error) {
	err = d.Mapping(n, "a reply", []string{"text", "calls", "usage", "error"}, map[string]yamlfile.Field{
		"text":  yamlfile.Into(&r.Text, d.Text),
		"calls": func(n ast.Node, what string) error { return d.List(n, what, yamlfile.AppendTo(&r.Calls, d.call)) },
		"usage": func(n ast.Node, what string) error {
			return d.Mapping(n, what, []string{"input", "output"}, map[string]yamlfile.Field{
				"input": yamlfile.Into(&r.Input, d.given), "output": yamlfile.Into(&r.Output, d.given),
			})
		},
		"error": yamlfile.Into(&r.Error, d.scriptError),
	})
	return r, err
}

func (d document) given(n ast.Node, what string) (*int, error) {
	v, err := d.Count(n, what)
	return &v, err
}

func (d document) scriptError(n ast.Node, what string) (Kind, error) {
	v, err := d.Text(n, what)
	if err == nil && !slices.Contains(scriptErrors, Kind(v)) {
		err = d.Errorf(n, "%s is %q, expected one of %v", what, jsontext.Clip(v), scriptErrors)
	}
	return Kind(v), err
}

func (d document) call(n ast.Node) (c ScriptCall, err error) {
	c.Args = "{}"
	err = d.Mapping(n, "a call", []string{"tool", "args"}, map[string]yamlfile.Field{"tool": yamlfile.Into(&c.Tool, d.Text), "args": yamlfile.Into(&c.Args, d.args)})
	if err == nil && c.Tool == "" {
		err = d.Errorf(n, "a call without a tool, expected tool: NAME")
	}
	return c, err
}

func (d document) args(n ast.Node, what string) (string, error) {
	v, err := d.Value(n)
	if err != nil {
		return "", err
	}
	switch v.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return d.Text(n, what)
	case ast.MapNode:
		b, err := d.JSON(n)
		return string(b), err
	}
	return "", d.Errorf(v, "%s is %s, expected a mapping, or a string that is sent as it is", what, yamlfile.KindOf(v))
}

// Facts implements [Model]. MaxOutput is the output of the largest reply, so a
// reservation covers any reply.
func (s *Script) Facts() Facts {
	s.once.Do(func() {
		s.largest = 1
		for i := range s.Replies {
			s.largest = max(s.largest, int(s.Replies[i].output()))
		}
	})
	return Facts{
		Name: "script:" + s.Name, Provider: "script", Price: s.Price, Priced: true,
		Window: s.Window, MaxOutput: s.largest, MinOutput: 1,
	}
}

// Count implements [Model]. It returns exactly the input that the reply reports.
func (s *Script) Count(r Request) int {
	if in := s.reply(r.Index).Input; in != nil {
		return *in
	}
	return CountRequest(r)
}

// Stream implements [Model]. It waits for the latency, then yields the reply in
// pieces.
func (s *Script) Stream(ctx context.Context, r Request) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if e := s.wait(ctx); e != nil {
			yield(Event{}, e)
			return
		}
		reply := s.reply(r.Index)
		if reply.Error != "" {
			yield(Event{}, reply.failure(r))
			return
		}
		text, calls, done := reply.within(r)
		done.Usage.Input = int64(s.Count(r))
		sent := 0
		for piece := range pieces(text) {
			if ctx.Err() != nil {
				yield(Event{}, Stopped(ctx, &Usage{Input: done.Usage.Input, Output: int64(tokens.CountText(text[:sent]))}))
				return
			}
			if !yield(Event{Text: piece}, nil) {
				return
			}
			sent += len(piece)
		}
		for i := range calls {
			if !yield(Event{Call: &calls[i]}, nil) {
				return
			}
		}
		yield(Event{Done: &done}, nil)
	}
}

// wait waits for the latency of the script, or until ctx ends.
func (s *Script) wait(ctx context.Context) *Error {
	if s.Latency > 0 {
		t := time.NewTimer(s.Latency)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return Stopped(ctx, &Usage{})
}

// reply returns the reply to the model call with this index. It is empty past the
// end of the file.
func (s *Script) reply(index int) *Reply {
	if s.Repeat && len(s.Replies) > 0 {
		index %= len(s.Replies)
	}
	if index < 0 || index >= len(s.Replies) {
		return &Reply{}
	}
	return &s.Replies[index]
}

func (r *Reply) failure(q Request) *Error {
	u := &Usage{}
	if r.Input != nil {
		u.Input = int64(*r.Input)
	}
	if r.Output != nil {
		u.Output = int64(*r.Output)
	}
	if q.MaxOutput > 0 {
		u.Output = min(u.Output, int64(q.MaxOutput))
	}
	return &Error{Kind: r.Error, Message: fmt.Sprintf("the script says so for model call %d", q.Index), Usage: u}
}

// counted returns the tokens of the reply's text and calls.
func (r *Reply) counted() int {
	n := tokens.CountText(r.Text)
	for _, c := range r.Calls {
		n += c.tokens()
	}
	return n
}

func (c ScriptCall) tokens() int { return tokens.CountText(c.Tool) + tokens.CountText(c.Args) }

// output returns the output tokens that the reply is billed.
func (r *Reply) output() int64 {
	if r.Output != nil {
		return int64(*r.Output)
	}
	return int64(r.counted())
}

// within cuts the reply to the output maximum of the request. If the file gives a
// size that differs from the counted one, within keeps the same share of the counted
// tokens. The cut removes the calls first, from the last one, and then the text.
func (r *Reply) within(q Request) (text string, calls []ToolCall, done Done) {
	done = Done{Stop: StopEnd, Usage: Usage{Output: r.output()}, Reported: true}
	text = r.Text
	room := int64(-1) // counted tokens that still fit; -1: all fit
	if most := int64(q.MaxOutput); most > 0 && done.Usage.Output > most {
		whole, rest := int64(r.counted()), done.Usage.Output
		room = share(whole, most, rest)
		done.Stop, done.Usage.Output = StopLength, most
		text = tokens.CutText(text, int(room))
		room -= int64(tokens.CountText(text))
	}
	for i, c := range r.Calls {
		if done.Stop == StopLength {
			if len(text) < len(r.Text) || int64(c.tokens()) > room {
				break
			}
			room -= int64(c.tokens())
		}
		calls = append(calls, ToolCall{ID: fmt.Sprintf("call_%d_%d", q.Index, i), Name: c.Tool, Args: c.Args})
	}
	if len(calls) > 0 && done.Stop == StopEnd {
		done.Stop = StopTools
	}
	return text, calls, done
}

// share returns whole*part/of, rounded down. part must be less than of.
func share(whole, part, of int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(q)
}

// pieces yields a text in parts of at most 512 bytes. It does not split a character.
func pieces(s string) iter.Seq[string] {
	const size = 512
	return func(yield func(string) bool) {
		for len(s) > 0 {
			n := min(size, len(s))
			for n < len(s) && !utf8.RuneStart(s[n]) {
				n--
			}
			if !yield(s[:n]) {
				return
			}
			s = s[n:]
		}
	}
}
