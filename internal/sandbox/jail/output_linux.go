package jail

import (
	"errors"
	"io"
	"sync"
)

// An output keeps the bytes that a program writes, up to a limit for both streams
// together. It also passes them to a Writer as they come.
type output struct {
	mu   sync.Mutex
	left int64
	over func() // called once, when output exceeds the limit
	cut  bool
	kept [2][]byte
}

// copy moves stream i from r to w until r ends. A writer that fails gets no more, and
// the program does not notice.
func (o *output) copy(i int, r io.Reader, w io.Writer) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		b := o.keep(i, buf[:n])
		if w != nil && len(b) > 0 {
			if _, err := w.Write(b); err != nil {
				w = nil
			}
		}
		if err != nil {
			return
		}
	}
}

func (o *output) keep(i int, b []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if int64(len(b)) > o.left {
		b = b[:o.left]
		if !o.cut {
			o.cut = true
			o.over()
		}
	}
	o.left -= int64(len(b))
	o.kept[i] = append(o.kept[i], b...)
	return b
}

// take returns the output so far and drops all later output.
func (o *output) take() (stdout, stderr []byte, cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left = 0
	return o.kept[0], o.kept[1], o.cut
}

// feed copies r to the program's input and closes the input at the end of r. A Reader
// that never returns blocks only this goroutine.
func feed(w io.WriteCloser, r io.Reader) {
	if r != nil {
		io.Copy(w, r)
	}
	w.Close()
}

// errGone is the error of a box that ended while it started.
var errGone = errors.New("the box ended before its program started")
