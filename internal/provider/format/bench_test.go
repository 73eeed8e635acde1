package format

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/provider/catalog"
)

// go test -run '^$' -bench . ./internal/provider/format

// BenchmarkMeter is what one event of a stream costs, as it comes: one event in
// a piece, looked at for calls after each.
func BenchmarkMeter(b *testing.B) {
	for face, event := range map[Format]string{
		Chat:      `data: {"id":"chatcmpl-BZ1","object":"chat.completion.chunk","created":1730000000,"model":"gpt-5-2025-08-07","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n",
		Responses: "event: response.output_text.delta\ndata: " + `{"type":"response.output_text.delta","sequence_number":12,"item_id":"msg_68","output_index":0,"content_index":0,"delta":" token","logprobs":[],"obfuscation":"Zq1"}` + "\n\n",
		Messages:  "event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" token"}}` + "\n\n",
	} {
		b.Run(string(face), func(b *testing.B) {
			b.ReportAllocs()
			p := []byte(event)
			m := NewMeter(face, true)
			m.Hold, m.Drop = true, true
			for i := 0; b.Loop(); i++ {
				if i%10_000 == 0 { // the length of a long answer
					m = NewMeter(face, true)
					m.Hold, m.Drop = true, true
				}
				out, err := m.Write(p)
				if err != nil || len(out) != len(p) || len(m.Ready()) > 0 {
					b.Fatal(len(out), err)
				}
			}
		})
	}
}

// BenchmarkRequest is what a request costs before it is sent: read, bounded,
// lowered. The second is the same conversation again, as it comes back with
// each turn.
func BenchmarkRequest(b *testing.B) {
	for _, turns := range []int{1, 100} {
		var body strings.Builder
		body.WriteString(`{"model":"gpt-5","stream":true,"max_completion_tokens":4096,"messages":[{"role":"system","content":"You help."}`)
		for i := range turns {
			fmt.Fprintf(&body, `,{"role":"user","content":"Question %d: %s"}`, i, strings.Repeat(`what is \"to be done\" here,\nand why? `, 30))
		}
		body.WriteString(`]}`)
		b.Run(fmt.Sprintf("%dKB", body.Len()>>10), func(b *testing.B) {
			b.ReportAllocs()
			data := []byte(body.String())
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r, err := Parse(Chat, data)
				if err != nil {
					b.Fatal(err)
				}
				r.Count = catalog.CounterOf("openai", r.Model)
				if r.Bound().Input == 0 || len(r.Bytes(100)) == 0 {
					b.Fatal("nothing")
				}
			}
		})
	}
}

// BenchmarkCalls is the same for a conversation of 200 tool calls.
func BenchmarkCalls(b *testing.B) {
	var body strings.Builder
	body.WriteString(`{"model":"gpt-5","max_completion_tokens":4096,"messages":[{"role":"user","content":"Look."}`)
	for i := range 200 {
		fmt.Fprintf(&body, `,{"role":"assistant","content":null,"tool_calls":[{"id":"call_Ab12Cd34Ef56Gh78Ij%08d","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"file%d.go\"}"}}]}`, i, i)
		fmt.Fprintf(&body, `,{"role":"tool","tool_call_id":"call_Ab12Cd34Ef56Gh78Ij%08d","content":"package file%d"}`, i, i)
	}
	body.WriteString(`]}`)
	data := []byte(body.String())
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, err := Parse(Chat, data)
		if err != nil {
			b.Fatal(err)
		}
		if r.Count = catalog.CounterOf("openai", r.Model); r.Bound().Input == 0 {
			b.Fatal("nothing")
		}
	}
}

func BenchmarkSplit(b *testing.B) {
	data, err := os.ReadFile("testdata/chat/whole.json")
	if err != nil {
		b.Fatal(err)
	}
	body := `{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(string(data)+",", 200), ",") + `]}`
	r, err := Parse(Chat, []byte(body))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, msgs := r.Split(); len(msgs) != 200 {
			b.Fatal(len(msgs))
		}
	}
}
