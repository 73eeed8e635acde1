package format

import (
	"encoding/json"
	"net/http"

	"github.com/kern-run/kern/abi"
)

// NoRetry is a response header that the official libraries of both providers obey.
// With the value "false" they do not retry a refused request, whatever its status.
const NoRetry = "X-Should-Retry"

// Status returns the HTTP status for an error code. The libraries retry a request
// after 408, 409, 429 and every status from 500 on. So a refusal that waiting does
// not fix has another status: a limit is not a 429.
func Status(code abi.Code) int {
	if _, ok := abi.LimitOf(code); ok && code != abi.LimitContext {
		return http.StatusPaymentRequired
	}
	switch code {
	case abi.UnknownModel, abi.UnknownRow, abi.UnknownTool, abi.UnknownProcess:
		return http.StatusNotFound
	case abi.ModelAuth:
		return http.StatusUnauthorized
	case abi.NotGranted, abi.NotApproved, abi.WatchdogLoop, abi.ToolBlocked, abi.KeyFull,
		abi.ProcessKilled, abi.ProcessEnding, abi.ProcessExited:
		return http.StatusForbidden
	case abi.OutcomeUnknown, abi.Interrupted, abi.ToolGone, abi.ToolFailed, abi.ToolTimeout, abi.EmptyAnswer:
		return http.StatusFailedDependency
	case abi.ModelRateLimit, abi.TooManyRequests:
		return http.StatusTooManyRequests
	case abi.ModelNetwork, abi.ModelMalformed:
		return http.StatusBadGateway
	case abi.ModelOverloaded, abi.StorageFull, abi.StorageBroken, abi.DaemonGone, abi.DaemonBusy:
		return http.StatusServiceUnavailable
	case abi.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// errorTypes holds the error types for a status: OpenAI's, then Anthropic's.
var errorTypes = map[int][2]string{
	http.StatusUnauthorized:          {"authentication_error", "authentication_error"},
	http.StatusPaymentRequired:       {"insufficient_quota", "billing_error"},
	http.StatusForbidden:             {"permission_denied", "permission_error"},
	http.StatusNotFound:              {"not_found_error", "not_found_error"},
	http.StatusRequestEntityTooLarge: {"invalid_request_error", "request_too_large"},
	http.StatusTooManyRequests:       {"rate_limit_exceeded", "rate_limit_error"},
	http.StatusServiceUnavailable:    {"server_error", "overloaded_error"},
	http.StatusInternalServerError:   {"server_error", "api_error"},
	http.StatusBadGateway:            {"server_error", "api_error"},
}

// problem is the error object of both providers. Kern adds Hint, and adds Code for
// Anthropic, because readers of both ignore unknown fields.
type problem struct {
	Type    string   `json:"type"`
	Message string   `json:"message"`
	Param   *string  `json:"param,omitempty"`
	Code    abi.Code `json:"code"`
	Hint    string   `json:"hint,omitempty"`
}

// newProblem returns the error object for format f. It repeats the code and the hint
// in the message, because most programs show only the message.
func newProblem(f Format, status int, code abi.Code, message, hint string) problem {
	types, ok := errorTypes[status]
	if !ok {
		types = [2]string{"invalid_request_error", "invalid_request_error"}
	}
	p := problem{Type: types[0], Message: string(code) + ": " + message, Code: code, Hint: hint}
	if f == Messages {
		p.Type = types[1]
	}
	if hint != "" {
		p.Message += ". " + hint
	}
	return p
}

// ErrorBody returns the body of an error answer in the format of the client.
func ErrorBody(f Format, status int, code abi.Code, message, hint string) []byte {
	p := newProblem(f, status, code, message, hint)
	var body any = struct {
		Error problem `json:"error"`
	}{p}
	if f == Messages {
		body = struct {
			Type  string  `json:"type"`
			Error problem `json:"error"`
		}{"error", p}
	}
	return encoded(body)
}

// encoded returns v as JSON. It ignores the error, because the values of this file
// always encode.
func encoded(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// cut returns the event that ends a stream with an error. The OpenAI libraries raise
// the object "error", and Anthropic's the event of that name; they do not retry.
// For Responses the event has the fields of the format's own error event too.
func cut(f Format, sequence int64, code abi.Code, message, hint string) []byte {
	p := newProblem(f, Status(code), code, message, hint)
	switch f {
	case Messages:
		return sseEvent("error", struct {
			Type  string  `json:"type"`
			Error problem `json:"error"`
		}{"error", p})
	case Responses:
		return sseEvent("error", struct {
			Type     string   `json:"type"`
			Code     abi.Code `json:"code"`
			Message  string   `json:"message"`
			Param    *string  `json:"param"`
			Sequence int64    `json:"sequence_number"`
			Error    problem  `json:"error"`
		}{"error", code, p.Message, nil, sequence, p})
	}
	return sseEvent("", struct {
		Error problem `json:"error"`
	}{p})
}

// sseEvent returns a server-sent event with v as its data. name may be empty.
func sseEvent(name string, v any) []byte {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(append(b, "data: "...), encoded(v)...)
	return append(b, "\n\n"...)
}
