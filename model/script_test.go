// Mutants that a test here kills; each was tried:
//   - a counter in the driver picks the reply: TestScriptIsAFunctionOfTheIndex
//   - the maximum is ignored, or the call that does not fit is kept: TestScriptKeepsToTheMaximum
//   - Count differs from the reported input: TestScriptReservationIsExact
//   - unknown keys pass: TestScriptRefuses
//   - latency ignores ctx: TestScriptLatency
//   - arguments go through a Go map (order, numbers): TestScriptArguments
package model_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/modeltest"
	"github.com/kern-run/kern/model"
)

func script(t testing.TB, text string) *model.Script {
	t.Helper()
	s, err := model.ParseScript("s.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScriptFrozenFormat(t *testing.T) {
	data, err := os.ReadFile("testdata/frozen.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.ParseScript("frozen.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	want := model.Facts{
		Name: "script:frozen.yaml", Provider: "script", Price: model.Price{Input: 3_000_000_000, Output: 15_000_000_000}, Priced: true,
		Window: 128000, MaxOutput: 30, MinOutput: 1,
	}
	if got := m.Facts(); got != want {
		t.Errorf("facts %+v, want %+v", got, want)
	}
	if o := modeltest.Run(t, t.Context(), m, model.Request{}); o.Err == nil || o.Err.Kind != model.RateLimit || *o.Err.Usage != (model.Usage{Input: 120, Output: 30}) {
		t.Errorf("reply 0 is %s", o)
	}
	if o := modeltest.Run(t, t.Context(), m, model.Request{Index: 1}); o.Text != "done" || *o.Done != (model.Done{Stop: model.StopEnd, Usage: model.Usage{Input: 3, Output: 1}, Reported: true}) {
		t.Errorf("reply 1 is %s", o)
	}
	if o := modeltest.Run(t, t.Context(), m, model.Request{Index: 2}); len(o.Events) != 1 || *o.Done != (model.Done{Stop: model.StopEnd, Usage: model.Usage{Input: 3}, Reported: true}) {
		t.Errorf("past the end comes %s, want an empty reply", o)
	}
	// Without its error the first reply is this one.
	s := script(t, strings.Replace(string(data), "    error: rate_limit ", "#", 1))
	o := modeltest.Run(t, t.Context(), s, model.Request{Index: 0})
	wantCalls := []model.ToolCall{{ID: "call_0_0", Name: "echo", Args: `{"text":"hi"}`}}
	if o.Text != "I will write it." || !reflect.DeepEqual(o.Calls, wantCalls) || *o.Done != (model.Done{Stop: model.StopTools, Usage: model.Usage{Input: 120, Output: 30}, Reported: true}) {
		t.Errorf("reply 0 is %s", o)
	}
}

func TestScriptArguments(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                               `{}`,
		`{z: 1, a: 2.50, m: -3}`:           `{"z":1,"a":2.50,"m":-3}`,
		`{a: [x, null, true, {b: "<&>"}]}`: `{"a":["x",null,true,{"b":"<&>"}]}`,
		`{big: 123456789012345678901234567890, hex: 0x10, exp: 1e3}`: `{"big":123456789012345678901234567890,"hex":16,"exp":1e3}`,
		`{1: one, true: yes}`:   `{"1":"one","true":"yes"}`,
		`{day: 2025-08-07}`:     `{"day":"2025-08-07"}`,
		`{a: &x {b: 1}, c: *x}`: `{"a":{"b":1},"c":{"b":1}}`,
		`{t: "a\tb\u00e9\n"}`:   `{"t":"a\tbé\n"}`,
		`'{"bad": '`:            `{"bad": `,
		`""`:                    ``,
		`not json at all`:       `not json at all`,
	} {
		s, err := model.ParseScript("s.yaml", []byte("replies: [{calls: [{tool: t, args: "+in+"}]}]"))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := modeltest.Run(t, t.Context(), s, model.Request{}).Calls[0].Args; got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	s := script(t, "replies:\n  - calls:\n      - tool: t\n      - tool: u\n        args: |\n          {\"a\":\n           1}\n")
	if c := modeltest.Run(t, t.Context(), s, model.Request{Index: 0}).Calls; c[0].Args != "{}" || c[1].Args != "{\"a\":\n 1}\n" || c[1].ID != "call_0_1" {
		t.Errorf("got %+v", c)
	}
}

func TestScriptRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "s.yaml:1:1: the file is empty",
		"# nothing":                          "s.yaml:1:1: the file is empty",
		"[]":                                 "s.yaml:1:1: a script is a list, expected a mapping with price, window, latency, repeat, replies",
		"window: 5":                          "s.yaml:1:7: the key replies is missing",
		"replies: []\nmodel: x":              `s.yaml:2:1: unknown key "model" in a script, expected price, window, latency, repeat, replies`,
		"replies:\n  - txt: a":               `s.yaml:2:5: unknown key "txt" in a reply, expected text, calls, usage, error`,
		"replies:\n  - text: a\n    text: b": `s.yaml:3:5: not YAML: mapping key "text" already defined`,
		"replies:\n  - text: 5":              `s.yaml:2:11: text is "5", expected text`,
		"replies:\n  - text: [a]":            `s.yaml:2:11: text is a list, expected text`,
		"replies:\n  - just text":            `s.yaml:2:5: a reply is "just text", expected a mapping`,
		"replies: text":                      `s.yaml:1:10: replies is "text", expected a list`,
		"replies:\n  - calls: {tool: x}":     `s.yaml:2:12: calls is a mapping, expected a list`,
		"replies:\n  - calls: [{args: {}}]":  `expected tool: NAME`,
		"replies:\n  - calls: [{tool: x, arg: {}}]":            `s.yaml:2:23: unknown key "arg" in a call, expected tool, args`,
		"replies:\n  - calls: [{tool: x, args: 5}]":            `s.yaml:2:29: args is "5", expected a mapping, or a string`,
		"replies:\n  - calls: [{tool: x, args: []}]":           `args is a list, expected a mapping, or a string`,
		"replies:\n  - calls: [{tool: x, args: {a: .nan}}]":    `cannot be written as JSON`,
		"replies:\n  - calls: [{tool: x, args: {<<: {a: 1}}}]": `the merge key << is not supported`,
		"replies:\n  - text: !!str 5":                          `the tag !!str is not supported`,
		"replies:\n  - text: *a":                               `the alias *a has no anchor before it`,
		"replies: &r\n  - *r":                                  `is a list, expected a mapping`,
		"replies:\n  - error: boom":                            `s.yaml:2:12: error is "boom", expected one of [rate_limit overloaded auth bad_request context network]`,
		"replies:\n  - error: malformed":                       `expected one of`,
		"replies:\n  - usage: {input: -1}":                     `s.yaml:2:20: input is "-1", expected a whole number`,
		"replies:\n  - usage: {input: 1.5}":                    `expected a whole number`,
		"replies:\n  - usage: {input: 99999999999999999999}":   `expected a whole number`,
		"replies:\n  - usage: {cache: 1}":                      `unknown key "cache" in usage, expected input, output`,
		"price: {input: -1}\nreplies: []":                      `s.yaml:1:16: input is "-1", expected dollars`,
		"price: {input: 0.0000000001}\nreplies: []":            `expected dollars such as 3.00, with at most 9 decimals`,
		"price: {input: '3'}\nreplies: []":                     `expected dollars`,
		"price: {input: 1e3}\nreplies: []":                     `expected dollars`,
		"price: {input: 1000001}\nreplies: []":                 `up to 1000000`,
		"price: 3\nreplies: []":                                `s.yaml:1:8: price is "3", expected a mapping with input, output`,
		"window: many\nreplies: []":                            `s.yaml:1:9: window is "many", expected a whole number`,
		"latency: 5\nreplies: []":                              `s.yaml:1:10: latency is "5", expected a duration such as 250ms`,
		"latency: -5s\nreplies: []":                            `expected a duration`,
		"repeat: 1\nreplies: []":                               `s.yaml:1:9: repeat is "1", expected true or false`,
		"replies: []\n---\nreplies: []":                        `s.yaml:3:8: a second document, expected one`,
		"replies: [":                                           `s.yaml:1:10: not YAML`,
		"replies:\n - text: \"a":                               `not YAML`,
		"replies:\n - text: a\xff":                             `s.yaml:2:1: the line is not UTF-8`,
		strings.Repeat("[", 100_000):                           `nested too deeply`,
		strings.Repeat("- ", 100_000):                          `nested too deeply`,
		strings.Repeat("{a: ", 2_000):                          `nested too deeply`,
	} {
		s, err := model.ParseScript("s.yaml", []byte(in))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "s.yaml:") {
			t.Errorf("%s:\n got %v, %v\nwant %s", jsontext.Clip(in), s, err, want)
		}
	}
}

