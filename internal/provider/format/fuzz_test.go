package format

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var faces = []Format{Chat, Responses, Embeddings, Messages}

// requests are bodies of every face, to begin from.
var requests = []string{
	`{"model":"gpt-5","messages":[{"role":"user","content":"a"}],"max_tokens":5,"n":2,"stream":true,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`,
	`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}],"instructions":"i","max_output_tokens":9}`,
	`{"model":"m","input":["a","b",[1,2]]}`,
	`{"model":"claude","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x","is_error":true},{"type":"image","source":{"data":"QUJD"}}]}],"thinking":{"type":"enabled","budget_tokens":3}}`,
}

// hold checks what must be true of every body that Parse takes.
func holds(t interface {
	Fatalf(string, ...any)
}, f Format, body []byte, most int64) {
	r, err := Parse(f, body)
	if err != nil {
		return
	}
	if b := r.Bound(); b.Input < 0 || b.Least < 0 || b.Output < 0 || !b.Known && b.Why == "" {
		t.Fatalf("bound %+v", b)
	}
	_, _ = r.Calls(), r.Results()
	rest, msgs := r.Split()
	back, err := Join(f, rest, msgs)
	if err != nil || !equal(t, back, body, nil) {
		t.Fatalf("split and joined: %v, %s", err, back)
	}
	sent := r.WithModel("other").Bytes(most)
	may := append([]string{"model", "stream_options"}, maxima[f]...)
	if !equal(t, sent, body, may) {
		t.Fatalf("%s was sent as %s", body, sent)
	}
	again, err := Parse(f, sent)
	if err != nil {
		t.Fatalf("what is sent is refused: %v: %s", err, sent)
	}
	if again.Model != "other" || again.Stream && f == Chat && !again.Usage {
		t.Fatalf("sent %s", sent)
	}
	if each := again.MaxOutput; most >= r.Choices && r.Choices > 0 && (each <= 0 || each*r.Choices > most) {
		t.Fatalf("%d choices with %d each are more than %d", r.Choices, each, most)
	}
	// A reader that folds case, and one that takes the last of two, agree.
	var go1 struct {
		Model     string `json:"model"`
		Stream    *bool  `json:"stream"`
		MaxTokens any    `json:"max_tokens"`
	}
	if err := json.Unmarshal(sent, &go1); err == nil && (go1.Model != "other" || (go1.Stream != nil && *go1.Stream) != r.Stream) {
		t.Fatalf("the standard library reads %+v in %s", go1, sent)
	}
}

// equal compares two objects without some of their members.
func equal(t interface {
	Fatalf(string, ...any)
}, a, b []byte, but []string) bool {
	var x, y map[string]any
	for _, v := range []struct {
		text []byte
		into *map[string]any
	}{{a, &x}, {b, &y}} {
		d := json.NewDecoder(bytes.NewReader(v.text))
		d.UseNumber()
		if err := d.Decode(v.into); err != nil {
			t.Fatalf("%v: %s", err, v.text)
		}
		maps.DeleteFunc(*v.into, func(k string, _ any) bool { return slices.Contains(but, k) })
	}
	return reflect.DeepEqual(x, y)
}

func FuzzRequest(f *testing.F) {
	for i, s := range requests {
		f.Add(uint8(i), []byte(s), int64(7))
	}
	f.Fuzz(func(t *testing.T, face uint8, body []byte, most int64) {
		holds(t, faces[int(face)%len(faces)], body, most)
	})
}

// Bodies put together at random hold to the same.
func TestRequests(t *testing.T) {
	members := []string{`"model":"m"`, `"messages":[{"role":"user","content":"a"}, {"role":"assistant","content":[]}]`, `"input":[ "a" ,{"type":"x"}]`, `"input":"a"`,
		`"max_tokens":50`, `"max_tokens":null`, `"max_completion_tokens": 20`, `"max_output_tokens":-1`, `"n":3`, `"stream":true`, `"stream": false`, `"stream_options":{}`,
		`"stream_options":null`, `"stream_options":{"include_usage":false,"x":[1]}`, `"tools":[{"name":"t"}]`, `"system":"s"`, `"instructions":"` + strings.Repeat("i", 300) + `"`,
		`"odd":{"max_tokens":1,"deep":[[[]]]}`, `"ünïcode":"\ud83d"`, `"big":123456789012345678901234567890`, `"metadata":{}`}
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for _, m := range rapid.Permutation(members).Draw(t, "order") {
			if rapid.Bool().Draw(t, "with") || strings.HasPrefix(m, `"model"`) {
				parts = append(parts, space.Draw(t, "space")+m+space.Draw(t, "space"))
			}
		}
		body := space.Draw(t, "space") + "{" + strings.Join(parts, ",") + "}" + space.Draw(t, "space")
		holds(t, rapid.SampledFrom(faces).Draw(t, "face"), []byte(body), rapid.Int64Range(-1, 200).Draw(t, "most"))
	})
}

