package format

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/model"
)

// Each of these was broken on purpose, and a test seen to fail: the share of a
// choice (TestBytes), a call is held (TestHold), and only its beginning goes
// beside an open one (TestReleaseBesideAnOpenCall), what was cut never comes
// (TestHeldIsNeverSeen), a newline apart from its carriage return
// (TestTranscriptsSplitAnywhere), a key twice, a key in another case
// (TestParseRefuses), totals with thoughts in them, cached input
// (TestTranscripts), unknown parts, tools of the provider (TestBound), whose
// usage is dropped (TestDrop), a limit is no 429 (TestStatus), long texts apart
// (TestSplit), hosted calls (TestCallsAndResults), counting in pieces (TestOver).

func sse(events ...string) []string {
	for i, e := range events {
		events[i] = "data: " + e + "\n\n"
	}
	return events
}

func names(calls []Call) string {
	var s []string
	for _, c := range calls {
		s = append(s, fmt.Sprintf("%s(%s)", c.Name, c.Args))
	}
	return strings.Join(s, " ")
}

// Text passes at once, a call not before it was released, and then in order.
func TestHold(t *testing.T) {
	chat := func(delta string) string { return `{"choices":[{"index":0,"delta":{` + delta + `}}]}` }
	for _, c := range []struct {
		name string
		face Format
		// Each event, and behind it what is ready then.
		events []string
		ready  []string
	}{
		{"chat", Chat, sse(
			chat(`"content":"I look"`),
			chat(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`),
			chat(`"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]`),
			chat(`"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"[1]"}}]`),
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
			`[DONE]`,
		), []string{"", "held", "held", "held", "f({}) g([1])", ""}},
		{"function of old", Chat, sse(
			chat(`"function_call":{"name":"f","arguments":""}`),
			chat(`"function_call":{"arguments":"{}"}`),
			`{"choices":[{"index":0,"delta":{},"finish_reason":"function_call"}]}`,
		), []string{"held", "held", "f({})"}},
		{"messages", Messages, sse(
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"I"}}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"x\":1}"}}`,
			`{"type":"content_block_stop","index":1}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"and"}}`,
			`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"b","name":"g","input":{}}}`,
			`{"type":"content_block_stop","index":3}`,
			`{"type":"message_stop"}`,
		), []string{"", "held", "held", `f({"x":1})`, "", "held", "g({})", ""}},
		{"a search of the provider", Messages, sse(
			`{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"a","name":"web_search","input":{}}}`,
			`{"type":"content_block_stop","index":1}`,
			`{"type":"message_stop"}`,
		), []string{"", "", ""}},
		{"responses", Responses, sse(
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning"}}`,
			`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"a","name":"f","arguments":""}}`,
			`{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{}"}`,
			`{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{}"}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}}`,
			`{"type":"response.completed","response":{"status":"completed","output":[{"type":"reasoning"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"custom_tool_call","call_id":"b","name":"g","input":"ls"}]}}`,
		), []string{"", "held", "held", "f({})", "", "g(ls)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewMeter(c.face, true)
			m.Hold = true
			var out, fed string
			for i, e := range c.events {
				b, err := m.Write([]byte(e))
				if err != nil {
					t.Fatal(err)
				}
				out, fed = out+string(b), fed+e
				ready := names(m.Ready())
				if ready == "" && m.Held() > 0 {
					ready = "held"
				}
				if ready != c.ready[i] {
					t.Fatalf("after event %d: %q, want %q", i, ready, c.ready[i])
				}
				if ready != "" && strings.Contains(out, e) {
					t.Fatalf("event %d was passed on before its call was allowed", i)
				}
				if ready != "" && ready != "held" {
					out += string(m.Release())
				}
				if m.Held() == 0 && out != fed {
					t.Fatalf("after event %d: passed on %q, want %q", i, out, fed)
				}
			}
			if out != fed {
				t.Errorf("passed on %q, want %q", out, fed)
			}
		})
	}
}

