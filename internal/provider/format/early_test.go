package format

import (
	"fmt"
	"strings"
	"testing"
)

// TestEarlyUsage has a count of tokens that comes before what it counts: of the
// input alone, or of a part of the output. It bounds nothing that is said
// behind it, and is not the last word.
//
// Mutants that die here: a count that holds for what came after it, one of
// nothing for something, one of a part for the whole.
func TestEarlyUsage(t *testing.T) {
	const start = `{"type":"message_start","message":{"usage":{"input_tokens":5}}}`
	usage := func(n int) string {
		return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":%d}}`, n)
	}
	said := strings.Repeat("word ", 2000)
	text := `{"choices":[{"index":0,"delta":{"content":"` + said + `"}}]}`
	each := func(n int) string {
		return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"%s"}}],"usage":{"prompt_tokens":5,"completion_tokens":%d}}`, said, n)
	}
	const end = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	for name, c := range map[string]struct {
		face     Format
		events   []string
		reported bool
		over     bool // the 100 tokens that were granted
	}{
		"of the input":         {Chat, []string{usage(0), text}, false, true},
		"of the input again":   {Chat, []string{usage(0), text, usage(0)}, false, true},
		"of nothing, and last": {Chat, []string{text, end, usage(0)}, false, true},
		"of a part":            {Chat, []string{usage(3), text, end}, false, true},
		"of each piece":        {Chat, []string{each(50), each(90)}, false, false},
		"of each piece, over":  {Chat, []string{each(50), each(101)}, false, true},
		"before the end":       {Chat, []string{text, usage(90), end}, true, false},
		"behind it":            {Chat, []string{usage(0), text, end, usage(90)}, true, false},
		"in Messages": {Messages, []string{start, `{"type":"message_delta","delta":{},"usage":{"output_tokens":1}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + said + `"}}`}, false, true},
	} {
		m := read(t, c.face, c.events...)
		if s := m.Seen(); s.Reported != c.reported || m.Over(100) != c.over || c.over && s.Output < 101 {
			t.Errorf("%s: reported %v, over %v, %d tokens", name, s.Reported, m.Over(100), s.Output)
		}
	}
}

// TestOneOfTwo: a stream that breaks off when one of two choices has come to
// its end is not whole.
//
// Mutants that die here: the end of one choice for that of the answer.
func TestOneOfTwo(t *testing.T) {
	const one = `{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`
	end := func(choice int) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]}`, choice)
	}
	q := parse(t, Chat, `{"model":"m","stream":true,"n":2,"messages":[]}`)
	if o := feed(t, q.Meter(true), sse(one, end(0))...); o.err == nil || o.seen.Done {
		t.Errorf("with one end it is whole: %+v", o.seen)
	}
	if o := feed(t, q.Meter(true), sse(one, end(0), end(1))...); o.err != nil || !o.seen.Done {
		t.Errorf("with both ends it is not: %v, %+v", o.err, o.seen)
	}
	// There are servers that give one answer whatever is asked.
	whole := `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}`
	if o := feed(t, q.Meter(false), whole); o.err != nil || !o.seen.Done {
		t.Errorf("the only one is not whole: %v, %+v", o.err, o.seen)
	}
}

// TestLargeNumbers: no count of a provider's is so large that the sum of some is
// less than one.
//
// Mutants that die here: a number as it comes.
func TestLargeNumbers(t *testing.T) {
	const most = "9223372036854775807"
	for face, answer := range map[Format]string{
		Chat:     `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":N,"completion_tokens":N,"total_tokens":N}}`,
		Messages: `{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":N,"cache_read_input_tokens":N,"cache_creation_input_tokens":N,"output_tokens":N}}`,
		Responses: `{"object":"response","id":"r","status":"completed","output":[{"type":"reasoning","id":"x"},{"type":"reasoning","id":"y"}],
			"usage":{"input_tokens":N,"output_tokens":N}}`,
	} {
		q := parse(t, face, `{"model":"m","max_tokens":9,"input":[],"messages":[]}`)
		s := feed(t, q.Meter(false), strings.ReplaceAll(answer, "N", most)).seen
		sum := s.Usage.Input
		for _, n := range []int64{s.Usage.CacheRead, s.Usage.CacheWrite, s.Usage.Output} {
			if sum += n; n < 0 || sum < n {
				t.Errorf("%s: %+v adds up to %d", face, s.Usage, sum)
			}
		}
		for _, k := range s.Kept {
			if k.Tokens < 1 {
				t.Errorf("%s: what is kept takes %d", face, k.Tokens)
			}
		}
	}
}

// TestCrowds has far more of something in one answer than anybody asks for.
// What is remembered of it does not grow with it, for each new one is looked
// for among those before.
//
// Mutants that die here: calls, ends or items without number.
func TestCrowds(t *testing.T) {
	many := func(format string) string {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, format+",", i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	for name, c := range map[string]struct {
		face   Format
		answer string
		broken bool
	}{
		"calls":          {Chat, `{"choices":[{"index":0,"message":{"tool_calls":[` + many(`{"index":%d,"id":"a"}`) + `]},"finish_reason":"stop"}]}`, true},
		"choices":        {Chat, `{"choices":[` + many(`{"index":%d,"finish_reason":"stop"}`) + `]}`, true},
		"blocks":         {Messages, `{"type":"message","content":[` + many(`{"type":"tool_use","id":"%d"}`) + `]}`, true},
		"calls as items": {Responses, `{"object":"response","id":"r","status":"completed","output":[` + many(`{"type":"function_call","call_id":"%d"}`) + `]}`, true},
		"items":          {Responses, `{"object":"response","id":"r","status":"completed","output":[` + many(`{"type":"reasoning","id":"%d"}`) + `]}`, false},
	} {
		m := parse(t, c.face, `{"model":"m","max_tokens":9,"input":[],"messages":[]}`).Meter(false)
		_, err := m.Write([]byte(c.answer))
		if err == nil {
			_, err = m.End()
		}
		if a := &m.answer; (err != nil) != c.broken || len(a.list) > maxCalls+1 || len(a.ends) > 1025 || len(a.kept) > maxCalls {
			t.Errorf("%s: %d calls, %d ends and %d items are remembered: %v", name, len(a.list), len(a.ends), len(a.kept), err)
		}
	}
	m := NewMeter(Chat, true)
	for i := range 20_000 {
		if _, err := m.Write(fmt.Appendf(nil, "data: {\"choices\":[{\"index\":%d,\"finish_reason\":\"stop\"}]}\n\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.answer.ends); n > 1025 {
		t.Errorf("%d ends of a stream are remembered", n)
	}
}

// TestLongEvent: an event that comes in many pieces is not copied with each of
// them.
//
// Mutants that die here: an event that moves to another buffer with each piece.
func TestLongEvent(t *testing.T) {
	m := NewMeter(Chat, true)
	piece := []byte("data: " + strings.Repeat("x", 4<<10))
	var moved int
	var at *byte
	for range 1000 {
		if _, err := m.Write(piece); err != nil {
			t.Fatal(err)
		}
		if at != &m.buf[0] {
			at, moved = &m.buf[0], moved+1
		}
	}
	if moved > 100 {
		t.Errorf("it moved %d times", moved)
	}
}
