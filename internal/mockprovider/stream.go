package mockprovider

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The faults.
const (
	Cut        = "cut"        // the connection breaks after At events, or in the middle of the body
	Malformed  = "malformed"  // event At, or the body, is not JSON
	NoUsage    = "nousage"    // the answer states no usage
	WrongUsage = "wrongusage" // the answer states At output tokens too many
	Hang       = "hang"       // nothing more comes after At events
	Slow       = "slow"       // byte by byte, At milliseconds apart
)

var faultKinds = []string{Cut, Malformed, NoUsage, WrongUsage, Hang, Slow}

// A Fault is a defect of an answer, on demand.
type Fault struct {
	Kind  string
	At    int
	Share float64 // part of the answers with this fault; 0 without Only: all
	Only  uint64  // the one request with this fault, from 1
}

// ParseFault reads KIND, KIND@N, KIND@N=10% and KIND@N#3.
func ParseFault(s string) (f Fault, err error) {
	rest, only, isOnly := strings.Cut(s, "#")
	rest, share, isShare := strings.Cut(rest, "=")
	name, at, isAt := strings.Cut(rest, "@")
	f = Fault{Kind: name}
	known := false
	for _, k := range faultKinds {
		known = known || k == name
	}
	if isAt {
		f.At, err = strconv.Atoi(at)
	}
	if err == nil && isOnly {
		f.Only, err = strconv.ParseUint(only, 10, 63)
	}
	if err == nil && isShare {
		f.Share, err = ParseShare(share)
	}
	if err != nil || !known || isOnly && (f.Only == 0 || isShare) || f.At < 0 && name != WrongUsage {
		return f, fmt.Errorf("the fault %q, expected KIND, KIND@N, KIND@N=10%% or KIND@N#3, where KIND is one of %s", s, strings.Join(faultKinds, ", "))
	}
	switch {
	case f.At == 0 && name == Slow:
		f.At = 10
	case f.At == 0 && name == WrongUsage && !isAt:
		f.At = 1000
	}
	return f, nil
}

// ParseShare reads 5% or 0.05.
func ParseShare(s string) (float64, error) {
	n, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(n, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%q, expected a share such as 5%% or 0.05", s)
	}
	return v, nil
}

// fault returns the fault of this request, if it has one.
func (x *handler) fault() Fault {
	for _, f := range x.mock.config.Faults {
		draw := x.rand.Float64()
		switch {
		case f.Only > 0 && f.Only != x.seq, f.Share > 0 && draw >= f.Share:
			continue
		}
		return f
	}
	return Fault{}
}

// A Spread is a distribution of times.
type Spread struct {
	median, around, p99 time.Duration
}

// ParseSpread reads 200ms, 200ms±50ms (or 200ms+-50ms), and p50=200ms,p99=2s.
func ParseSpread(s string) (d Spread, err error) {
	bad := fmt.Errorf("%q, expected a time such as 200ms, 200ms±50ms or p50=200ms,p99=2s", s)
	middle, rest, isRange := strings.Cut(strings.Replace(s, "+-", "±", 1), "±")
	if p50, p99, ok := strings.Cut(s, ","); ok {
		middle, ok = strings.CutPrefix(p50, "p50=")
		rest, isRange = strings.CutPrefix(p99, "p99=")
		if !ok || !isRange {
			return d, bad
		}
		if d.p99, err = time.ParseDuration(rest); err != nil {
			return d, bad
		}
	} else if isRange {
		if d.around, err = time.ParseDuration(rest); err != nil {
			return d, bad
		}
	}
	if d.median, err = time.ParseDuration(middle); err != nil || d.median < 0 || d.around < 0 || d.p99 > 0 && d.p99 < d.median {
		return d, bad
	}
	return d, nil
}

// draw returns a time: evenly around the middle, or with the given median and
// 99th percentile and the long tail of real networks.
func (d Spread) draw(r *rand.Rand) time.Duration {
	switch {
	case d.around > 0:
		return max(0, d.median+time.Duration((2*r.Float64()-1)*float64(d.around)))
	case d.p99 > 0 && d.median > 0:
		const at99 = 2.3263478740408408 // of a normal distribution
		sigma := math.Log(float64(d.p99)/float64(d.median)) / at99
		return time.Duration(float64(d.median) * math.Exp(sigma*r.NormFloat64()))
	}
	return d.median
}

