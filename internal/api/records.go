package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
)

// records streams the journal of a process as lines of JSON, large payloads
// included, each line flushed as it comes. Its reader is served from the
// journal alone, so it may be as slow as it likes. When the stream cannot go
// on, its last line is {"error": ...}.
func (srv *Server) records(w http.ResponseWriter, r *http.Request) (any, error) {
	pid, err := pidOf(r)
	if err != nil {
		return nil, err
	}
	if err := query(r, "after", "follow"); err != nil {
		return nil, err
	}
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
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, c: http.NewResponseController(w), bytes: srv.Views.Bytes}
	// A reader that reads nothing does not hold up the daemon's end.
	defer context.AfterFunc(r.Context(), func() { _ = s.c.SetWriteDeadline(time.Now().Add(lastTime)) })()
	if err := srv.Records(r.Context(), pid, after, follow, s.record); err != nil && s.err == nil && r.Context().Err() == nil {
		s.line(failure{asError(err)})
	} else if r.Context().Err() != nil {
		s.line(failure{asError(r.Context().Err())}) // the daemon's end, if somebody is there to read it
	}
	return nil, nil
}

// lastTime is how long a reader may take over what is left of its stream.
const lastTime = time.Second

type stream struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	bytes func(abi.Data) ([]byte, error)
	err   error // the reader is gone
}

func (s *stream) record(r *abi.Record) error {
	for _, d := range payloads(r) {
		if d.Hash.IsZero() {
			continue
		}
		b, err := s.bytes(*d)
		if err != nil {
			return err
		}
		d.Bytes = b
	}
	return s.line(r)
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

// payloads are the payloads of a record.
func payloads(r *abi.Record) []*abi.Data {
	var all []*abi.Data
	if s := r.Spawn; s != nil {
		all = append(all, &s.Program, &s.Task)
		if s.Fork != nil {
			all = append(all, &s.Fork.State)
		}
	}
	if i := r.Intent; i != nil {
		all = append(all, &i.Args, &i.Say)
	}
	if a := r.Answer; a != nil {
		all = append(all, &a.Value)
	}
	if n := r.Note; n != nil {
		all = append(all, &n.Body)
	}
	if e := r.Exit; e != nil {
		all = append(all, &e.Output)
	}
	return all
}
