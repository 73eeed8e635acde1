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

// A reported error is the error object of both providers, read loosely: servers that
// are merely compatible send strings, numbers or nothing.
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

func looseField(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// readReported finds the error object in a body.
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

// tooLong are the words with which servers say that the window is too small.
var tooLong = []string{
	"context length", "context_length", "context window", "maximum context", "prompt is too long",
	"input is too long", "too many tokens", "exceed context limit", "exceeds the available context",
}

// noCredit are the words for an account that nobody has paid for.
var noCredit = []string{"insufficient_quota", "exceeded your current quota", "credit balance", "billing"}

// kindOfStatus classifies an HTTP status and the error with it. Status 0 is an
// error within a stream.
//
// An account without credit is Auth even where the status is 429: waiting does
// not fix it, a person must, as with a wrong key. A request that is larger
// than the account's whole rate is BadRequest for the same reason.
func kindOfStatus(status int, p reported) model.Kind {
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
		status = code // what the status would have been, had the stream not begun
	}
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

// kindOfType classifies an error that came without a status.
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
	return model.Overloaded // overloaded_error, api_error, server_error and what else goes wrong in a server's middle
}

// ReadProblem reads the body of an error of any provider: what kind of error it
// is, and what it says, empty if nothing. Status 0 is an error within a stream.
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

// Classify makes an error of an error within a stream. Its words are as they
// came, so that the caller can take the key out before it is cut in half.
func Classify(body []byte) *model.Error {
	kind, message := ReadProblem(0, body)
	return &model.Error{Kind: kind, Message: cmp.Or(message, string(body))}
}

// maxMessage is how many bytes of a provider's words an error holds.
const maxMessage = 600

// Tidy makes the words of a provider short and printable.
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
