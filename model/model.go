// Package model defines the interface to language models: a [Model] takes a
// [Request] and returns a stream of [Event]s.
//
// Package relay opens a model at a provider; a [Script] is a model in a file.
// Nothing here retries, waits for a turn or counts money. The caller admits each
// attempt, and each failure is an [*Error] whose [Kind] tells the caller what to do.
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

	// Count returns an upper bound of r's input tokens. The caller reserves that
	// number before the call.
	Count(r Request) int

	// Stream sends r. It yields events in order and ends after Done, or with
	// an [*Error]. Breaking the loop or ending ctx stops the request at the
	// provider.
	Stream(ctx context.Context, r Request) iter.Seq2[Event, error]
}

// Facts are what Kern knows of a model before the first request.
type Facts struct {
	Name      string // as given: "openai:gpt-5", "script:replies.yaml"
	Provider  string // "openai", "anthropic" or "script", with "@host" for another address; also names the provider in limits
	Price     Price
	Priced    bool  // false: the price is unknown
	Long      Price // price of all tokens of a request with more than Beyond input tokens
	Beyond    int   // 0: every request has Price
	Window    int   // context window in tokens, 0 unknown
	MaxOutput int   // the model's own maximum of output tokens, 0 unknown
	MinOutput int   // the least output worth asking for
}

// At returns the price of a request with input tokens, cached ones included.
func (f *Facts) At(input int64) Price {
	if f.Beyond > 0 && input > int64(f.Beyond) {
		return f.Long
	}
	return f.Price
}

// Usage is the usage of one request, in tokens. Input excludes the tokens that the
// provider read from or wrote to its cache.
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
	Calls  []ToolCall `json:"calls,omitempty"`   // for role Assistant
	CallID string     `json:"call_id,omitempty"` // for role Tool: the call that this message answers
	Failed bool       `json:"failed,omitempty"`  // for role Tool: the text is an error
}

// A ToolCall is a tool call that a model asks for. Args holds the bytes that the
// model wrote, so it may be invalid JSON.
type ToolCall struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	Args string `json:"args,omitempty"`
}

// A ToolSpec describes to a model one tool that it may call.
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

// Done ends a stream without an error.
type Done struct {
	Stop     Stop  `json:"stop,omitempty"`
	Usage    Usage `json:"usage"`
	Reported bool  `json:"reported,omitempty"` // the provider reported Usage; else Kern counted it
	Quota    Quota `json:"-"`                  // from the headers of the answer
	// Claim is the usage that the provider reported, if no request can have it. Usage
	// is then the bound.
	Claim *Usage `json:"-"`
}

// Stop says why a model stopped.
type Stop string

// The reasons to stop.
const (
	StopEnd    Stop = "end"    // the answer is complete
	StopTools  Stop = "tools"  // the model waits for the results of its tool calls
	StopLength Stop = "length" // the output maximum or the window was reached
	StopFilter Stop = "filter" // the provider or the model withheld the rest
)

// Kind classifies an error, so that the caller can decide what to do next.
type Kind string

// The kinds. Network is a request or an answer that did not arrive whole, so another
// attempt may succeed. Malformed is an answer that arrived and cannot be read. It is
// not retryable, because the server would send the same again.
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
	Usage      *Usage        `json:"usage,omitempty"`       // usage until the failure; nil: unknown

	Quota     Quota `json:"-"` // from the headers, if an answer came
	Unreached bool  `json:"-"` // no connection could be made

	cause error // only the end of the caller's context, because another cause may print a key
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

// Unwrap returns the error of the caller's context if its end stopped the request.
func (e *Error) Unwrap() error { return e.cause }

// Retryable reports whether the same request may succeed later. A request that the
// caller stopped is not retryable.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case RateLimit, Overloaded, Network:
		return e.cause == nil
	}
	return false
}

// Stopped returns the error of a request whose ctx ended; nil while ctx is active.
// usage is the usage until then; nil if it is unknown.
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