// A call is released while another one is not whole: only what stands before
// that one goes.
func TestReleaseBesideAnOpenCall(t *testing.T) {
	m := NewMeter(Responses, true)
	m.Hold = true
	ev := sse(
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f"}}`,
		`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"b","name":"g"}}`,
		`{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}`,
		`{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{}"}`,
	)
	for _, e := range ev[:3] {
		if b, err := m.Write([]byte(e)); len(b) > 0 || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if names(m.Ready()) != "f({})" || string(m.Release()) != ev[0] {
		t.Fatal("not exactly the first call's beginning was released")
	}
	if b, _ := m.Write([]byte(ev[3])); len(b) > 0 || names(m.Ready()) != "g({})" || string(m.Release()) != ev[1]+ev[2]+ev[3] {
		t.Fatal("the rest was not released with the second call")
	}
}

// A refused call, and one that fails on the way, are never seen.
func TestHeldIsNeverSeen(t *testing.T) {
	start := sse(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"rm","arguments":"{\"all\":true}"}}]}}]}`)[0]
	m := NewMeter(Chat, true)
	m.Hold = true
	b, err := m.Write([]byte(start))
	if len(b) > 0 || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	if _, err := m.Write([]byte(sse(`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`)[0])); err != nil {
		t.Fatal(err)
	}
	if cut := m.Cut(abi.ToolBlocked, "rm rests", "ask later"); strings.Contains(string(cut)+string(m.Release()), "all") {
		t.Error("a refused call came out")
	}
	m = NewMeter(Chat, true)
	m.Hold = true
	fault := "data: {\"error\":{\"message\":\"boom\"}}\n\n"
	b, err = m.Write([]byte(start + fault))
	if string(b) != fault || err != nil || m.Seen().Failure == nil || len(m.Ready()) > 0 || len(m.Release()) > 0 {
		t.Errorf("%q, %v, ready %v", b, err, m.Ready())
	}
	m = NewMeter(Chat, false)
	m.Hold = true
	whole := `{"choices":[{"index":0,"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"rm","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`
	if b, err := m.Write([]byte(whole)); len(b) > 0 || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	if b, err := m.End(); len(b) > 0 || err != nil || names(m.Ready()) != "rm({})" || string(m.Release()) != whole {
		t.Errorf("%q, %v", b, err)
	}
}

// Only the chunk that has nothing but the usage that Kern asked for is dropped.
func TestDrop(t *testing.T) {
	events := sse(
		`{"choices":[],"prompt_filter_results":[]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`,
		`[DONE]`,
	)
	for _, asked := range []bool{false, true} {
		body := `{"model":"m","stream":true,"messages":[]}`
		if asked {
			body = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`
		}
		o := feed(t, parse(t, Chat, body).Meter(true), events...)
		want := strings.Join(events, "")
		if !asked {
			want = strings.Replace(want, events[3], "", 1)
		}
		if o.forward != want || o.err != nil {
			t.Errorf("asked %v: %q, %v", asked, o.forward, o.err)
		}
		if u := o.seen.Usage; u.Input != 9 || u.Output != 2 || !o.seen.Reported {
			t.Errorf("usage %+v", u)
		}
	}
}

// What a provider sends is bounded.
func TestMeterBounds(t *testing.T) {
	text := `{"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 1<<20) + `"}}]}`
	call := `{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"%d","function":{"name":"f"}}]}}]}`
	for name, f := range map[string]func(m *Meter, i int) error{
		"a line without end": func(m *Meter, i int) error { _, err := m.Write([]byte(strings.Repeat("x", 1<<20))); return err },
		"a text without end": func(m *Meter, i int) error { _, err := m.Write([]byte(sse(text)[0])); return err },
		"calls without end":  func(m *Meter, i int) error { _, err := m.Write([]byte(sse(fmt.Sprintf(call, i))[0])); return err },
		"comments while a call is held": func(m *Meter, i int) error {
			if i == 0 {
				m.Hold = true
				_, _ = m.Write([]byte(sse(fmt.Sprintf(call, i))[0]))
			}
			_, err := m.Write([]byte(":" + strings.Repeat("x", 1<<20) + "\n\n"))
			return err
		},
	} {
		m := NewMeter(Chat, true)
		var err error
		for i := 0; err == nil && i < 2000; i++ {
			err = f(m, i)
		}
		var me *model.Error
		if !errors.As(err, &me) || me.Kind != model.Malformed || m.answer.malformed == "" {
			t.Errorf("%s: %v", name, err)
		}
		if _, again := m.Write([]byte("data: x\n\n")); again == nil {
			t.Errorf("%s: it reads on", name)
		}
	}
	m := NewMeter(Messages, false)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = m.Write(make([]byte, 1<<20))
	}
	if err == nil {
		t.Error("an answer without end is kept")
	}
}

