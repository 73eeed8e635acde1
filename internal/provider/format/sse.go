package format

import "bytes"

// A splitter finds where the server-sent events of a stream end, in pieces of
// any size. An event ends with its blank line; what stands between events and
// has no data is an event too, so that every byte belongs to one.
type splitter struct {
	at, line int // of the event that is not whole: how far it was read, where its last line begins
}

// end returns the length of the event that b begins with, 0 while it is not
// whole. b is what it was at the last call, and more. lone says that the event
// ended in a carriage return with nothing behind it: a newline that follows
// belongs to it.
func (s *splitter) end(b []byte) (n int, lone bool) {
	for s.at < len(b) {
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
		if b[i] == '\n' && i > 0 && b[i-1] == '\r' && s.line == i { // the rest of a CRLF
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

// eventData is what the data lines of an event say, joined by newlines; nil if
// there are none. It is a part of the event, or of *scratch.
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
		case 1:
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
