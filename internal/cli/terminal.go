package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/mattn/go-isatty"
)

// A Terminal holds the standard streams of a command. Results go to Out, and
// everything else that a person reads goes to Err.
type Terminal struct {
	In             io.Reader
	Out, Err       io.Writer
	OutTTY, ErrTTY bool
	Getenv         func(string) string
	Interrupts     <-chan os.Signal // Ctrl-C and SIGTERM

	mu       sync.Mutex // guards Err while a progress line is shown
	progress string     // that line
	prompts  bool       // the line is a question, which stays until it is answered
	lines    chan string
}

// NewTerminal is the terminal of this program.
func NewTerminal(interrupts <-chan os.Signal) *Terminal {
	return &Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Interrupts: interrupts,
		OutTTY: isatty.IsTerminal(os.Stdout.Fd()), ErrTTY: isatty.IsTerminal(os.Stderr.Fd())}
}

// Colours.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Bold   = "1"
	Faint  = "2"
)

const clearLine = "\r\x1b[K"

// Paint colours a text for Out.
func (t *Terminal) Paint(colour, s string) string { return t.paint(t.OutTTY, colour, s) }

// PaintErr colours a text for Err.
func (t *Terminal) PaintErr(colour, s string) string { return t.paint(t.ErrTTY, colour, s) }

func (t *Terminal) paint(tty bool, colour, s string) string {
	if !tty || t.Getenv("NO_COLOR") != "" || t.Getenv("TERM") == "dumb" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// Print writes a result.
func (t *Terminal) Print(format string, args ...any) error {
	_, err := fmt.Fprintf(t.Out, format, args...)
	return err
}

// JSON prints a value as one line of JSON. Texts in it stay as they are.
func (t *Terminal) JSON(v any) error {
	e := json.NewEncoder(t.Out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Table prints rows below the heads of their columns.
func (t *Terminal) Table(columns []Column, rows [][]string) error {
	return t.Print("%s", Table(columns, rows, t.Width(), t.Paint))
}

// Facts prints pairs of a name and a text.
func (t *Terminal) Facts(rows [][]string) error {
	return t.Print("%s", Facts(rows, t.Width()))
}

// Note prints a line for the person, above the progress line if there is one.
func (t *Terminal) Note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.progress != "" {
		fmt.Fprint(t.Err, clearLine)
	}
	fmt.Fprintf(t.Err, format+"\n", args...)
	if t.progress != "" {
		fmt.Fprint(t.Err, t.progress)
	}
}

// FreshLine moves to the next line of a terminal, unless the line is empty: a program may
// have left a line without an end. A terminal does not say where its cursor is, so
// FreshLine fills the line: the cursor comes to the next one only if it was not the first.
func (t *Terminal) FreshLine() {
	f, ok := t.Err.(*os.File)
	if !ok || !t.ErrTTY || t.Getenv("TERM") == "dumb" {
		return
	}
	if n := columnsOf(f); n >= narrowest {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprint(t.Err, strings.Repeat(" ", n-1)+clearLine)
	}
}

// Complain prints an error, and a hint what to do about it.
func (t *Terminal) Complain(err error) {
	if err == nil {
		return
	}
	message, hint := explain(err)
	t.Note("kern: %s", t.PaintErr(Red, Clean(message)))
	if hint != "" {
		t.Note("  hint: %s", Clean(hint))
	}
}

// Progress shows s as the last line of a terminal. An empty s removes the line.
func (t *Terminal) Progress(s string) {
	if !t.ErrTTY || t.Getenv("TERM") == "dumb" {
		return
	}
	s = Cut(s, t.width(true, t.Err)-1) // a line that wraps could not be removed
	t.mu.Lock()
	defer t.mu.Unlock()
	if s != t.progress && !t.prompts {
		t.progress = s
		fmt.Fprint(t.Err, clearLine+s)
	}
}

// A terminal that reports fewer columns than narrowest does not know its width.
// UsualWidth replaces its answer, and is the width of help in a pipe.
const (
	narrowest  = 20
	UsualWidth = 80
)

// Width is the number of columns of Out. It is 0 for a pipe or a file: a program
// that reads gets lines neither shortened nor wrapped.
func (t *Terminal) Width() int { return t.width(t.OutTTY, t.Out) }

func (t *Terminal) width(tty bool, w io.Writer) int {
	if !tty {
		return 0
	}
	if n, err := strconv.Atoi(t.Getenv("COLUMNS")); err == nil && n >= narrowest {
		return n
	}
	if f, ok := w.(*os.File); ok {
		if n := columnsOf(f); n >= narrowest {
			return n
		}
	}
	return UsualWidth
}

// ErrInterrupted is the cause that Ctrl-C ends a context with.
var ErrInterrupted = errors.New("interrupted")

// Interruptible is ctx until Ctrl-C, which ends it with [ErrInterrupted].
func (t *Terminal) Interruptible(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-t.Interrupts:
			cancel(ErrInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx
}

// User is the name of the person that runs the command.
func (t *Terminal) User() string {
	for _, v := range []string{"USER", "LOGNAME", "USERNAME"} {
		if s := t.Getenv(v); s != "" {
			return s
		}
	}
	return "a person"
}
