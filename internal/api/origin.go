package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/recent"
)

// maxOrigins is how many origins a server keeps, because they are read often.
const maxOrigins = 4096

// origins reads what lists show of first records, and keeps it.
type origins struct {
	records func(ctx context.Context, pid abi.Pid, after uint64, follow bool, f func(*abi.Record) error) error
	bytes   func(abi.Data) ([]byte, error)
	cache   recent.Cache[abi.Pid, ProcessOrigin]
}

// errEnough ends the reading of records.
var errEnough = errors.New("enough")

// of reads the first record of a process.
func (s *origins) of(pid abi.Pid) (o ProcessOrigin, err error) {
	if o, ok := s.cache.Get(pid); ok {
		return o, nil
	}
	err = s.records(context.Background(), pid, 0, false, func(r *abi.Record) (err error) {
		if r.Spawn != nil {
			o, err = s.read(r.Spawn)
		}
		return cmp.Or(err, errEnough)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return o, err
	}
	s.cache.Put(pid, o)
	return o, nil
}

// read returns the title of a process, or else the first line of its task.
func (s *origins) read(spawn *abi.Spawn) (o ProcessOrigin, err error) {
	b, err := s.bytes(spawn.Program)
	if err != nil {
		return o, err
	}
	var agent struct {
		Model string `json:"model"`
	}
	_ = json.Unmarshal(b, &agent) // a list shows a process even if its agent cannot be read
	o.Model, o.Title = agent.Model, spawn.Title
	if o.Title == "" {
		if b, err = s.bytes(spawn.Task); err != nil {
			return o, err
		}
		o.Title, _, _ = strings.Cut(strings.TrimSpace(string(b)), "\n")
	}
	if o.Title == "" && spawn.Fork != nil {
		source, err := s.of(spawn.Fork.Pid) // it does the same task
		if err != nil {
			return o, err
		}
		o.Title = source.Title
	}
	o.Title = shorten(o.Title)
	return o, nil
}

// shorten cuts a text to the length of a title, between characters.
func shorten(s string) string {
	if len(s) <= abi.MaxTitle {
		return s
	}
	s = s[:abi.MaxTitle-len("…")]
	for !utf8.ValidString(s) && s != "" {
		s = s[:len(s)-1]
	}
	return s + "…"
}
