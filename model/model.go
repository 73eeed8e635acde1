// Package model talks to language models: a [Request] in, a stream of
// [Event]s out. A provider is one file and one type.
//
// [Open] reads a reference such as "openai:gpt-5" and gives a [Model]. Nothing
// here retries, waits for a turn or counts money: the caller admits each
// attempt, and every failure is an [*Error] that says which kind it is, so that
// the caller can. How a request reaches a provider is known below; see package
// line.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"
)

// A Model answers requests with a stream of events. It is safe for concurrent
// use.
type Model interface {
	Facts() Facts

	// Count returns an upper bound of r's input tokens, the number that is
	// reserved before the call.
	Count(r Request) int

	// Stream sends r. It yields events in order and ends after Done, or with
	// an [*Error]. Breaking the loop or ending ctx stops the request at the
	// provider.
	Stream(ctx context.Context, r Request) iter.Seq2[Event, error]
}

// Facts are what is known of a model before it is asked anything.
type Facts struct {
	Name      string // as given: "openai:gpt-5", "script:replies.yaml"
	Provider  string // "openai", "anthropic", "script", with "@host" when the address is not the usual one: the key of a provider's limits
	Price     Price
	Priced    bool  // false: the price is unknown
	Long      Price // of a request with more than Beyond tokens of input, all of it
	Beyond    int   // 0: any request has the one price
	Window    int   // context window in tokens, 0 unknown
	MaxOutput int   // the model's own maximum of output tokens, 0 unknown
	MinOutput int   // the least output worth asking for
}

// At is the price of a request with so many tokens of input, cached or not.
func (f *Facts) At(input int64) Price {
	if f.Beyond > 0 && input > int64(f.Beyond) {
		return f.Long
	}
	return f.Price
}

// Usage is what one request took, in tokens. Input excludes the tokens read
// from and written to the provider's cache.
type Usage struct {
	Input      int64 `json:"input,omitempty"`
	Output     int64 `json:"output,omitempty"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// A Role names the speaker of a message.
type Role string

// The roles. A message of role Tool is the result of one call.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// A Message is one entry of a conversation.
type Message struct {
	Role   Role       `json:"role,omitempty"`
	Text   string     `json:"text,omitempty"`
	Calls  []ToolCall `json:"calls,omitempty"`   // of an assistant
	CallID string     `json:"call_id,omitempty"` // of a tool: the call this answers
	Failed bool       `json:"failed,omitempty"`  // of a tool: the text is an error
}

// A ToolCall is a call that a model asks for. Args is what the model wrote,
// byte for byte: it may not be JSON.
type ToolCall struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	Args string `json:"args,omitempty"`
}

// A ToolSpec tells a model what it may call.
type ToolSpec struct {
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // JSON Schema of the arguments; empty: any object
}

// A Request is a conversation and a bound on the answer.
type Request struct {
	Messages  []Message  `json:"messages,omitempty"` // system first, if any
	Tools     []ToolSpec `json:"tools,omitempty"`
	MaxOutput int        `json:"max_output,omitempty"` // output token maximum, 0: the provider's own
	Index     int        `json:"index,omitempty"`      // model calls the process has begun before this one
}

// An Event is exactly one of: a piece of text, a whole tool call, the end.
type Event struct {
	Text string    `json:"text,omitempty"`
	Call *ToolCall `json:"call,omitempty"`
	Done *Done     `json:"done,omitempty"`
}

// Done ends a stream that went well.
type Done struct {
	Stop     Stop  `json:"stop,omitempty"`
	Usage    Usage `json:"usage"`
	Reported bool  `json:"reported,omitempty"` // the provider gave Usage; else we counted
	Quota    Quota `json:"-"`                  // as its headers told
}

// Stop says why a model stopped.
type Stop string

// The reasons to stop.
const (
	StopEnd    Stop = "end"    // it had said what it wanted
	StopTools  Stop = "tools"  // it wants tools called
	StopLength Stop = "length" // the output maximum or the window was reached
	StopFilter Stop = "filter" // the provider or the model withheld the rest
)

// Kind says what went wrong, in the one word that decides what to do next.
type Kind string

// The kinds. Network is a request or stream that did not arrive whole: asking
// again may well succeed. Malformed is one that did arrive and cannot be read:
// the same server would send the same again, so it is not retryable.
const (
	RateLimit  Kind = "rate_limit"
	Overloaded Kind = "overloaded"
	Auth       Kind = "auth" // the key, its rights or its credit
	BadRequest Kind = "bad_request"
	Context    Kind = "context" // more input than the window holds
	Network    Kind = "network"
	Malformed  Kind = "malformed"
)

// An Error is a request that failed.
type Error struct {
	Kind       Kind          `json:"kind"`
	Message    string        `json:"message,omitempty"`     // without any key
	Status     int           `json:"status,omitempty"`      // HTTP status, if an answer came
	RetryAfter time.Duration `json:"retry_after,omitempty"` // as the provider asked; 0: it did not say
	Usage      *Usage        `json:"usage,omitempty"`       // what it took so far; nil: nobody knows

	Quota     Quota `json:"-"` // as the headers told, if an answer came
	Unreached bool  `json:"-"` // no connection was to be had

	cause error // the end of the caller's context, and nothing else: other causes may print a key
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model: ")
	b.WriteString(string(e.Kind))
	if e.Status != 0 {
		b.WriteString(" (HTTP ")
		b.WriteString(strconv.Itoa(e.Status))
		b.WriteString(")")
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	return b.String()
}

// Unwrap gives the end of the caller's context when that is what failed.
func (e *Error) Unwrap() error { return e.cause }

// Retryable says whether the same request may succeed later. A request that
// the caller itself stopped is not for trying again.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case RateLimit, Overloaded, Network:
		return e.cause == nil
	}
	return false
}

// Stopped is the error of a request whose ctx ended, nil while ctx goes on.
// usage is what the request used until then, nil if nobody knows.
func Stopped(ctx context.Context, usage *Usage) *Error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	why := "stopped by the caller"
	if errors.Is(err, context.DeadlineExceeded) {
		why = "stopped at the caller's deadline"
	}
	return &Error{Kind: Network, Message: why, Usage: usage, cause: err}
}