func TestOver(t *testing.T) {
	m := NewMeter(Chat, true)
	word := sse(`{"choices":[{"index":0,"delta":{"content":" word and another word"}}]}`)[0]
	n := 0
	for ; !m.Over(1000) && n < 5000; n++ {
		if _, err := m.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	if out := m.Seen().Output; out < 1000 || out > 2*1000 {
		t.Errorf("over 1000 tokens is seen at %d, after %d events", out, n)
	}
}

// TestSaid: a model has said all when every choice that was asked for has come
// to its end, of which servers may speak twice, and not when it begins to
// refuse.
//
// Mutants that die here: the first choice for all, an end that counts twice, a
// refusal that has begun.
func TestSaid(t *testing.T) {
	end := func(choice int) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]}`, choice)
	}
	for _, c := range []struct {
		body   string
		face   Format
		events []string
		at     int // the event that says it
	}{
		{`{"model":"m","stream":true,"messages":[]}`, Chat, []string{`{"choices":[{"index":0,"delta":{"refusal":"no"}}]}`, end(0), "[DONE]"}, 1},
		{`{"model":"m","stream":true,"n":2,"messages":[]}`, Chat, []string{end(1), end(1), `{"choices":[{"index":0,"delta":{"content":"a"}}]}`, end(0)}, 3},
		{`{"model":"m","stream":true,"n":2,"messages":[]}`, Chat, []string{end(1), "[DONE]"}, 1},
		{`{"model":"m","stream":true,"input":"x"}`, Responses, []string{`{"type":"response.output_text.done","text":"a"}`,
			`{"type":"response.completed","response":{"status":"completed","output":[]}}`}, 1},
		{`{"model":"m","stream":true,"max_tokens":9,"messages":[]}`, Messages, []string{`{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`}, 1},
	} {
		q, err := Parse(c.face, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		m := q.Meter(true)
		for i, e := range sse(c.events...) {
			if _, err := m.Write([]byte(e)); err != nil {
				t.Fatal(err)
			}
			if m.Said() != (i >= c.at) {
				t.Errorf("%s: after event %d of %q it says %v", c.body, i, c.events, m.Said())
			}
		}
	}
}

// A call in an event that the stream ends within is held like any other.
//
// Mutants that die here: the last bytes of a stream given out beside what is
// held of them.
func TestHoldAtTheEnd(t *testing.T) {
	for face, event := range map[Format]string{
		Chat:      `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
		Responses: `data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}}`,
	} {
		m := NewMeter(face, true)
		m.Hold = true
		before, err := m.Write([]byte(event))
		rest, end := m.End()
		if err != nil || end != nil || len(before)+len(rest) != 0 {
			t.Fatalf("%s: %q and %q were passed on, %v, %v", face, before, rest, err, end)
		}
		if got := names(m.Ready()); got != "f({})" {
			t.Errorf("%s: ready is %q", face, got)
		}
		if got := string(m.Release()); got != event {
			t.Errorf("%s: released %q", face, got)
		}
	}
}

// TestLoneReturn ends an event with a carriage return and lets the newline that
// belongs to it come late.
func TestLoneReturn(t *testing.T) {
	m := NewMeter(Chat, true)
	var out string
	for _, p := range []string{"data: {}\r\r", "", "\n", "data: [DONE]\n\n"} {
		b, err := m.Write([]byte(p))
		if err != nil {
			t.Fatal(err)
		}
		out += string(b)
	}
	if out != "data: {}\r\r\ndata: [DONE]\n\n" || !m.Done() {
		t.Errorf("passed on %q, done %v", out, m.Done())
	}
}

