package jail

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/program/frame"
	"github.com/kern-run/kern/internal/sandbox"
)

//go:embed boot.py
var boot string

// enter is Python code that runs the bootstrap in a namespace of its own. Otherwise,
// references of the bootstrap would keep objects alive and prevent their finalizers.
const enter = "exec(__import__('sys').argv[1], {'__name__': '_boot'})"

// interpreter returns the command of a Python that waits for its code on the last of
// its links. The next descriptor of a warm one holds its Landlock rules.
func (b *Backend) interpreter(links int, warm bool) []string {
	link, rules, how := 2+links, -1, "cold"
	if warm {
		how = "warm"
		if b.abi > 0 {
			rules = link + 1
		}
	}
	return []string{b.python, "-I", "-X", "utf8", "-c", enter, boot, strconv.Itoa(link), strconv.Itoa(rules), how}
}

// putFrame writes the length of b, then b.
func putFrame(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// getFrame reads bytes that putFrame wrote, at most frame.Max.
func getFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > frame.Max {
		return nil, fmt.Errorf("want a frame of at most %d bytes, got %d", frame.Max, n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// awaitPython waits until a warm interpreter has done its imports.
func (x *box) awaitPython(ctx context.Context) error { return x.expectFrame(ctx, "ready") }

// expectFrame reads one frame from the program's link, which must be want.
func (x *box) expectFrame(ctx context.Context, want string) error {
	if len(x.links) != 1 {
		return fmt.Errorf("want one link to the interpreter, got %d", len(x.links))
	}
	l := x.links[0]
	stop := context.AfterFunc(ctx, func() { l.SetReadDeadline(time.Now()) })
	defer stop()
	b, err := getFrame(l)
	if err != nil {
		return err
	}
	if string(b) != want {
		return fmt.Errorf("want the interpreter to say %q, got %q", want, b)
	}
	return nil
}

// sendCode sends the code of s to a warm interpreter and waits until it arrived. An
// error means that no code of s ran.
func (x *box) sendCode(ctx context.Context, s *sandbox.Spec) error {
	sent := make(chan error, 1)
	// The code may be larger than the socket's buffer, so writing must not delay the watch on the answer.
	go func() { sent <- writeCode(x.links[0], s) }()
	if err := x.expectFrame(ctx, "taken"); err != nil {
		x.kill() // ends writeCode too, because its reader is gone
		return errors.Join(err, <-sent)
	}
	return <-sent
}

// writeCode writes the environment, the code and the functions of s to the interpreter.
func writeCode(l *os.File, s *sandbox.Spec) error {
	type param struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Optional bool   `json:"optional"`
	}
	type function struct {
		Namespace string  `json:"namespace"`
		Name      string  `json:"name"`
		Doc       string  `json:"doc"`
		Params    []param `json:"params"`
	}
	// An empty table tells the bootstrap that there is no module tools.
	var table []byte
	if len(s.Functions) > 0 {
		fs := make([]function, len(s.Functions))
		for i, f := range s.Functions {
			fs[i] = function{f.Namespace, f.Name, f.Doc, make([]param, len(f.Params))}
			for j, p := range f.Params {
				fs[i].Params[j] = param(p)
			}
		}
		var err error
		if table, err = json.Marshal(fs); err != nil {
			return err
		}
	}
	var env []string
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	// Check refused NUL in the environment, so it separates the variables.
	if err := putFrame(l, []byte(strings.Join(env, "\x00"))); err != nil {
		return err
	}
	return errors.Join(putFrame(l, []byte(s.Code)), putFrame(l, table))
}

// answerCalls runs the functions that the program calls, until the link l ends. Calls
// come one after the other, because the program waits for each answer.
func answerCalls(ctx context.Context, l *os.File, fs []sandbox.Function, memoryError func()) {
	defer l.Close()
	for {
		b, err := getFrame(l)
		if err != nil {
			return
		}
		if string(b) == "memory" {
			memoryError()
			continue
		}
		var q struct {
			F *int            `json:"f"`
			A json.RawMessage `json:"a"`
		}
		if json.Unmarshal(b, &q) != nil || q.F == nil || *q.F < 0 || *q.F >= len(fs) {
			return // the bootstrap never sends this, so the program wrote to the link itself
		}
		answer, err := fs[*q.F].Call(ctx, q.A)
		if putFrame(l, reply(answer, err)) != nil {
			return
		}
	}
}

// reply encodes the answer or the error of a Function for the program.
func reply(answer json.RawMessage, err error) []byte {
	if err == nil {
		if answer == nil {
			answer = json.RawMessage("null")
		}
		switch {
		case !json.Valid(answer):
			err = errors.New("the tool did not answer in JSON")
		case len(answer) >= frame.Max:
			err = fmt.Errorf("the tool's answer has %d bytes, more than %d", len(answer), frame.Max-1)
		default:
			return append([]byte("v"), answer...)
		}
	}
	var call *sandbox.CallError
	if !errors.As(err, &call) {
		call = &sandbox.CallError{Code: "failed", Message: err.Error()}
	}
	b, e := json.Marshal(call)
	if e != nil {
		b, _ = json.Marshal(&sandbox.CallError{Code: call.Code, Message: call.Message})
	}
	return append([]byte("e"), b...)
}
