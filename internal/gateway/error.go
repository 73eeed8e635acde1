package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/format"
)

// noSocket is the answer to a program that tries a web socket first, as Codex does.
// The program then uses POST.
var noSocket = &abi.Error{Code: abi.InvalidCall, Message: "web sockets are not spoken here; expected the method POST"}

// notByKey is the answer to a request for a child whose loop Kern runs.
var notByKey = &abi.Error{Code: abi.NotGranted, Message: "that process is not reached with a key, because Kern runs its loop", Where: ChildHeader,
	Hint: "choose another name for the child"}

// fail answers with an error in the format of the client. It forbids a retry of
// errors below 500 other than 429, because a retry would fail in the same way.
func (v *inbound) fail(err error) {
	var e *abi.Error
	if !errors.As(err, &e) {
		e = &abi.Error{Code: abi.InvalidCall, Message: err.Error()}
	}
	status := format.Status(e.Code)
	switch {
	case v.budget != nil && e == v.budget.tooLarge:
		status = http.StatusRequestEntityTooLarge
	case e.Code == abi.BadKey:
		status = http.StatusUnauthorized
	case e == noSocket:
		status = http.StatusUpgradeRequired
	case e == notByKey:
		status = http.StatusConflict
	case e.Code == abi.UnknownRow:
		status = http.StatusNotFound
	}
	message := e.Message
	if e.Where != "" {
		message += " (at " + e.Where + ")"
	}
	h := v.head()
	if status < 500 && status != http.StatusTooManyRequests {
		h.Set(format.NoRetry, "false")
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(format.ErrorBody(v.format, status, e.Code, message, e.Hint)) // the client may have disconnected
	v.linger()
}

// head sets the headers of an answer that the gateway itself writes. They name the
// process and its usage if the process is known.
func (v *inbound) head() http.Header {
	h := v.w.Header()
	h.Set("Content-Type", "application/json")
	if v.session != nil {
		setStanding(v.kernel, v.session.pid, h)
	}
	return h
}

// json answers with x as JSON.
func (v *inbound) json(x any) {
	b, err := json.Marshal(x)
	if err != nil {
		v.fail(&abi.Error{Code: abi.Internal, Message: err.Error()})
		return
	}
	v.head()
	_, _ = v.w.Write(append(b, '\n'))
}