// Aliases of aliases grow without end; the growth is stopped.
func TestScriptAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("replies:\n - calls:\n   - tool: t\n     args:\n       a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "       a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	if _, err := model.ParseScript("s.yaml", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "grows beyond") {
		t.Errorf("got %v", err)
	}
}

func TestScriptIsAFunctionOfTheIndex(t *testing.T) {
	text := "replies: [{text: a}, {text: b, calls: [{tool: t}]}, {text: c}]"
	s := script(t, text)
	for _, i := range []int{2, 0, 1, 1, 0, 2} {
		if o := modeltest.Run(t, t.Context(), s, model.Request{Index: i}); o.Text != string("abc"[i]) {
			t.Errorf("reply %d is %q", i, o.Text)
		}
		again := modeltest.Run(t, t.Context(), script(t, text), model.Request{Index: i})
		if !reflect.DeepEqual(again, modeltest.Run(t, t.Context(), s, model.Request{Index: i})) {
			t.Errorf("reply %d differs after parsing again", i)
		}
	}
	if o := modeltest.Run(t, t.Context(), s, model.Request{Index: 3}); o.Text != "" || o.Calls != nil {
		t.Errorf("past the end comes %s", o)
	}
	s = script(t, text+"\nrepeat: true")
	if o := modeltest.Run(t, t.Context(), s, model.Request{Index: 7}); o.Text != "b" || o.Calls[0].ID != "call_7_0" {
		t.Errorf("reply 7 of 3 is %s", o)
	}
	if o := modeltest.Run(t, t.Context(), script(t, "repeat: true\nreplies: []"), model.Request{Index: 7}); len(o.Events) != 1 {
		t.Errorf("no replies, repeated, are %s", o)
	}
}

