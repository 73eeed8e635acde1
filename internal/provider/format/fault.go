package format

import (
	"encoding/json"
	"net/http"

	"github.com/kern-run/kern/abi"
)

// NoRetry is a header that the official libraries of both providers obey: with
// "false" they do not send a refused request again, whatever its status.
const NoRetry = "X-Should-Retry"

// Status is the HTTP status for a code. The libraries send a request again
// after 408, 409, 429 and everything from 500 on, so a refusal that waiting
// does not fix has none of them: a limit is not a 429.
func Status(code abi.Code) int {
	if _, ok := abi.LimitOf(code); ok && code != abi.LimitContext {
		return http.StatusPaymentRequired
	}
	switch code {
	case abi.UnknownModel, abi.UnknownRow, abi.UnknownTool, abi.UnknownProcess:
		return http.StatusNotFound
	case abi.ModelAuth:
		return http.StatusUnauthorized
	case abi.NotGranted, abi.NotApproved, abi.WatchdogLoop, abi.ToolBlocked,
		abi.ProcessKilled, abi.ProcessEnding, abi.ProcessExited:
		return http.StatusForbidden
	case abi.OutcomeUnknown, abi.Interrupted, abi.ToolGone, abi.ToolFailed, abi.ToolTimeout, abi.EmptyAnswer:
		return http.StatusFailedDependency
	case abi.ModelRateLimit:
		return http.StatusTooManyRequests
	case abi.ModelNetwork, abi.ModelMalformed:
		return http.StatusBadGateway
	case abi.ModelOverloaded, abi.StorageFull, abi.StorageBroken, abi.DaemonGone:
		return http.StatusServiceUnavailable
	case abi.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// errorTypes are the words of each format for a status.
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

// A problem is the error object of both formats. Hint is Kern's own, and so is
// Code in Anthropic's; readers of both let unknown fields pass.
type problem struct {
	Type    string   `json:"type"`
	Message string   `json:"message"`
	Param   *string  `json:"param,omitempty"`
	Code    abi.Code `json:"code"`
	Hint    string   `json:"hint,omitempty"`
}

// newProblem has the code and the hint in the message too: most programs show
// nothing else.
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

// ErrorBody is an error in the caller's own format.
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

// encoded is v as JSON. The values of this file always encode.
func encoded(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// cut is the event that ends a stream. The libraries raise an error at the
// object "error", in Anthropic's at the event of that name, and send nothing
// again. Readers of Responses that look for the format's own event find that
// too.
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

func sseEvent(name string, v any) []byte {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(append(b, "data: "...), encoded(v)...)
	return append(b, "\n\n"...)
}
