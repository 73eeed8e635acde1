package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
)

// CanAsk reports whether a person at a terminal can answer a question.
func (t *Terminal) CanAsk() bool {
	f, ok := t.In.(*os.File)
	return ok && t.ErrTTY && isatty.IsTerminal(f.Fd())
}

// Confirm asks the person a question, and reports whether the answer is yes.
func (t *Terminal) Confirm(question string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-t.Interrupts:
			cancel()
		case <-ctx.Done():
		}
	}()
	yes, _, err := t.ask(ctx, question)
	return err == nil && yes
}

// ask asks a question until the answer begins with yes or no, and returns the words
// behind it. An empty line is a no.
func (t *Terminal) ask(ctx context.Context, question string) (yes bool, words string, err error) {
	for {
		line, err := t.prompt(ctx, question+" [y/N] ")
		if err != nil {
			return false, "", err
		}
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(strings.TrimRight(first, ",.:;")) {
		case "y", "yes":
			return true, strings.TrimSpace(rest), nil
		case "n", "no", "":
			return false, strings.TrimSpace(rest), nil
		}
		t.Note("kern: answer y or n; more words go to the agent: y, but only once")
	}
}

// errNoInput means that nobody is at the terminal any more.
var errNoInput = errors.New("the input has ended")

// prompt shows a question as the last line, and returns the line that the person
// types. A line that nobody waited for any more answers the next question.
func (t *Terminal) prompt(ctx context.Context, question string) (string, error) {
	t.Progress("")
	t.mu.Lock()
	if t.lines == nil {
		t.lines = make(chan string)
		go t.readLines(t.lines)
	}
	t.prompts, t.progress = true, question
	fmt.Fprint(t.Err, question)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.prompts, t.progress = false, ""
		t.mu.Unlock()
	}()
	select {
	case line, ok := <-t.lines:
		if !ok {
			return "", errNoInput
		}
		return line, nil
	case <-ctx.Done():
		fmt.Fprintln(t.Err)
		return "", ctx.Err()
	}
}

func (t *Terminal) readLines(lines chan<- string) {
	defer close(lines)
	for s := bufio.NewScanner(t.In); s.Scan(); {
		lines <- s.Text()
	}
}

// questions answers what a process asks, one question after the other, by the person
// at the terminal.
type questions struct {
	follower *Follower
	asked    chan question
	decided  chan uint64 // calls that somebody else answered
}

type question struct {
	call uint64
	text string
}

// maxQuestions is how many questions wait for the person; more are shown by kern ps.
const maxQuestions = 64

func newQuestions(f *Follower) *questions {
	return &questions{f, make(chan question, maxQuestions), make(chan uint64, maxQuestions)}
}

// add takes a question, or what is known of one from a record.
func (q *questions) add(r *abi.Record) {
	switch r.Kind {
	case abi.KindAsked:
		select {
		case q.asked <- question{r.Call, Clean(string(r.Note.Body.Bytes))}:
		default:
		}
	case abi.KindDecided:
		select {
		case q.decided <- r.Call:
		default:
		}
	}
}

// run asks until ctx ends.
func (q *questions) run(ctx context.Context) {
	done := make(map[uint64]bool)
	for {
		select {
		case <-ctx.Done():
			return
		case call := <-q.decided:
			done[call] = true
		case next := <-q.asked:
			if !done[next.call] {
				q.answer(ctx, next, done)
			}
		}
	}
}

// answer asks one question. An answer from elsewhere ends the prompt.
func (q *questions) answer(ctx context.Context, next question, done map[uint64]bool) {
	t, pid := q.follower.Session.Term, q.follower.Pid
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan struct{})
	var a api.Decision
	var err error
	go func() {
		defer close(answered)
		a.Yes, a.Words, err = t.ask(asking, fmt.Sprintf("process %d asks: %s", pid, next.text))
	}()
	for {
		select {
		case call := <-q.decided:
			if done[call] = true; call != next.call {
				continue
			}
			cancel()
			<-answered
			t.Note("kern: call %d was answered elsewhere", call)
			return
		case <-answered:
		}
		break
	}
	if err != nil {
		return
	}
	a.Call, a.By = next.call, t.User()
	if err := q.follower.Session.Do(ctx, func(c *api.Client) error { return c.Decide(ctx, pid, a) }); err != nil && ctx.Err() == nil {
		t.Complain(err)
	}
}