// TestNamelessPieces are pieces of a call without its index, as there are
// servers: what has no name goes on with the call before, a name begins another.
//
// Mutants that die here: a call for every piece, one call for all of them.
func TestNamelessPieces(t *testing.T) {
	m := NewMeter(Chat, true)
	for _, call := range []string{`{"id":"a","function":{"name":"f","arguments":"{\"x\""}}`, `{"function":{"arguments":":1}"}}`, `{"function":{"name":"g","arguments":"{}"}}`, `{"id":"c","function":{"name":"h","arguments":"{"}}`, `{"id":"c","function":{"name":"h","arguments":"}"}}`} {
		if _, err := m.Write([]byte(`data: {"choices":[{"index":0,"delta":{"tool_calls":[` + call + `]}}]}` + "\n\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Write([]byte("data: [DONE]\n\n")); err != nil {
		t.Fatal(err)
	}
	if got := names(m.Ready()); got != `f({"x":1}) g({}) h({})` {
		t.Errorf("%s", got)
	}
}

// TestHostedCalls are of tools that the provider runs itself; any other call
// waits until it is allowed.
//
// Mutants that die here: a tool of the provider's that the program is asked about.
func TestHostedCalls(t *testing.T) {
	for kind, hosted := range map[string]bool{"web_search_call": true, "file_search_call": true, "code_interpreter_call": true, "image_generation_call": true, "mcp_call": true, "tool_search_call": true,
		"function_call": false, "custom_tool_call": false, "local_shell_call": false, "computer_call": false, "new_call": false} {
		m := NewMeter(Responses, false)
		m.Hold = true
		if _, err := m.Write([]byte(`{"object":"response","status":"completed","output":[{"type":"` + kind + `","id":"i","call_id":"c","name":"f"}]}`)); err != nil {
			t.Fatal(err)
		}
		rest, err := m.End()
		if err != nil || (len(rest) > 0) != hosted || len(m.Ready()) == 0 != hosted {
			t.Errorf("%s: %d bytes were passed on, %d calls wait, %v", kind, len(rest), len(m.Ready()), err)
		}
	}
}

// TestLastWord takes the arguments of a call that are said at its end for those
// that hold, whatever came in pieces.
//
// Mutants that die here: pieces that stay before what holds, an end that says
// nothing taken for the last word.
func TestLastWord(t *testing.T) {
	m := NewMeter(Responses, true)
	for _, e := range []string{
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":""}}`,
		`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"x\":1"}`,
		`{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"x\":2}"}`,
	} {
		if _, err := m.Write([]byte("data: " + e + "\n\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Write([]byte(`data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f"}}` + "\n\n")); err != nil {
		t.Fatal(err)
	}
	if got := names(m.Ready()); got != `f({"x":2})` { // an end that says nothing takes nothing back
		t.Errorf("%s", got)
	}
}

// TestFailedAnswer has no reason why the model stopped: it did not. What it had
// begun to refuse before is none.
//
// Mutants that die here: the reason of what came before kept, an answer that
// failed taken for one that ended.
func TestFailedAnswer(t *testing.T) {
	for _, before := range []string{`{"type":"response.output_text.delta","delta":"I"}`, `{"type":"response.refusal.delta","delta":"I"}`} {
		m := NewMeter(Responses, true)
		for _, e := range sse(before, `{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"boom"},"output":[]}}`) {
			if _, err := m.Write([]byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		if s := m.Seen(); s.Stop != "" || !s.Done || s.Failure == nil || !strings.Contains(s.Failure.Message, "boom") || s.Text != "I" {
			t.Errorf("after %s: stop %q, done %v, failure %v, text %q", before, s.Stop, s.Done, s.Failure, s.Text)
		}
	}
}

// TestHalfEvent is what stands behind the last event of a stream and is none. The
// client gets it as it came where the answer has ended, behind what is held of
// it; and never before an error that is put behind it.
//
// Mutants that die here: bytes of an answer that ended well lost, half an event
// before an error, half an event before a call that stands before it.
func TestHalfEvent(t *testing.T) {
	const half = "data: {\"choices\":[{\"ind"
	end := sse(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)[0]
	call := sse(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`)[0]
	text := sse(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`)[0]
	for _, c := range []struct {
		before, at, released string // what End gives, and Release behind it
		whole                bool
	}{
		{end, half, "", true},
		{sse("[DONE]")[0], half, "", true},
		{call, "", call + half, true},
		{text, "", "", false},
	} {
		m := NewMeter(Chat, true)
		m.Hold = true
		if _, err := m.Write([]byte(c.before + half)); err != nil {
			t.Fatal(err)
		}
		rest, err := m.End()
		got := string(rest)
		if released := string(m.Release()); got != c.at || released != c.released || (err == nil) != c.whole || m.Seen().Malformed != "" {
			t.Errorf("behind %q: %q and %q, %v, %+v", c.before, got, released, err, m.Seen())
		}
	}
}

// read gives the events of a stream to a meter that holds calls.
func read(t *testing.T, f Format, events ...string) *Meter {
	t.Helper()
	m := NewMeter(f, true)
	m.Hold = true
	for _, e := range sse(events...) {
		if _, err := m.Write([]byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestThoughtsCount counts what is said aside, where no usage came: a provider
// bills it.
//
// Mutants that die here: thoughts, the code of a tool or the text of another
// choice that count nothing.
func TestThoughtsCount(t *testing.T) {
	text := strings.Repeat("word ", 400)
	for name, c := range map[string]struct {
		face  Format
		event string
	}{
		"a thought":            {Responses, `{"type":"response.reasoning_text.delta","delta":"TEXT"}`},
		"a summary":            {Responses, `{"type":"response.reasoning_summary_text.delta","delta":"TEXT"}`},
		"code":                 {Responses, `{"type":"response.code_interpreter_call_code.delta","delta":"TEXT"}`},
		"a refusal":            {Responses, `{"type":"response.refusal.delta","delta":"TEXT"}`},
		"a block":              {Messages, `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"TEXT"}}`},
		"the start of a block": {Messages, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"TEXT"}}`},
		"a whole message":      {Messages, `{"type":"message","content":[{"type":"thinking","thinking":"TEXT"}]}`},
		"another choice":       {Chat, `{"choices":[{"index":1,"delta":{"content":"TEXT"}}]}`},
		"another's thought":    {Chat, `{"choices":[{"index":0,"delta":{"reasoning":"TEXT"}}]}`},
		"a thought in Chat":    {Chat, `{"choices":[{"index":0,"delta":{"reasoning_content":"TEXT"}}]}`},
	} {
		if got := read(t, c.face, strings.Replace(c.event, "TEXT", text, 1)).Seen().Output; got < 400 || got > 900 {
			t.Errorf("%s of 400 words counts %d", name, got)
		}
	}
}

