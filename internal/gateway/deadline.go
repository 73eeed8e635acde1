package gateway

import (
	"net/http"
	"time"
)

// writeTime is how long a client may take to read what it was sent.
const writeTime = 60 * time.Second

// A deadlineWriter gives the client time to read each thing that is written. A
// model may think for longer than a client may be silent, so a deadline that was
// set when the request came has passed by then.
type deadlineWriter struct {
	http.ResponseWriter
	until time.Time
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

// FlushError implements what [http.ResponseController] looks for.
func (w *deadlineWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap implements what [http.ResponseController] looks for.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend moves the deadline when half of the time has passed.
func (w *deadlineWriter) extend() {
	if now := time.Now(); w.until.Sub(now) < writeTime/2 {
		w.until = now.Add(writeTime)
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(w.until) // a test's recorder has none
	}
}
