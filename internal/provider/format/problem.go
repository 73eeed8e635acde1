package format

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/kern-run/kern/model"
)

// reported is the error object of both providers. It tolerates strings, numbers and
// missing fields, because compatible servers send them.
type reported struct {
	Type, Code, Message string
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *reported) UnmarshalJSON(b []byte) error {
	var o struct{ Type, Code, Message any }
	if json.Unmarshal(b, &o) == nil {
		*p = reported{looseField(o.Type), looseField(o.Code), looseField(o.Message)}
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}
	*p = reported{Message: s}
	return nil
}

// looseField returns a string or number as text, and "" for any other value.
func looseField(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// readReported returns the error object in an error body. If there is none, it uses
// the fields message or detail, which some servers send instead.
func readReported(body []byte) reported {
	var outer struct {
		Error   *reported
		Code    any
		Message string
		Detail  json.RawMessage
	}
	if json.Unmarshal(body, &outer) != nil {
		return reported{}
	}
	switch {
	case outer.Error != nil:
		outer.Error.Code = cmp.Or(outer.Error.Code, looseField(outer.Code))
		return *outer.Error
	case outer.Message != "":
		return reported{Message: outer.Message}
	case len(outer.Detail) > 0:
		return reported{Message: string(outer.Detail)}
	}
	return reported{}
}

// tooLong lists phrases with which servers say that a request exceeds the window.
var tooLong = []string{
	"context length", "context_length", "context window", "maximum context", "prompt is too long",
	"input is too long", "too many tokens", "exceed context limit", "exceeds the available context",
}

// noCredit lists phrases for a provider account without credit.
var noCredit = []string{"insufficient_quota", "exceeded your current quota", "credit balance", "billing"}

// kindOfStatus returns the kind of an error with an HTTP status. Status 0 means an
// error within a stream.
//
// A provider account without credit is Auth even if the status is 429, because
// waiting does not fix it: a person must act, as with a wrong key. A request larger
// than the whole rate limit is BadRequest, because waiting does not fix that either.
func kindOfStatus(status int, p reported) model.Kind {
	// Servers put the same phrase into any of the three texts.
	says := func(words []string) bool {
		all := strings.ToLower(p.Type + " " + p.Code + " " + p.Message)
		for _, w := range words {
			if strings.Contains(all, w) {
				return true
			}
		}
		return false
	}
	if code, err := strconv.Atoi(p.Code); status == 0 && err == nil && code >= 400 && code < 600 {
		status = code // the status that the provider would have sent before the stream began
	}
	// Statuses with a clear meaning come first, then the words of the error.
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return model.Auth
	case status == http.StatusTooManyRequests:
		switch {
		case says(noCredit):
			return model.Auth
		case says([]string{"request too large"}):
			return model.BadRequest
		}
		return model.RateLimit
	case status == http.StatusRequestEntityTooLarge:
		return model.Context
	case status == http.StatusRequestTimeout:
		return model.Network
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		return model.BadRequest
	case status >= 500:
		return model.Overloaded
	case status != 0 && says(tooLong):
		return model.Context
	case status == http.StatusBadRequest && says(noCredit):
		return model.Auth
	case status != 0:
		return model.BadRequest
	case says(tooLong):
		return model.Context
	case says(noCredit):
		return model.Auth
	}
	return kindOfType(p)
}

// kindOfType returns the kind of an error without a status, by its type or code.
func kindOfType(p reported) model.Kind {
	for _, t := range []string{p.Type, p.Code} {
		switch t {
		case "rate_limit_error", "rate_limit_exceeded", "requests", "tokens":
			return model.RateLimit
		case "authentication_error", "permission_error", "invalid_api_key":
			return model.Auth
		case "invalid_request_error", "not_found_error":
			return model.BadRequest
		case "request_too_large":
			return model.Context
		case "timeout_error":
			return model.Network
		}
	}
	return model.Overloaded // overloaded_error, api_error, server_error and other failures of the server
}

// ReadProblem reads an error body of any provider. It returns the kind of the error
// and its message, which may be empty. Status 0 means an error within a stream.
func ReadProblem(status int, body []byte) (model.Kind, string) {
	p := readReported(body)
	switch {
	case p.Code == "context_length_exceeded":
		return model.Context, p.Message
	case strings.Contains(p.Code, "invalid_api_key"):
		return model.Auth, p.Message
	}
	return kindOfStatus(status, p), p.Message
}

// Classify returns the error for an error event within a stream. It does not shorten
// the message, so that the caller can remove an API key while the key is still whole.
func Classify(body []byte) *model.Error {
	kind, message := ReadProblem(0, body)
	return &model.Error{Kind: kind, Message: cmp.Or(message, string(body))}
}

// maxMessage is how many bytes of a provider's message Tidy keeps.
const maxMessage = 600

// Tidy returns a provider's message as one short, printable line.
func Tidy(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}
