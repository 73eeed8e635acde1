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

// A Script is a model that says what its file says. It is a function of the
// file's bytes and of the requests alone: the reply is chosen by
// [Request.Index], so a resumed or forked process goes on rightly.
type Script struct {
	Name    string // of the file, as given
	Price   Price
	Window  int
	Latency time.Duration
	Repeat  bool
	Replies []Reply

	once    sync.Once
	largest int // output of any reply
}

// A Reply is what a [Script] answers to one model call.
type Reply struct {
	Text  string
	Calls []ScriptCall
	Error Kind // fail instead of replying; then Input and Output are what the failure is billed, else nothing

	Input, Output *int // usage; nil: counted
}

// A ScriptCall is a tool call of a [Reply]. Args is JSON, or the raw string of
// the file.
type ScriptCall struct{ Tool, Args string }

// scriptErrors are the kinds a script may fail with.
var scriptErrors = []Kind{RateLimit, Overloaded, Auth, BadRequest, Context, Network}

// A document is a file of ours, read strictly.
type document struct{ *yamlfile.Document }

// ParseScript reads a script. The name is for errors and Facts only.
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

// Facts implements [Model]. The largest reply bounds the output, so a
// reservation under a script is the largest that it can use.
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

// Count implements [Model]: it is exactly the input that the reply reports.
func (s *Script) Count(r Request) int {
	if in := s.reply(r.Index).Input; in != nil {
		return *in
	}
	return CountRequest(r)
}

// Stream implements [Model].
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

// wait is the latency before a reply.
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

// reply is the one for the model call with this index, empty past the end.
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

// counted is the reply's size by its texts.
func (r *Reply) counted() int {
	n := tokens.CountText(r.Text)
	for _, c := range r.Calls {
		n += c.tokens()
	}
	return n
}

func (c ScriptCall) tokens() int { return tokens.CountText(c.Tool) + tokens.CountText(c.Args) }

// output is the reply's size as it is billed.
func (r *Reply) output() int64 {
	if r.Output != nil {
		return int64(*r.Output)
	}
	return int64(r.counted())
}

// within cuts the reply to the request's maximum. Where the file gives another
// size than the texts have, the cut falls at the same share of the texts, so
// what is last is always lost first.
func (r *Reply) within(q Request) (text string, calls []ToolCall, done Done) {
	done = Done{Stop: StopEnd, Usage: Usage{Output: r.output()}, Reported: true}
	text = r.Text
	room := int64(-1) // in tokens of the texts; -1: enough
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

// share is whole*part/of rounded down, for part < of.
func share(whole, part, of int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(q)
}

// pieces cuts a text into deltas at whole characters.
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
