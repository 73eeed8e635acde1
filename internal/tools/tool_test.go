//go:build linux

package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
)

type addIn struct {
	A int  `json:"a" description:"first"`
	B *int `json:"b"`
}

type addOut struct {
	Sum int    `json:"sum"`
	Tag string `json:"tag,omitempty"`
}

func TestFunc(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	cause := &abi.Error{Code: abi.LimitWall, Message: "the time is up"}
	add := func(f func(context.Context, addIn) (addOut, error)) *Tool {
		tl, err := Func("add", "adds", f)
		if err != nil {
			t.Fatal(err)
		}
		tl.Timeout = 5 * time.Second
		return tl
	}
	ended, end := context.WithCancelCause(context.Background())
	end(cause)
	for _, c := range []struct {
		name  string
		tool  *Tool
		ctx   context.Context
		args  string
		most  int64
		value string
		code  abi.Code
		says  string
	}{
		{name: "adds", args: `{"a":1,"b":2}`, value: `{"sum":3,"tag":"<&>"}`},
		{name: "without b", args: `{"a":1}`, value: `{"sum":1,"tag":"<&>"}`},
		{name: "null b", args: `{"a":1,"b":null}`, value: `{"sum":1,"tag":"<&>"}`},
		{name: "an integer in another form", args: `{"a":1e2,"b":2.0}`, value: `{"sum":102,"tag":"<&>"}`},
		{name: "too large an integer", args: `{"a":99999999999999999999}`, code: abi.InvalidArguments, says: "cannot be read"},
		{name: "wrong type", args: `{"a":"1"}`, code: abi.InvalidArguments, says: "expected integer"},
		{name: "extra field", args: `{"a":1,"c":1}`, code: abi.InvalidArguments, says: `unexpected field "c"`},
		{name: "too much", args: `{"a":1}`, most: 5, code: abi.LimitOutputBytes},
		{name: "context that ended", ctx: ended, args: `{"a":1}`, code: abi.LimitWall, says: "the time is up"},
		{name: "error", args: `{"a":1}`, code: abi.ToolFailed, says: "tool add failed: no luck",
			tool: add(func(context.Context, addIn) (addOut, error) { return addOut{}, errors.New("no luck") })},
		{name: "error of its own kind", args: `{"a":1}`, code: abi.ModelNetwork, says: "no net",
			tool: add(func(context.Context, addIn) (addOut, error) {
				return addOut{}, fmt.Errorf("wrapped: %w", &abi.Error{Code: abi.ModelNetwork, Message: "no net"})
			})},
		{name: "panic", args: `{"a":1}`, code: abi.ToolFailed, says: "panic: oh no (at tool_test.go:",
			tool: add(func(context.Context, addIn) (addOut, error) { panic("oh no") })},
		{name: "nil pointer", args: `{"a":1}`, code: abi.ToolFailed, says: "nil pointer dereference",
			tool: add(func(_ context.Context, in addIn) (addOut, error) { return addOut{Sum: *in.B}, nil })},
		{name: "goexit", args: `{"a":1}`, code: abi.ToolFailed, says: "ended its goroutine",
			tool: add(func(context.Context, addIn) (addOut, error) { runtime.Goexit(); return addOut{}, nil })},
		{name: "deadline kept", args: `{"a":1}`, code: abi.ToolTimeout, says: "20ms",
			tool: short(add(func(ctx context.Context, _ addIn) (addOut, error) { <-ctx.Done(); return addOut{}, ctx.Err() }))},
		{name: "deadline ignored", args: `{"a":1}`, code: abi.ToolTimeout, says: "20ms",
			tool: short(add(func(context.Context, addIn) (addOut, error) { <-hold; return addOut{}, nil }))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.tool == nil {
				c.tool = add(func(_ context.Context, in addIn) (addOut, error) {
					if in.B == nil {
						in.B = new(int)
					}
					return addOut{in.A + *in.B, "<&>"}, nil
				})
			}
			if c.ctx == nil {
				c.ctx = context.Background()
			}
			out := c.tool.Run(c.ctx, Input{Args: json.RawMessage(c.args), MaxOutput: c.most})
			if c.code == "" && out.Err != nil || c.code != "" && (out.Err == nil || out.Err.Code != c.code || !strings.Contains(out.Err.Message, c.says)) {
				t.Fatalf("got %s, %+v; want %q %q", out.Value, out.Err, c.code, c.says)
			}
			if string(out.Value) != c.value {
				t.Errorf("got %s, want %s", out.Value, c.value)
			}
			if out.Err == nil && out.Bytes != int64(len(out.Value)) {
				t.Errorf("%d bytes counted", out.Bytes)
			}
		})
	}
}

func short(t *Tool) *Tool {
	t.Timeout = 20 * time.Millisecond
	return t
}