// TestEnds is how an answer ends, and that its end makes every call whole.
//
// Mutants that die here: an end that is not heard, one that forgets a refusal, a
// call that stays open behind it, a name that comes late and is lost.
func TestEnds(t *testing.T) {
	const item = `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":""}}`
	const block = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}`
	const completed = `{"type":"response.completed","response":{"status":"completed","output":[]}}`
	late := []string{`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}`, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}}]}`}
	for _, c := range []struct {
		face   Format
		events []string
		stop   model.Stop
		calls  string
	}{
		{Responses, []string{item, completed}, model.StopTools, "f({})"},
		{Responses, []string{`{"type":"response.refusal.delta","delta":"no"}`, completed}, model.StopFilter, ""},
		{Responses, []string{completed}, model.StopEnd, ""},
		{Responses, []string{`{"type":"response.cancelled","response":{"status":"cancelled","output":[]}}`}, model.StopEnd, ""},
		{Responses, []string{`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}`}, model.StopLength, ""},
		{Responses, []string{`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}}`}, model.StopFilter, ""},
		{Messages, []string{block, `{"type":"message_stop"}`}, model.StopTools, "f({})"},
		{Messages, []string{`{"type":"message_delta","delta":{"stop_reason":"refusal"}}`, `{"type":"message_stop"}`}, model.StopFilter, ""},
		{Chat, append(late, "[DONE]"), model.StopTools, "f({})"},
		{Chat, []string{`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"}, model.StopTools, ""},
	} {
		m := read(t, c.face, c.events...)
		if s := m.Seen(); s.Stop != c.stop || m.Done() != (c.stop != "") || names(m.Ready()) != c.calls {
			t.Errorf("%q: stop %q, done %v, ready %s", c.events, s.Stop, m.Done(), names(m.Ready()))
		}
	}
}

// TestMark lets a stream begin with a byte order mark.
//
// Mutants that die here: an event behind the mark that is not heard, a mark that is
// not handed on.
func TestMark(t *testing.T) {
	const first = "\ufeffdata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"
	m := NewMeter(Chat, true)
	b, err := m.Write([]byte(first))
	if err != nil || string(b) != first || m.Seen().Text != "a" {
		t.Errorf("%q, %v, %+v", b, err, m.Seen())
	}
}

// TestFailedBesideACall lets nobody see a call that was whole when the answer
// failed.
//
// Mutants that die here: a call that waits for its release after the failure.
func TestFailedBesideACall(t *testing.T) {
	for f, events := range map[Format][]string{
		Chat: {`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`, `{"error":{"message":"boom"}}`},
		Responses: {`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}}`,
			`{"type":"error","code":"server_error","message":"boom"}`},
		Messages: {`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"error","error":{"type":"api_error","message":"boom"}}`},
	} {
		m := read(t, f, events[:len(events)-1]...)
		if names(m.Ready()) != "f({})" {
			t.Errorf("%s: ready %v", f, m.Ready())
		}
		if _, err := m.Write([]byte("data: " + events[len(events)-1] + "\n\n")); err != nil {
			t.Fatal(err)
		}
		if s := m.Seen(); len(m.Ready()) > 0 || m.Held() > 0 || len(m.Release()) > 0 || s.Failure == nil || !strings.Contains(s.Failure.Message, "boom") {
			t.Errorf("%s: ready %v, held %d, %+v", f, m.Ready(), m.Held(), s)
		}
	}
}

// TestOpenBesideAnEnd keeps a call of one choice back when another has come to
// its end.
//
// Mutants that die here: the end of one choice taken for that of all.
func TestOpenBesideAnEnd(t *testing.T) {
	call := func(choice int, rest string) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,"delta":{"tool_calls":[{"index":0,"id":"c%[1]d","function":{"name":"f%[1]d","arguments":"{"}}]}%s}]}`, choice, rest)
	}
	m := read(t, Chat, call(0, ""), call(1, ""), `{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"tool_calls"}]}`)
	if got := names(m.Ready()); got != "f1({})" {
		t.Errorf("ready %s", got)
	}
}

