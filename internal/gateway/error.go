package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/format"
)

// noSocket sends a program that tries a web socket first, as Codex does, to
// what is spoken here.
var noSocket = &abi.Error{Code: abi.InvalidCall, Message: "web sockets are not spoken here; expected the method POST"}

// fail answers with an error in the caller's own format.
func (v *inbound) fail(err error) {
	var e *abi.Error
	if !errors.As(err, &e) {
		e = &abi.Error{Code: abi.InvalidCall, Message: err.Error()}
	}
	status := format.Status(e.Code)
	switch {
	case e.Code == abi.BadKey:
		status = http.StatusUnauthorized
	case e == tooLarge:
		status = http.StatusRequestEntityTooLarge
	case e == noSocket:
		status = http.StatusUpgradeRequired
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
	_, _ = v.w.Write(format.ErrorBody(v.format, status, e.Code, message, e.Hint)) // a client that went away hears nothing
}

// head begins an answer of our own: whose it is and how that stands, once it is
// known.
func (v *inbound) head() http.Header {
	h := v.w.Header()
	h.Set("Content-Type", "application/json")
	if v.session != nil {
		setStanding(v.kernel, v.session.pid, h)
	}
	return h
}

// json answers with a value.
func (v *inbound) json(x any) {
	b, err := json.Marshal(x)
	if err != nil {
		v.fail(&abi.Error{Code: abi.Internal, Message: err.Error()})
		return
	}
	v.head()
	_, _ = v.w.Write(append(b, '\n'))
}