var (
	errCut  = errors.New("cut, as asked")
	errGone = errors.New("the client is gone")
)

// A stream writes events with the requested fault. After an error it writes
// nothing, so a format need not check.
type stream struct {
	x     *handler
	fault Fault
	chunk int           // words in a piece
	first time.Duration // before the first piece
	pause time.Duration // for each token

	events, sent, total int // paid bytes: sent, and in total
	err                 error
}

// event writes one event. Chat has no event names.
func (s *stream) event(name string, v any) {
	if s.err != nil {
		return
	}
	data, ok := v.([]byte)
	if !ok {
		if data, s.err = encode(v); s.err != nil {
			return
		}
	}
	s.events++
	if s.events == s.fault.At+1 {
		switch s.fault.Kind {
		case Cut:
			s.err = errCut
			return
		case Hang:
			s.hang()
			return
		case Malformed:
			data = data[:len(data)/2]
		}
	}
	b := make([]byte, 0, len(data)+len(name)+24)
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(append(append(b, "data: "...), data...), "\n\n"...)
	s.write(b)
}

func (s *stream) write(b []byte) {
	if disconnected(s.x) {
		s.abort(errGone)
		return
	}
	if s.fault.Kind != Slow {
		if _, err := s.x.w.Write(b); err != nil {
			s.abort(err)
			return
		}
		s.flush()
		return
	}
	for i := range b {
		if _, err := s.x.w.Write(b[i : i+1]); err != nil {
			s.abort(err)
			return
		}
		s.flush()
		if !s.x.pause(time.Duration(s.fault.At) * time.Millisecond) {
			s.err = errGone
			return
		}
	}
}

func (s *stream) abort(err error) { s.err, s.x.entry.Aborted = err, true }

func disconnected(x *handler) bool { return x.r.Context().Err() != nil }

func (s *stream) hang() {
	<-s.x.r.Context().Done()
	s.abort(errGone)
}

func (s *stream) flush() {
	if f, ok := s.x.w.(http.Flusher); ok {
		f.Flush()
	}
}

// writeBody writes a body at once.
func (s *stream) writeBody(v any) {
	b, err := encode(v)
	if err != nil {
		s.err = err
		return
	}
	switch s.fault.Kind {
	case Cut:
		s.write(b[:len(b)/2])
		s.err = errCut
		return
	case Malformed:
		b = b[:len(b)/2]
	}
	s.write(b)
}

// deltas sends a text as events of one form. It encodes the form once, with a
// marker that no text contains.
func (s *stream) deltas(name, text string, form func(piece string) object) {
	const word = "\ufdd0piece\ufdd1" // these characters are in no text
	b, err := encode(form(word))
	before, after, ok := bytes.Cut(b, []byte(`"`+word+`"`))
	if err != nil || !ok {
		s.err = errors.Join(err, errors.New("the form has no place for the piece"))
		return
	}
	for p := range s.pieces(text) {
		piece, err := encode(p)
		if err != nil {
			s.err = err
			return
		}
		s.event(name, slices.Concat(before, piece, after))
	}
}

// pieces yields a text piece by piece at the pace of a model. A piece counts as
// paid when the next one is asked for.
func (s *stream) pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(text) > 0 && s.err == nil {
			n := endOfWords(text, s.chunk)
			if !s.x.pause(s.first + s.pause) {
				s.err = errGone
				return
			}
			s.first = 0
			if !yield(text[:n]) {
				return
			}
			if s.err == nil {
				s.sent += n
			}
			text = text[n:]
		}
	}
}

// countPaid counts sent bytes that are not part of a text.
func (s *stream) countPaid(n int) {
	if s.err == nil {
		s.sent += n
	}
}

// endOfWords returns the end of the n-th word. It splits a very long word.
func endOfWords(s string, n int) int {
	const long = 24
	at := 0
	for ; n > 0 && at < len(s); n-- {
		begin := at
		for at < len(s) && s[at] == ' ' {
			at++
		}
		for at < len(s) && s[at] != ' ' && (at-begin < long || s[at]&0xc0 == 0x80) {
			at++
		}
	}
	return at
}

// partSent returns the part of n tokens that was sent, rounded up.
func (s *stream) partSent(n int64) int64 {
	if s.total == 0 {
		return 0
	}
	return min(n, (n*int64(s.sent)+int64(s.total)-1)/int64(s.total))
}