func TestScriptKeepsToTheMaximum(t *testing.T) {
	const text = "one two three four five six" // six tokens
	for _, c := range []struct {
		reply string
		max   int
		text  string
		calls int
		stop  model.Stop
		out   int64
	}{
		{`text: "` + text + `"`, 0, text, 0, model.StopEnd, 6},
		{`text: "` + text + `"`, 6, text, 0, model.StopEnd, 6},
		{`text: "` + text + `"`, 5, "one two three four five", 0, model.StopLength, 5},
		{`text: "` + text + `"`, 1, "one", 0, model.StopLength, 1},
		{`text: "` + text + `", calls: [{tool: a}, {tool: b}]`, 10, text, 2, model.StopTools, 10},
		{`text: "` + text + `", calls: [{tool: a}, {tool: b}]`, 9, text, 1, model.StopLength, 9},
		{`text: "` + text + `", calls: [{tool: a}, {tool: b}]`, 7, text, 0, model.StopLength, 7},
		{`text: "` + text + `", calls: [{tool: a}, {tool: b}]`, 5, "one two three four five", 0, model.StopLength, 5},
		{`calls: [{tool: a}], usage: {output: 100}`, 99, "", 0, model.StopLength, 99},
		{`calls: [{tool: a}], usage: {output: 100}`, 100, "", 1, model.StopTools, 100},
		{`text: "` + text + `", usage: {output: 600}`, 300, "one two three", 0, model.StopLength, 300},
		{`text: "` + text + `", usage: {output: 2}`, 2, text, 0, model.StopEnd, 2},
		{`usage: {output: 50}`, 20, "", 0, model.StopLength, 20},
		{`text: "` + text + `", usage: {output: 1099511627776}`, 1099511627775, "one two three four five", 0, model.StopLength, 1099511627775},
	} {
		o := modeltest.Run(t, t.Context(), script(t, "replies: [{"+c.reply+"}]"), model.Request{MaxOutput: c.max})
		if o.Text != c.text || len(o.Calls) != c.calls || o.Done.Stop != c.stop || o.Done.Usage.Output != c.out {
			t.Errorf("%s with at most %d: %s", c.reply, c.max, o)
		}
	}
}