// fuzzMeter feeds any bytes: pieces of any size give the same, nothing is made
// up, and with nothing released no call is seen.
func fuzzMeter(f *testing.F, face Format) {
	transcripts(f, func(_ string, other Format, stream bool, data string) {
		if other == face {
			f.Add([]byte(data), uint16(len(data)/2), stream)
		}
	})
	f.Fuzz(func(t *testing.T, data []byte, at uint16, stream bool) {
		s := string(data)
		whole := feed(t, meterOf(face, stream), s)
		i := min(int(at), len(s))
		split := feed(t, meterOf(face, stream), s[:i], s[i:])
		if whole.err != nil && strings.HasPrefix(split.forward, whole.forward) {
			split.forward = whole.forward // a call that was whole before an event that cannot be read was let go between the pieces
		}
		if !reflect.DeepEqual(split, whole) {
			t.Fatalf("split at %d: %+v, whole: %+v", i, split, whole)
		}
		if u := whole.seen.Usage; u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || whole.seen.Output < 0 {
			t.Fatalf("usage %+v", u)
		}
		for _, c := range whole.seen.Calls {
			if whole.err == nil && whole.seen.Done && !c.Whole {
				t.Fatalf("the answer is done, and a call is not: %+v", c)
			}
		}
		plain := NewMeter(face, stream)
		if o := feed(t, plain, s); !strings.HasPrefix(s, o.forward) || o.err == nil && o.forward != s {
			t.Fatalf("%q became %q", s, o.forward)
		}
		held := NewMeter(face, stream)
		held.Hold = true
		b, err := held.Write(data)
		out := string(b)
		if !strings.HasPrefix(s, out) && held.Seen().Failure == nil {
			t.Fatalf("%q became %q", s, out)
		}
		if err == nil && held.Seen().Failure == nil && len(held.Ready()) > 0 && held.Held() == 0 {
			t.Fatalf("a call is ready and nothing is held: %q", s)
		}
	})
}

func FuzzChat(f *testing.F)            { fuzzMeter(f, Chat) }
func FuzzResponses(f *testing.F)       { fuzzMeter(f, Responses) }
func FuzzMessages(f *testing.F)        { fuzzMeter(f, Messages) }
func FuzzEmbeddingAnswer(f *testing.F) { fuzzMeter(f, Embeddings) }

// FuzzSplitter holds the events of a stream to a reader that splits all lines
// at once.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("\ufeffdata: a\r\rdata\n\nevent:x\n:\ndata:\n\n"), uint16(5))
	f.Add([]byte("data: a\r\n\r\ndata: b\ndata: c\r\n\n\n\r\r\n\ndatax\n\n"), uint16(10))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
		var want, lines []string
		all := strings.Split(text, "\n")
		for _, line := range all[:len(all)-1] { // the last has no end yet
			if line == "" {
				if lines != nil {
					want = append(want, strings.Join(lines, "\n"))
				}
				lines = nil
				continue
			}
			if name, value, _ := strings.Cut(line, ":"); name == "data" {
				lines = append(lines, strings.TrimPrefix(value, " "))
			}
		}
		var got []string
		var s splitter
		var scratch, buf []byte
		i := min(int(at), len(data))
		lone := false
		for _, piece := range [][]byte{data[:i], data[i:]} {
			if lone && len(piece) > 0 {
				if lone = false; piece[0] == '\n' {
					piece = piece[1:]
				}
			}
			buf = append(buf, piece...)
			for {
				n, l := s.end(buf)
				if n == 0 {
					break
				}
				if d := eventData(buf[:n], &scratch); d != nil {
					got = append(got, string(d))
				}
				buf, lone = buf[n:], l
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
