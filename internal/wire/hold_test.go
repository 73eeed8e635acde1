package wire

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
		face Face
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
