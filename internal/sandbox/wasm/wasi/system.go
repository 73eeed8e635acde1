// Package wasi is the operating system of code in the sandbox wasm: the functions of
// WASI preview 1 that CPython imports, over a [Tree] of files.
//
// It guarantees three things that a general WASI does not. Every function that waits
// ends when the run ends. All descriptors are closed before an instance is used
// again. Each write checks how much disk and memory of the host the code may take.
package wasi

import (
	"bytes"
	"io"
	"strings"
	"time"
)

// A System holds the files, streams and clocks of one run. It belongs to the
// goroutine of the run.
type System struct {
	Tree   Tree
	Stdin  io.Reader
	Output func(stream int, b []byte) // takes what is written to 1 and 2
	Done   <-chan struct{}            // closed when the run must end
	Random io.Reader
	Wait   func(f func()) // runs f, which waits; nil: f is called directly

	Wall func() time.Time
	Mono func() time.Duration
	CPU  func() time.Duration

	files []*file
	input *pendingRead
}

// proc_exit panics with an Exit, so that no code runs after it.
type Exit struct{ Code uint32 }

func (e Exit) Error() string { return "the code ended itself" }

const (
	rootFD     = 3       // the only directory that is open at the start: "/"
	maxFiles   = 64      // open at one time, because each takes a descriptor of the host
	maxMove    = 1 << 20 // bytes of one read or write
	maxBuffers = 1024    // in one read or write
)

// Start opens the first descriptors.
func (s *System) Start() {
	s.files = append(s.files[:0], stream(0), stream(1), stream(2), &file{path: "/", stream: -1, read: true, st: directory("/")})
}

// Stop closes all descriptors and removes private files.
func (s *System) Stop() error {
	for _, f := range s.files {
		if f != nil {
			f.close(&s.Tree)
		}
	}
	clear(s.files)
	s.files = s.files[:0]
	s.input = nil
	return s.Tree.Close()
}

// Open counts the descriptors in use.
func (s *System) Open() int {
	n := 0
	for _, f := range s.files {
		if f != nil {
			n++
		}
	}
	return n
}

func (s *System) file(fd uint32) (*file, Errno) {
	if uint64(fd) >= uint64(len(s.files)) || s.files[fd] == nil {
		return nil, eBadf
	}
	return s.files[fd], ok
}

// add assigns the lowest free descriptor to f.
func (s *System) add(f *file) (uint32, Errno) {
	for i, g := range s.files {
		if g == nil {
			s.files[i] = f
			return uint32(i), ok
		}
	}
	if len(s.files) >= maxFiles {
		return 0, eMfile
	}
	s.files = append(s.files, f)
	return uint32(len(s.files) - 1), ok
}

// A pendingRead is a read of Stdin that may last longer than the run.
type pendingRead struct {
	done chan struct{}
	b    []byte
	err  error
}

// readInput reads from Stdin. A reader that may wait is read in a goroutine.
func (s *System) readInput(b []byte) (int, Errno) {
	switch r := s.Stdin.(type) {
	case nil:
		return 0, ok
	case *strings.Reader, *bytes.Reader, *bytes.Buffer:
		n, err := r.Read(b)
		if err == io.EOF {
			err = nil
		}
		return n, errnoOf(err)
	}
	// The goroutine reads into a buffer of its own, because it may outlive the run and the memory of the instance.
	if s.input == nil {
		p := &pendingRead{done: make(chan struct{})}
		r, size := s.Stdin, min(len(b), 64<<10)
		go func() {
			defer close(p.done)
			b := make([]byte, size)
			n, err := r.Read(b)
			p.b, p.err = b[:n], err
		}()
		s.input = p
	}
	ended := false
	p := s.input
	s.wait(func() {
		select {
		case <-p.done:
		case <-s.Done:
			ended = true
		}
	})
	if ended {
		return 0, eIntr
	}
	// The code may have asked for less than was read. The rest waits for the next call.
	n := copy(b, p.b)
	p.b = p.b[n:]
	if len(p.b) > 0 {
		return n, ok
	}
	s.input = nil
	if n == 0 && p.err != nil && p.err != io.EOF {
		return 0, eIO
	}
	return n, ok
}

// sleep waits until d has passed or the run ends.
func (s *System) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	s.wait(func() {
		select {
		case <-t.C:
		case <-s.Done:
		}
	})
}

func (s *System) wait(f func()) {
	if s.Wait == nil {
		f()
		return
	}
	s.Wait(f)
}
