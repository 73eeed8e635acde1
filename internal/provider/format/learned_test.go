package format

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestLearned bounds requests of which a part went through before.
//
// Mutants that die here: an element behind the beginning that is not counted, a
// document behind it that is taken for known, one that is known for every id.
func TestLearned(t *testing.T) {
	const doc = `{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"AAAA"}}]}`
	long := `{"role":"user","content":"` + strings.Repeat("some words and more of them ", 200) + `"}`
	kept := func(id string) (int64, bool) { return 500, id == "msg_1" || id == "resp_1" }
	for name, c := range map[string]struct {
		face     Format
		body     string
		learned  Learned
		known    bool
		from, to int64
	}{
		"nothing known":           {Messages, `{"messages":[` + long + `,{"role":"user","content":"x"}]}`, Learned{}, true, 1200, 4000},
		"the beginning":           {Messages, `{"messages":[` + long + `,{"role":"user","content":"x"}]}`, Learned{Sent: 1, Tokens: 1000}, true, 1009, 1030},
		"all of it":               {Messages, `{"messages":[` + long + `]}`, Learned{Sent: 1, Tokens: 1000}, true, 1000, 1010},
		"many behind":             {Messages, `{"messages":[` + long + strings.Repeat(`,{"role":"user","content":"x"}`, 50) + `]}`, Learned{Sent: 1, Tokens: 1000}, true, 1000 + 50*12, 1000 + 50*16},
		"a long end":              {Messages, `{"messages":[{"role":"user","content":"x"},` + long + `]}`, Learned{Sent: 1, Tokens: 10}, true, 1200, 4000},
		"more than the bound":     {Messages, `{"messages":[` + long + `]}`, Learned{Sent: 1, Tokens: 100_000}, true, 1200, 4000},
		"a document before":       {Messages, `{"messages":[` + doc + `,{"role":"user","content":"x"}]}`, Learned{Sent: 1, Tokens: 1000}, true, 1009, 1030},
		"a document behind":       {Messages, `{"messages":[{"role":"user","content":"x"},` + doc + `]}`, Learned{Sent: 1, Tokens: 1000}, false, 0, 0},
		"in a list of items":      {Responses, `{"input":[` + long + `,{"role":"user","content":"x"}]}`, Learned{Sent: 1, Tokens: 1000}, true, 1009, 1030},
		"an item that is known":   {Responses, `{"input":[{"type":"item_reference","id":"msg_1"}]}`, Learned{Kept: kept}, true, 500, 700},
		"a thought that is known": {Responses, `{"input":[{"type":"reasoning","id":"msg_1","summary":[]}]}`, Learned{Kept: kept}, true, 500, 700},
		"one that is not":         {Responses, `{"input":[{"type":"item_reference","id":"msg_2"}]}`, Learned{Kept: kept}, false, 0, 0},
		"one without a name":      {Responses, `{"input":[{"type":"item_reference"}]}`, Learned{Kept: kept}, false, 0, 0},
		"an answer that is known": {Responses, `{"previous_response_id":"resp_1","input":"x"}`, Learned{Kept: kept}, true, 500, 700},
		"one that is not known":   {Responses, `{"previous_response_id":"resp_2","input":"x"}`, Learned{Kept: kept}, false, 0, 0},
		"a conversation":          {Responses, `{"conversation":"resp_1","input":"x"}`, Learned{Kept: kept}, false, 0, 0},
		"a stored prompt":         {Responses, `{"prompt":{"id":"resp_1"},"input":"x"}`, Learned{Kept: kept}, false, 0, 0},
	} {
		r, err := Parse(c.face, []byte(`{"model":"m",`+c.body[1:]))
		if err != nil {
			t.Fatal(name, err)
		}
		r.Learned = c.learned
		b := r.Bound()
		if b.Known != c.known || b.Known != (b.Why == "") || c.known && (b.Input < c.from || b.Input > c.to) {
			t.Errorf("%s: %+v, want known %v and %d to %d", name, b, c.known, c.from, c.to)
		}
	}
}

