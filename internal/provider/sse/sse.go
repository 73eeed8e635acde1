// Package sse reads server-sent events: what a provider streams.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEvent bounds one event; a model's longest call fits many times.
const MaxEvent = 8 << 20

// ErrTooLong is what an event beyond that comes to.
var ErrTooLong = fmt.Errorf("an event is longer than %d bytes", MaxEvent)

// A Reader splits a stream of server-sent events. An event is given as
// soon as its last byte is there: nothing waits for the byte after it.
type Reader struct {
	r      *bufio.Reader
	skipLF bool // the last line ended in CR; an LF now belongs to it
	first  bool // the first line may begin with a byte order mark
}

// New reads from r.
func New(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 16<<10), first: true}
}

// Next returns the next event that has data. whole is false for one that the
// stream's end cut short of its blank line; then its data may be incomplete,
// which a JSON object shows by itself. After the last event err is io.EOF, or
// what broke the stream.
func (s *Reader) Next() (name string, data []byte, whole bool, err error) {
	some := false
	for {
		line, err := s.line(MaxEvent - len(data))
		if err != nil && !errors.Is(err, io.EOF) {
			return "", nil, false, err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && err == nil:
			if some {
				return name, data, true, nil
			}
			name = ""
		case string(field) == "data":
			if some {
				data = append(data, '\n')
			}
			data, some = append(data, value...), true
		case string(field) == "event":
			name = string(value)
		}
		if err != nil {
			if some {
				return name, data, false, nil
			}
			return "", nil, false, err
		}
	}
}

// line reads up to LF, CR or CRLF. At the end of the stream it returns what
// there is, with io.EOF.
func (s *Reader) line(room int) ([]byte, error) {
	var line []byte
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return line, err
		}
		if s.skipLF {
			s.skipLF = false
			if c == '\n' {
				continue
			}
		}
		if c == '\n' || c == '\r' {
			s.skipLF = c == '\r'
			if s.first {
				s.first = false
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			return line, nil
		}
		if line = append(line, c); len(line) > room {
			return nil, ErrTooLong
		}
	}
}
