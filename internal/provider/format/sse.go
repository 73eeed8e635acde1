package format

import "bytes"

// splitter finds the ends of the server-sent events in a stream that arrives in
// pieces of any size. An event ends with its blank line. Lines without data between
// two events count as an event too, so that every byte belongs to an event.
type splitter struct {
	at, line int // in the incomplete event: how far it is read, and where its last line begins
}

// end returns the length of the event at the start of b, or 0 while that event is
// incomplete. After a 0 the caller passes the same bytes again, with more bytes
// after them. lone means that the event and b end in a carriage return. Then a
// newline at the start of the next piece belongs to the event.
func (s *splitter) end(b []byte) (n int, lone bool) {
	for s.at < len(b) {
		// Skip the rest of a line.
		i := s.at
		if b[i] != '\n' && b[i] != '\r' {
			k := bytes.IndexByte(b[i:], '\n')
			if k < 0 {
				k = len(b) - i
			}
			if r := bytes.IndexByte(b[i:i+k], '\r'); r >= 0 {
				k = r
			}
			s.at = i + k
			continue
		}
		if b[i] == '\n' && i > 0 && b[i-1] == '\r' && s.line == i { // the newline of a CRLF
			s.at, s.line = i+1, i+1
			continue
		}
		empty := s.line == i
		s.at, s.line = i+1, i+1
		if !empty {
			continue
		}
		n = i + 1
		if b[i] == '\r' {
			if n == len(b) {
				lone = true
			} else if b[n] == '\n' {
				n++
			}
		}
		*s = splitter{}
		return n, lone
	}
	return 0, false
}

// eventData returns the data lines of an event, joined by newlines, or nil if there
// are none. The result is a slice of event or of *scratch.
func eventData(event []byte, scratch *[]byte) []byte {
	var data []byte
	lines := 0
	for len(event) > 0 {
		k := bytes.IndexByte(event, '\n')
		if r := bytes.IndexByte(event[:max(k, 0)], '\r'); k < 0 || r >= 0 {
			if k = bytes.IndexByte(event, '\r'); k < 0 {
				k = len(event)
			}
		}
		line := event[:k]
		event = event[min(k+1, len(event)):]
		value, ok := bytes.CutPrefix(line, []byte("data"))
		if !ok || len(value) > 0 && value[0] != ':' {
			continue
		}
		value = bytes.TrimPrefix(bytes.TrimPrefix(value, []byte(":")), []byte(" "))
		switch lines++; lines {
		case 1: // the usual event has one data line and needs no copy
			data = value[:len(value):len(value)]
		case 2:
			*scratch = append(append((*scratch)[:0], data...), '\n')
			*scratch = append(*scratch, value...)
			data = *scratch
		default:
			*scratch = append(append(*scratch, '\n'), value...)
			data = *scratch
		}
	}
	if lines == 0 {
		return nil
	}
	if data == nil {
		data = []byte{}
	}
	return data
}