// For any reply and maximum: no more output than asked for or than Facts says,
// the text a beginning of the whole, and the input exactly what was reserved.
func TestScriptReservationIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &model.Script{Name: "s", Replies: []model.Reply{{Text: rapid.String().Draw(t, "text")}}}
		r := &s.Replies[0]
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			r.Calls = append(r.Calls, model.ScriptCall{rapid.StringN(1, 9, -1).Draw(t, "tool"), rapid.String().Draw(t, "args")})
		}
		tokens := func(name string) *int {
			return rapid.Ptr(rapid.IntRange(0, 1000), true).Draw(t, name)
		}
		r.Input, r.Output = tokens("input"), tokens("output")
		q := model.Request{Messages: []model.Message{{Role: model.User, Text: rapid.String().Draw(t, "asked")}}, MaxOutput: rapid.IntRange(0, 40).Draw(t, "max")}
		var out modeltest.Outcome
		for e, err := range s.Stream(context.Background(), q) {
			if err != nil {
				t.Fatal(err)
			}
			out.Text += e.Text
			if e.Call != nil {
				out.Calls = append(out.Calls, *e.Call)
			}
			if e.Done != nil {
				out.Done = e.Done
			}
		}
		u := out.Done.Usage
		if u.Input != int64(s.Count(q)) {
			t.Fatalf("reported %d of input, reserved %d", u.Input, s.Count(q))
		}
		if u.Output > int64(s.Facts().MaxOutput) || q.MaxOutput > 0 && u.Output > int64(q.MaxOutput) {
			t.Fatalf("output %d, maximum %d, own maximum %d", u.Output, q.MaxOutput, s.Facts().MaxOutput)
		}
		if !strings.HasPrefix(r.Text, out.Text) && !strings.HasPrefix(strings.ToValidUTF8(r.Text, "\ufffd"), out.Text) {
			t.Fatalf("text %q is no beginning of %q", out.Text, r.Text)
		}
		whole := out.Text == r.Text && len(out.Calls) == len(r.Calls)
		if out.Done.Stop != model.StopLength && !whole {
			t.Fatalf("stop %s, but something is missing", out.Done.Stop)
		}
		if out.Done.Stop == model.StopLength && whole && r.Counted() > 0 {
			t.Fatal("cut, but nothing is missing")
		}
	})
}

func TestScriptLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, "latency: 2s\nreplies: [{text: a}, {error: overloaded}]")
		for i := range 2 {
			began := time.Now()
			o := modeltest.Run(t, t.Context(), s, model.Request{Index: i})
			if d := time.Since(began); d != 2*time.Second {
				t.Errorf("reply %d came after %v", i, d)
			}
			if i == 1 && (o.Err == nil || o.Err.Kind != model.Overloaded || *o.Err.Usage != (model.Usage{})) {
				t.Errorf("got %s", o)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		o := modeltest.Run(t, ctx, s, model.Request{})
		if d := time.Since(began); d != time.Second || !errors.Is(o.Err, context.DeadlineExceeded) || o.Err.Retryable() {
			t.Errorf("got %v after %v", o.Err, d)
		}
	})
}

func TestScriptStreams(t *testing.T) {
	long := strings.Repeat("Grüße 世界 😀 ", 400)
	s := script(t, "replies: [{text: \""+long+"\"}]")
	o := modeltest.Run(t, t.Context(), s, model.Request{})
	if o.Text != long || len(o.Events) < 10 {
		t.Errorf("%d bytes in %d events", len(o.Text), len(o.Events))
	}
	for _, e := range o.Events {
		if strings.ContainsRune(e.Text, '\ufffd') {
			t.Fatalf("a character is cut: %q", e.Text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last *model.Error
	n := 0
	for _, err := range s.Stream(ctx, model.Request{}) {
		if n++; n == 3 {
			cancel()
		}
		errors.As(err, &last)
	}
	if n != 4 || last == nil || last.Usage.Output == 0 || last.Usage.Output >= o.Done.Usage.Output {
		t.Errorf("stopped after %d events with %+v", n, last)
	}
	for range s.Stream(t.Context(), model.Request{}) {
		break
	}
}

func TestScriptErrors(t *testing.T) {
	for _, kind := range model.ScriptErrors {
		s := script(t, "replies: [{error: "+string(kind)+"}, {error: "+string(kind)+", usage: {output: 50}}]")
		if o := modeltest.Run(t, t.Context(), s, model.Request{}); o.Err == nil || o.Err.Kind != kind || *o.Err.Usage != (model.Usage{}) {
			t.Errorf("%s: got %s", kind, o)
		}
		if o := modeltest.Run(t, t.Context(), s, model.Request{Index: 1, MaxOutput: 20}); *o.Err.Usage != (model.Usage{Output: 20}) {
			t.Errorf("%s: billed %+v", kind, o.Err.Usage)
		}
	}
}