// TestNoLastWord is of servers that say why they stopped and nothing behind it. A
// refusal that has begun, and a call of another choice that is open, are no end.
//
// Mutants that die here: a refusal that was cut taken for a whole one, an end of
// one choice for that of a call in another.
func TestNoLastWord(t *testing.T) {
	const open = `{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`
	const end = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	for _, c := range []struct {
		face   Format
		events []string
		whole  bool
	}{
		{Chat, []string{end}, true},
		{Chat, []string{open, end}, false},
		{Chat, []string{open, end, `{"choices":[{"index":1,"delta":{},"finish_reason":"tool_calls"}]}`}, true},
		{Chat, []string{`{"choices":[{"index":0,"delta":{"refusal":"I can"}}]}`}, false},
		{Responses, []string{`{"type":"response.refusal.delta","delta":"I can"}`}, false},
		{Messages, []string{`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`}, true},
		{Messages, []string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}`, `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`}, false},
	} {
		m := read(t, c.face, c.events...)
		if _, err := m.End(); (err == nil) != c.whole || m.Done() != c.whole {
			t.Errorf("%q: %v, done %v", c.events, err, m.Done())
		}
	}
}

// TestReleaseInTurn releases calls one by one: each time no more than stands
// before the next that is open.
//
// Mutants that die here: the place of what stays held lost by a release.
func TestReleaseInTurn(t *testing.T) {
	start := func(at int) string {
		return fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call","call_id":"c%[1]d","name":"f%[1]d"}}`, at)
	}
	done := func(at int) string {
		return fmt.Sprintf(`{"type":"response.function_call_arguments.done","output_index":%d,"arguments":"{}"}`, at)
	}
	m := read(t, Responses, start(0), start(1), start(2))
	var fed, out string
	for _, e := range []string{start(0), start(1), start(2)} {
		fed += sse(e)[0]
	}
	for at, open := range []string{start(1), start(2), ""} {
		e := sse(done(at))[0]
		if _, err := m.Write([]byte(e)); err != nil {
			t.Fatal(err)
		}
		fed += e
		want := fed
		if open != "" {
			want, _, _ = strings.Cut(fed, sse(open)[0])
		}
		if got := names(m.Ready()); got != fmt.Sprintf("f%d({})", at) {
			t.Errorf("ready %s", got)
		}
		if out += string(m.Release()); out != want {
			t.Errorf("after call %d: %q, want %q", at, out, want)
		}
	}
}