// TestSteady says which requests the provider may leave something out of.
func TestSteady(t *testing.T) {
	for more, want := range map[string]bool{
		``: true, `,"truncation":"disabled"`: true, `,"truncation":null`: true,
		`,"conversation":"conv_1"`: false, `,"prompt":{"id":"p"}`: false, `,"truncation":"auto"`: false, `,"context_management":{"edits":[]}`: false, `,"transforms":["middle-out"]`: false,
	} {
		r, err := Parse(Responses, []byte(`{"model":"m","input":"x"`+more+`}`))
		if err != nil || r.Bound().Steady != want {
			t.Errorf("%s: %v, want %v", more, err, want)
		}
	}
	for edits, want := range map[string]bool{
		`{"type":"clear_thinking_20251015","keep":"all"}`: true, `{"type":"clear_tool_uses_20250919"}`: false,
		`{"type":"clear_thinking_20251015"},{"type":"clear_tool_uses_20250919"}`: false, `{"type":"clear_thinking_20251015"},7`: false,
	} {
		r, err := Parse(Messages, []byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"context_management":{"edits":[`+edits+`]}}`))
		if err != nil || r.Bound().Steady != want {
			t.Errorf("%s: %v, want %v", edits, err, want)
		}
	}
}

// TestUnmarked takes away the marks of blocks and nothing else.
func TestUnmarked(t *testing.T) {
	for marked, plain := range map[string]string{
		`{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}`:                         `{"role":"user","content":[{"type":"text","text":"a"}]}`,
		`{"role": "user", "content": [{"type": "text", "cache_control": {"type": "ephemeral"}, "text": "a"}, {"type": "b"}]}`: `{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "b"}]}`,
		`{"content":[{"type":"tool_result","content":[{"type":"text","text":"a","cache_control":{}}],"cache_control":{}}]}`:   `{"content":[{"type":"tool_result","content":[{"type":"text","text":"a"}]}]}`,
		`{"content":[{"type":"tool_use","input":{"a":1,"cache_control":{}}}]}`:                                                ``,
		`{"content":[{"type":"text","text":"\"cache_control\":{}"}]}`:                                                         ``,
		`{"content":[{"type":"text","cache_control":"` + strings.Repeat("long ", 20) + `"}]}`:                                 ``,
	} {
		if plain == "" {
			plain = marked
		}
		if got := string(Unmarked(json.RawMessage(marked))); got != plain {
			t.Errorf("%s\ngave %s\nwant %s", marked, got, plain)
		}
	}
}

// TestKept says what a provider keeps of an answer, streamed or whole.
//
// Mutants that die here: what a provider's own tool found taken for known, an
// answer without what was said before it, a thought that is not shown for free.
func TestKept(t *testing.T) {
	const items = `[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a few words"}]},` +
		`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"},{"type":"web_search_call","id":"ws_1"}]`
	whole := `{"id":"resp_1","object":"response","status":"completed","output":` + items + `,"usage":{"input_tokens":1000,"output_tokens":300,"output_tokens_details":{"reasoning_tokens":250}}}`
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(items), &list); err != nil {
		t.Fatal(err)
	}
	streamed := ""
	for i, v := range list {
		streamed += fmt.Sprintf("data: {\"type\":\"response.output_item.done\",\"output_index\":%d,\"item\":%s}\n\n", i, v)
	}
	for name, c := range map[string]struct {
		body   string
		stream bool
	}{
		"whole":            {whole, false},
		"streamed":         {streamed + `data: {"type":"response.completed","response":` + whole + "}\n\n", true},
		"ends without":     {streamed + `data: {"type":"response.completed","response":` + strings.Replace(whole, items, "[]", 1) + "}\n\n", true},
		"only at the end":  {`data: {"type":"response.completed","response":` + whole + "}\n\n", true},
		"cut off":          {streamed, true},
		"without its bill": {strings.Replace(whole, `"usage"`, `"bill"`, 1), false},
	} {
		r, err := Parse(Responses, []byte(`{"model":"m","input":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		m := Answered(r).Meter(c.stream)
		if _, err := m.Write([]byte(c.body)); err != nil {
			t.Fatal(name, err)
		}
		_, _ = m.End()
		got := make(map[string]int64)
		for _, k := range m.Seen().Kept {
			got[k.ID] = k.Tokens
		}
		if name == "cut off" || name == "without its bill" {
			if len(got) != 0 {
				t.Errorf("%s: %v", name, got)
			}
			continue
		}
		if len(got) != 4 || got["rs_1"] != 300 || got["msg_1"] < 3 || got["msg_1"] > 60 || got["fc_1"] < 3 || got["resp_1"] < 1300 || got["resp_1"] > 1500 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