// A wrong result of an error is not marshalled; a value that cannot be is an
// error; types that cannot be read are refused when the tool is made.
func TestFuncRefuses(t *testing.T) {
	ok := func(context.Context, addIn) (any, error) { return make(chan int), nil }
	tl, err := Func("x", "", ok)
	if err != nil {
		t.Fatal(err)
	}
	if out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{"a":1}`)}); out.Err == nil || out.Err.Code != abi.ToolFailed || !strings.Contains(out.Err.Message, "cannot be written as JSON") {
		t.Errorf("a channel as a result: %+v", out.Err)
	}
	if _, err := Func("9x", "", ok); err == nil {
		t.Error("a bad name was taken")
	}
	if _, err := Func("x", "", func(context.Context, int) (int, error) { return 0, nil }); err == nil || !strings.Contains(err.Error(), "schema of objects") {
		t.Errorf("arguments that are no object: %v", err)
	}
	if _, err := Func("x", "", func(context.Context, struct{ F func() }) (int, error) { return 0, nil }); err == nil {
		t.Error("a function as an argument was taken")
	}
	if _, err := Func[addIn, int]("x", "", nil); err == nil {
		t.Error("no function was taken")
	}
	tl, err = Func("x", "", func(context.Context, map[string]any) (string, error) { return "any", nil })
	if err != nil {
		t.Fatal(err)
	}
	if out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{"whatever":[1]}`)}); string(out.Value) != `"any"` {
		t.Errorf("any arguments: %s, %+v", out.Value, out.Err)
	}
}

// cases of testdata/spec.json: what is written, and what is said about it.
func TestSpec(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Spec  json.RawMessage `json:"spec"`
		Error string          `json:"error"`
		JSON  json.RawMessage `json:"json"` // what is recorded
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		var s abi.ToolSpec
		err := s.UnmarshalJSON(c.Spec)
		if err == nil {
			s.SetDefaults()
			err = Validate(&s)
		}
		if c.Error != "" {
			if err == nil || !strings.Contains(err.Error(), c.Error) {
				t.Errorf("%s: %v, want %q", c.Spec, err, c.Error)
			}
			continue
		}
		got, merr := json.Marshal(s)
		if err != nil || merr != nil {
			t.Errorf("%s: %v, %v", c.Spec, err, merr)
			continue
		}
		a, _ := jsontext.Canonical(nil, got)
		b, err := jsontext.Canonical(nil, c.JSON)
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is recorded as %s, want %s", c.Spec, got, c.JSON)
		}
	}
	if err := Validate(&abi.ToolSpec{Name: "x"}); err == nil {
		t.Error("without Defaults: no error")
	}
}

func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"name":"echo","command":["cat"],"schema":{"type":"object"},"effect":"pure","timeout":"30s","attempts":2,"cost":"0.01","approval":true}`))
	f.Add([]byte(`{"name":"x","cost":0.000000001,"result":true,"schema":null}`))
	f.Add([]byte(`{"name":"x","timeout":"-1s","attempts":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s abi.ToolSpec
		if s.UnmarshalJSON(b) != nil {
			return
		}
		s.SetDefaults()
		if Validate(&s) != nil {
			return
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		var again abi.ToolSpec
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("%q became %s: %v", b, out, err)
		}
		if err := Validate(&again); err != nil {
			t.Fatalf("%q became %s: %v", b, out, err)
		}
		out2, err := json.Marshal(again)
		if err != nil || !bytes.Equal(out, out2) {
			t.Fatalf("%s, then %s (%v)", out, out2, err)
		}
		if again.Cost != s.Cost || again.Timeout != s.Timeout || again.Attempts != s.Attempts || !reflect.DeepEqual(again.Command, s.Command) {
			t.Fatalf("%+v became %+v", s, again)
		}
	})
}

func TestCensor(t *testing.T) {
	c := newCensor([]string{"aaaaaa", "aaaaaaaa", `with"quote`, "é-secret"})
	for in, want := range map[string]string{
		`"x"`: `"x"`, `"aaaaaa"`: `"[secret]"`, `"aaaaaaaa"`: `"[secret]"`, `{"aaaaaa":["aaaaaa",1]}`: `{"[secret]":["[secret]",1]}`,
		`"with\"quote"`: `"[secret]"`, `"\u00e9-secret"`: `"[secret]"`, `["\\","é-secret"]`: `["\\","[secret]"]`, `"a\naaaaaa\u0061"`: `"a\n[secret]a"`,
		`[1,2,{"a":"\""}]`: `[1,2,{"a":"\""}]`,
	} {
		if got := string(c.value(json.RawMessage(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{"xx aaaaa": "xx [secret]", "xx aaa": "xx [secret]", "xx aa": "xx aa", "xx with\"qu": "xx [secret]"} {
		if got := string(c.text([]byte(in), true)); got != want {
			t.Errorf("cut %q became %q, want %q", in, got, want)
		}
	}
}

func TestHeadAndTail(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("é", 300), strings.Repeat("\U0001F600", 300), strings.Repeat("\xff", 300), "\xc3", "a\xed\xa0\x80b"} {
		for name, cut := range map[string]func(string, int) string{"head": head, "tail": tail} {
			got := cut(s, 100)
			if len(s) <= 30 && got != strings.ToValidUTF8(s, "\uFFFD") || strings.ToValidUTF8(got, "") != got {
				t.Errorf("%s of %.20q: %.40q", name, s, got)
			}
			if len(got) > 3*100 {
				t.Errorf("%s of %.20q has %d bytes", name, s, len(got))
			}
		}
	}
	if got := head("0123456789", 8); got != "01234..." {
		t.Errorf("head: %q", got)
	}
	if got := tail("0123456789", 8); got != "...56789" {
		t.Errorf("tail: %q", got)
	}
}
