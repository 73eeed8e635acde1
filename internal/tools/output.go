package tools

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kern-run/kern/abi"
)

// How much of an output is used.
const (
	// MaxKept is the most bytes of the output of one call that are kept. Of more, the
	// beginning and the end are kept, half each. With a note between them they are a
	// file of 16 MiB, the most that file tools read.
	MaxKept = 16<<20 - 4<<10
	// maxShown is the most bytes that a model reads whole. Of more, it reads partShown
	// bytes of the beginning and of the end, because nearly all of a context would
	// be this one result.
	maxShown  = 1 << 20
	partShown = 32 << 10
	// errorShown is how much output stands in an error: the beginning and the end.
	errorShown = 4 << 10
)

// kept is the beginning and the end of a stream, at most MaxKept bytes.
type kept struct {
	head, tail []byte
	total      int64
}

func (k *kept) write(b []byte) {
	k.total += int64(len(b))
	n := min(len(b), MaxKept/2-len(k.head))
	k.head = append(k.head, b[:n]...)
	k.tail = append(k.tail, b[n:]...)
	if len(k.tail) > MaxKept { // rarely, so that most writes only append
		k.tail = append(k.tail[:0], k.tail[len(k.tail)-MaxKept/2:]...)
	}
}

// left returns how many bytes of the middle are not kept.
func (k *kept) left() int64 {
	if k.total <= MaxKept {
		return 0
	}
	return k.total - MaxKept
}

// text returns what is kept, with a note where bytes are missing. The stream was cut
// at its end if cut is set.
func (k *kept) text(c censor, cut bool) []byte {
	n := k.left()
	if n == 0 {
		return c.text(append(slices.Clip(k.head), k.tail...), cut)
	}
	// A secret across the gap cannot be found, so both sides of it lose what may be a
	// part of one.
	head := c.text(k.head, true)
	tail := c.text(c.withoutRest(k.tail[len(k.tail)-MaxKept/2:]), cut)
	return slices.Concat(head, gap(n, "Kern did not keep them"), tail)
}

// gap is the note in place of bytes that are left out.
func gap(n int64, note string) []byte {
	if note != "" {
		note = "; " + note
	}
	return fmt.Appendf(nil, "\n... %s left out%s ...\n", size(n), note)
}

func size(n int64) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}

// shorten returns the beginning and the end of text, part bytes each, with a note
// between them. It returns text itself if that is not much longer. A part of the
// output, of left bytes, may be missing in text already.
func shorten(text []byte, part int, left int64, note string) []byte {
	if len(text) <= 2*part+len(note)+100 {
		return text
	}
	n := int64(len(text)-2*part) + left
	return slices.Concat(text[:part], gap(n, note), text[len(text)-part:])
}

// show sets the value of a successful call to its output, or to the beginning and the
// end of a long one. Code gets all of it, because it does not go into a context.
func (out *Output) show(in Input, value json.RawMessage, text []byte) {
	left := max(0, out.Bytes-MaxKept)
	if out.Value = value; in.Code && left == 0 || len(text) <= maxShown {
		return
	}
	out.Value, out.Whole = quoted(shorten(text, partShown, left, in.Rest)), text
}

// printed adds to the error of a call what the tool had written until then.
func (out *Output) printed(in Input, text []byte) {
	if len(text) == 0 {
		return
	}
	e := *out.Err
	shown := shorten(text, errorShown/2, max(0, out.Bytes-MaxKept), in.Rest)
	if len(shown) < len(text) {
		out.Whole = text
	}
	if e.Got != "" {
		e.Got = "\n" + e.Got
	}
	e.Got = string(valid(shown)) + e.Got
	out.Err = &e
}

func outputError(name string, most int64) *abi.Error {
	return &abi.Error{Code: abi.LimitOutputBytes, Message: fmt.Sprintf("tool %s gave more than %d bytes of output and was stopped", name, most),
		Hint: "ask for a part of it: a range, a filter, a summary"}
}