// TestHeard is what single events, and answers in one piece, say.
//
// Mutants that die here: an event or a field of one that is not heard, a piece that
// goes to another call than its own, a usage that is taken for the last word.
func TestHeard(t *testing.T) {
	block := func(at int) string {
		return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"c%[1]d","name":"f%[1]d","input":{}}}`, at)
	}
	piece := func(at int, s string) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}`, at, s)
	}
	custom := `{"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","call_id":"a","name":"g","input":""}}`
	for name, c := range map[string]struct {
		face   Format
		events []string
		want   string
	}{
		"pieces of two calls":     {Messages, []string{block(0), block(1), piece(0, "[0"), piece(1, "[1"), piece(0, "]"), piece(1, "]"), `{"type":"message_stop"}`}, `f0([0]) f1([1]) tools true false`},
		"no arguments":            {Messages, []string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":null}}`, `{"type":"message_stop"}`}, `f({}) tools true false`},
		"a tool of one's own":     {Responses, []string{custom, `{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"l"}`, `{"type":"response.custom_tool_call_input.done","output_index":0,"input":"ls"}`}, `g(ls)  false false`},
		"a usage that goes on":    {Messages, []string{`{"type":"message_start","message":{"usage":{"input_tokens":5}}}`, `{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{}}`}, ` length false false`},
		"the last usage":          {Messages, []string{`{"type":"message_start","message":{"usage":{"input_tokens":5}}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}`}, ` end false true`},
		"not the last usage":      {Messages, []string{`{"type":"message_start","message":{"usage":{"input_tokens":5}}}`, `{"type":"message_delta","delta":{},"usage":{"output_tokens":7}}`}, `  false false`},
		"too long":                {Chat, []string{`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`, "[DONE]"}, ` length true false`},
		"too long elsewhere":      {Chat, []string{`{"choices":[{"index":0,"delta":{},"finish_reason":"max_tokens"}]}`, "[DONE]"}, ` length true false`},
		"an object without type":  {Responses, []string{`{"object":"response","status":"completed"}`}, ` end true false`},
		"an output without type":  {Responses, []string{`{"output":[],"status":"completed"}`}, ` end true false`},
		"an error without type":   {Responses, []string{`{"error":{"message":"boom"}}`}, `  false false boom`},
		"a function of old":       {Chat, []string{`{"choices":[{"index":0,"delta":{"function_call":{"name":"f","arguments":"{\"x\""}}}]}`, `{"choices":[{"index":0,"delta":{"function_call":{"arguments":":1}"}},"finish_reason":"function_call"}]}`}, `f({"x":1}) tools false false`},
		"arguments at once":       {Responses, []string{`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"[7]"}}`, `{"type":"response.completed","response":{"status":"completed","output":[]}}`}, `f([7]) tools true false`},
		"a full window":           {Messages, []string{`{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"}}`}, ` length false false`},
		"an error of null":        {Responses, []string{`{"error":null}`}, `  false false`},
		"an error in Messages":    {Messages, []string{`{"error":{"message":"boom"}}`}, `  false false boom`},
		"a whole message":         {Messages, []string{`{"type":"message","content":[],"stop_reason":"max_tokens","usage":{"input_tokens":5,"output_tokens":7}}`}, ` length true true`},
		"one without a last word": {Messages, []string{`{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":5}}`}, ` end true false`},
	} {
		m := read(t, c.face, c.events...)
		s := m.Seen()
		got := fmt.Sprint(names(m.Ready()), " ", s.Stop, " ", s.Done, " ", s.Reported)
		if s.Failure != nil {
			got += " " + s.Failure.Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if s := read(t, Responses, `{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"b"}]}]}`).Seen(); s.Text != "ab" {
		t.Errorf("text %q", s.Text)
	}
	m := read(t, Responses, `{"type":"response.output_text.delta","sequence_number":7,"delta":"a"}`)
	if cut := string(m.Cut(abi.LimitMoney, "no money is left", "")); !strings.Contains(cut, `"sequence_number":8`) {
		t.Errorf("the end is %s", cut)
	}
}
