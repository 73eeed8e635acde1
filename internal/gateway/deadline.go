package gateway

import (
	"net/http"
	"time"
)

// writeTime is the time that a client has to read each write.
const writeTime = 60 * time.Second

// A deadlineWriter extends the write deadline with each write. One deadline from the
// start of the request would not do, because a model may think longer than writeTime.
type deadlineWriter struct {
	http.ResponseWriter
	until time.Time
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

// FlushError makes [http.ResponseController.Flush] work.
func (w *deadlineWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap makes the other methods of [http.ResponseController] work.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend moves the deadline after half of writeTime has passed, so that a stream of
// small writes does not set it each time.
func (w *deadlineWriter) extend() {
	if now := time.Now(); w.until.Sub(now) < writeTime/2 {
		w.until = now.Add(writeTime)
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(w.until) // a test's recorder has no deadline
	}
}
