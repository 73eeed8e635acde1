package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
)

// records streams the records of a process as lines of JSON, with large payloads.
// Each line is flushed at once. If the stream breaks off, its last line is
// {"error": ...}.
func (srv *Server) records(w http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	if err := query(r, "after", "follow"); err != nil {
		return nil, err
	}
	var err error
	after := uint64(0)
	if s := r.URL.Query().Get("after"); s != "" {
		if after, err = strconv.ParseUint(s, 10, 32); err != nil {
			return nil, expected("/after", s, "the number of a record")
		}
	}
	follow, err := flag(r, "follow")
	if err != nil {
		return nil, err
	}
	if _, err := srv.Views.Info(pid); err != nil {
		return nil, err
	}
	return nil, srv.stream(w, r, func(s *stream) error {
		return srv.Records(r.Context(), pid, after, follow, s.record)
	})
}

// stream answers with lines of JSON that write writes. An error of write is the
// last line.
func (srv *Server) stream(w http.ResponseWriter, r *http.Request, write func(*stream) error) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, c: http.NewResponseController(w), bytes: srv.Views.Bytes}
	// When the daemon stops it does not wait for a client that reads nothing.
	defer context.AfterFunc(r.Context(), func() { _ = s.c.SetWriteDeadline(time.Now().Add(lastTime)) })()
	err := write(s)
	if r.Context().Err() != nil {
		err, s.err = r.Context().Err(), nil // the daemon stops, which a client that is still there learns
	}
	if err != nil && s.err == nil {
		s.line(failure{asError(err)})
	}
	return nil
}

// lastTime is how long a reader may take for the rest of its stream.
const lastTime = time.Second

type stream struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	bytes func(abi.Data) ([]byte, error)
	err   error // set when the reader is gone
}

func (s *stream) record(r *abi.Record) error {
	if err := s.fill(r); err != nil {
		return err
	}
	return s.line(r)
}

// fill reads the large payloads of a record into it.
func (s *stream) fill(r *abi.Record) error {
	for d := range r.Payloads() {
		if d.Hash.IsZero() {
			continue
		}
		b, err := s.bytes(*d)
		if err != nil {
			return err
		}
		d.Bytes = b
	}
	return nil
}

func (s *stream) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, s.err = s.w.Write(append(b, '\n')); s.err == nil {
		s.err = s.c.Flush()
	}
	return s.err
}
