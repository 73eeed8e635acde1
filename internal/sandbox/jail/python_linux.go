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

// enter runs the bootstrap in a namespace of its own, because references that it
// leaves would keep objects of the program alive, and finalizers would not run.
const enter = "exec(__import__('sys').argv[1], {'__name__': '_boot'})"

// interpreter is the command of a Python that waits for its program on the
// last of its links. A warm one has its Landlock rules after that.
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

// putFrame writes b behind its length.
func putFrame(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

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

// awaitPython waits until a warm interpreter has imported what it imports.
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

// sendCode gives a warm interpreter its program, and waits until it has it. Before
// that nothing of the program ran.
func (x *box) sendCode(ctx context.Context, s *sandbox.Spec) error {
	sent := make(chan error, 1)
	go func() { sent <- writeCode(x.links[0], s) }()
	if err := x.expectFrame(ctx, "taken"); err != nil {
		x.kill() // the writer ends too when its reader is gone
		return errors.Join(err, <-sent)
	}
	return <-sent
}

// writeCode writes the program to the interpreter.
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
	if err := putFrame(l, []byte(strings.Join(env, "\x00"))); err != nil {
		return err
	}
	return errors.Join(putFrame(l, []byte(s.Code)), putFrame(l, table))
}

// answerCalls answers the program's calls until its link ends. One call at a time:
// the program waits for each.
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
			return // the program took the place of the bootstrap
		}
		answer, err := fs[*q.F].Call(ctx, q.A)
		if putFrame(l, reply(answer, err)) != nil {
			return
		}
	}
}

// reply encodes the answer of a Function for the program.
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
