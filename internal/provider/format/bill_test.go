package format

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// A charge is a part of a request, and what a provider bills for it. The bill is
// worked out here from what providers say of themselves, by nothing that the
// bound is made of but the vocabulary.
type charge struct {
	json string
	bill int64
	at   string // where the provider has the rest of it: there is no bound
	paid string // what it bills by another measure
	mark string // what it is marked with for the cache: "" none, else how long
}

// A biller makes charges.
type biller struct {
	*rapid.T
	face Format
}

// marks are how a part is marked for the cache.
var cacheMarks = []struct{ json, mark string }{
	{"", ""}, {"", ""}, {"", ""}, {`,"cache_control":{"type":"ephemeral"}`, "5m"}, {`,"cache_control":{"type":"ephemeral","ttl":"5m"}`, "5m"}, {`,"cache_control":{"ttl":"1h","type":"ephemeral"}`, "1h"},
}

func (b biller) count(s string) int64 { return int64(tokens.CountText(s)) }

// pick draws one of several; each is drawn in its own name.
func pick[V any](b biller, name string, of ...V) V {
	return of[rapid.IntRange(0, len(of)-1).Draw(b.T, name)]
}

// text is one that vocabularies find easy or hard.
func (b biller) text() string {
	return strings.Repeat(pick(b, "text", "word ", "a1+/", "\U0001F600", "日本", "\n", "Xy", "0123456789", `"`, `\`, "a. ", "x7 ", "\u0000"), rapid.IntRange(0, 60).Draw(b.T, "times"))
}

func quoted(s string) string { return string(jsontext.Quote(s)) }

// object is JSON that means nothing and looks like parts of messages.
func (b biller) object(depth int) string {
	var members []string
	for _, key := range []string{"type", "role", "signature", "content", "text", "source", "image_url", "input", "cache_control", "x", "encrypted_content", "tools"} {
		if !rapid.Bool().Draw(b.T, key) {
			continue
		}
		val := quoted(b.text())
		switch {
		case depth > 0 && rapid.Bool().Draw(b.T, "deep"):
			val = b.object(depth - 1)
		case rapid.Bool().Draw(b.T, "word"):
			val = pick(b, "value", `"image"`, `"input_audio"`, `"reasoning"`, `"file"`, `[1,{"type":"image"}]`, `1e9`, `null`, `"tool_reference"`)
		}
		members = append(members, quoted(key)+":"+val)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// tool is one that is offered.
func (b biller) tool() charge {
	own := fmt.Sprintf(`{"name":"f","description":%s,"%s":{"properties":{"type":{"description":%s}}}}`, quoted(b.text()), map[Format]string{Messages: "input_schema", Responses: "parameters"}[b.face], quoted(b.text()))
	if b.face == Chat {
		own = `{"type":"function","function":` + strings.Replace(own, `""`, `"parameters"`, 1) + `}`
	}
	all := []charge{{json: own, bill: b.count(own)}, {json: own, bill: b.count(own)}, {json: `{"type":"web_search_20260209","name":"s"}`, paid: "search"}, {json: `{"google_search":{}}`, paid: "search"}, {json: `{"type":"code_interpreter","container":{"type":"auto"}}`, paid: "code"}}
	switch b.face {
	case Messages:
		all = append(all, charge{json: `{"type":"computer_20251124","name":"computer","display_width_px":1}`, bill: 1250}, charge{json: `{"type":"text_editor_20250728","name":"e"}`, bill: 700}, charge{json: `{"type":"web_fetch_20250910"}`, paid: "fetch"},
			charge{json: `{"type":"mcp_toolset","mcp_server_name":"a"}`, paid: "mcp"})
	case Responses:
		all = append(all, charge{json: `{"type":"image_generation"}`, paid: "pictures"}, charge{json: `{"type":"namespace","tools":[{"type":"mcp","server_url":"u"}]}`, paid: "mcp"}, charge{json: `{"type":"local_shell"}`, bill: 500})
	}
	return pick(b, "tool", all...)
}

// part is something in a message of a user.
func (b biller) part() charge {
	text := b.text()
	mark := pick(b, "mark", cacheMarks...)
	p := map[Format]charge{
		Chat:      {json: `{"type":"text","text":` + quoted(text), bill: b.count(text)},
		Responses: {json: `{"type":"input_text","text":` + quoted(text), bill: b.count(text)},
		Messages:  {json: `{"type":"text","text":` + quoted(text), bill: b.count(text)},
	}[b.face]
	if rapid.IntRange(0, 2).Draw(b.T, "other") == 0 {
		p = pick(b, "part", map[Format][]charge{
			Chat: {{json: `{"type":"image_url","image_url":{"url":"https://a.example/p.png","detail":"high"}`, bill: 1445}, {json: `{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}`, bill: 1445},
				{json: `{"type":"file","file":{"file_data":"AA"}`, at: "file"}, {json: `{"type":"input_audio","input_audio":{"data":"AA"}`, paid: "sound", at: "sound"}, {json: `{"type":"refusal","refusal":` + quoted(text), bill: b.count(text)}},
			Responses: {{json: `{"type":"input_image","file_id":"f"`, bill: 1445}, {json: `{"type":"input_file","file_url":"https://a.example/f.pdf"`, at: "file"}},
			Messages: {{json: `{"type":"image","source":{"type":"url","url":"https://a.example/p.png"}`, bill: 4784}, {json: `{"type":"document","source":{"type":"base64","data":"AA"}`, at: "document"}, {json: `{"type":"container_upload","file_id":"f"`, at: "file"},
				{json: `{"type":"document","title":` + quoted(text) + `,"source":{"type":"content","content":[{"type":"text","text":` + quoted(text) + `},{"type":"image","source":{"type":"base64","data":"AA"}}]}`, bill: 2*b.count(text) + 4784},
				{json: `{"type":"document","citations":{"enabled":true},"source":{"type":"text","data":` + quoted(text) + `}`, bill: 600 + b.count(text) + int64(6*strings.Count(text, "."))}},
		}[b.face]...)
	}
	if b.face == Messages {
		p.json, p.mark = p.json+mark.json, mark.mark
	}
	p.json += "}"
	return p
}

// around is a charge with others in it.
func around(before string, bill int64, inner []charge, after string) charge {
	p := charge{bill: bill}
	var list []string
	for _, i := range inner {
		list, p.bill = append(list, i.json), p.bill+i.bill
		if p.at, p.paid = p.at+i.at, p.paid+i.paid; p.mark != "1h" && i.mark != "" {
			p.mark = i.mark
		}
	}
	p.json = before + strings.Join(list, ",") + after
	return p
}

func (b biller) parts() []charge {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) charge { return biller{t, b.face}.part() }), 1, 3).Draw(b.T, "parts")
}

// message is an element of a conversation.
func (b biller) message() charge {
	if rapid.Bool().Draw(b.T, "user") {
		return around(`{"role":"user","content":[`, 4, b.parts(), `]}`)
	}
	text, object := b.text(), b.object(2)
	q, n, o := quoted(text), b.count(text), b.count(object)
	switch b.face {
	case Chat:
		return pick(b, "message",
			charge{json: `{"role":"assistant","content":` + q + `,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":` + quoted(object) + `}}]}`, bill: n + o + 8},
			charge{json: `{"role":"tool","tool_call_id":"c1","content":` + q + `}`, bill: n + 4},
			charge{json: `{"role":"assistant","content":null,"audio":{"id":"audio_1"}}`, paid: "sound", at: "sound"},
			charge{json: `{"role":"assistant","content":"","audio":null,"refusal":` + q + `}`, bill: n + 4})
	case Responses:
		return pick(b, "item",
			charge{json: `{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":` + quoted(object) + `}`, bill: o + 8},
			around(`{"type":"function_call_output","call_id":"c1","output":[`, 4, b.parts(), `]}`),
			charge{json: `{"type":"reasoning","id":"rs_1","summary":[]}`, at: "thought"},
			charge{json: `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"` + strings.Repeat("QUJD", 50) + `"}`, bill: 100},
			charge{json: `{"type":"item_reference","id":"msg_1"}`, at: "item"},
			charge{json: `{"type":"image_generation_call","id":"ig_1"}`, bill: 1445},
			charge{json: `{"type":"file_search_call","id":"fs_1","queries":[]}`, at: "search"},
			charge{json: `{"type":"local_shell_call","call_id":"c1","action":` + object + `}`, bill: o},
			around(`{"type":"additional_tools","tools":[`, 0, []charge{b.tool()}, `]}`))
	}
	return pick(b, "message",
		charge{json: `{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":` + object + `}]}`, bill: o + 8},
		charge{json: `{"role":"assistant","content":[{"type":"thinking","thinking":` + q + `,"signature":"QUJD"}]}`, bill: n + 3},
		around(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[`, 4, b.parts(), `]}]}`),
		around(`{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":`, 0, []charge{b.tool()}, `}}]}`),
		charge{json: `{"role":"user","content":[{"type":"search_result","source":"https://a.example","title":` + q + `,"content":[{"type":"text","text":` + q + `}]}]}`, bill: 2 * n})
}

// beside are the fields beside the conversation.
func (b biller) beside() charge {
	text := b.text()
	return pick(b, "field",
		charge{json: `"service_tier":"auto"`}, charge{json: `"metadata":{"a":` + quoted(text) + `}`}, charge{json: `"user":"u"`}, charge{json: `"stream":true`}, charge{json: `"n":1`}, charge{json: `"store":true`},
		charge{json: `"service_tier":"priority"`, paid: "tier"}, charge{json: `"web_search_options":{}`, paid: "search"}, charge{json: `"search_parameters":{"mode":"on"}`, paid: "search"}, charge{json: `"plugins":[{"id":"web"}]`, paid: "search"},
		charge{json: `"modalities":["text","audio"]`, paid: "sound"}, charge{json: `"prediction":{"type":"content","content":"x"}`, paid: "prediction"}, charge{json: `"mcp_servers":[{"url":"u"}]`, paid: "mcp"}, charge{json: `"container":"c"`, paid: "code"},
		charge{json: `"inference_geo":"us"`, paid: "region"}, charge{json: `"speed":"fast"`, paid: "speed"}, charge{json: `"fallbacks":["dear"]`, paid: "model"}, charge{json: `"best_of":3`, paid: "answers"},
		charge{json: `"context_management":{"edits":[{"type":"compact_20260112"}]}`, paid: "summary"}, charge{json: `"prompt_cache_options":{"ttl":"12h"}`, mark: "1h"},
		charge{json: `"documents":[{"text":` + quoted(text) + `}]`, bill: b.count(text)}, charge{json: `"response_format":{"type":"json_schema","json_schema":{"schema":{"description":` + quoted(text) + `}}}`, bill: b.count(text) + 100})
}

// request is a body with what is billed for it.
func (b biller) request() (body string, whole charge, r *Request) {
	name := map[Format]string{Chat: "gpt-4o", Responses: "gpt-4o", Messages: "claude-opus-4-5"}[b.face]
	list := map[Format]string{Chat: "messages", Responses: "input", Messages: "messages"}[b.face]
	messages := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) charge { return biller{t, b.face}.message() }), 1, 5).Draw(b.T, "messages")
	all := []charge{{json: `"model":` + quoted(name), bill: 3}, around(quoted(list)+`:[`, 0, messages, `]`)}
	if rapid.Bool().Draw(b.T, "tools") {
		all = append(all, around(`"tools":[`, 400, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) charge { return biller{t, b.face}.tool() }), 1, 3).Draw(b.T, "tools"), `]`))
	}
	if rapid.Bool().Draw(b.T, "beside") {
		all = append(all, b.beside())
	}
	whole = around("{", 0, all, "}")
	r, err := Parse(b.face, []byte(whole.json))
	if err != nil {
		b.Fatalf("%s: %v", whole.json, err)
	}
	r.Count = catalog.CounterOf(b.face.Vendor(), name)
	return whole.json, whole, r
}

// TestBill makes conversations of all that the formats have, with what a provider
// bills for each part: the bound is never less, or the request is said to have
// none, or named for what it is paid by.
//
// Mutants that die here: a part that counts nothing, one whose bill is not its
// tokens and that is not named, a mark for the cache that is not seen.
func TestBill(t *testing.T) {
	p := model.Price{Input: 4_000_000_000, Output: 8_000_000_000, CacheRead: 400_000_000, CacheWrite: 5_000_000_000}
	for _, f := range []Format{Chat, Responses, Messages} {
		t.Run(string(f), rapid.MakeCheck(func(t *rapid.T) {
			body, whole, r := biller{t, f}.request()
			b := r.Bound()
			if whole.paid != "" && len(b.Extras) == 0 {
				t.Fatalf("%s is billed by %s, and nothing is named", body, whole.paid)
			}
			if whole.at != "" && b.Known {
				t.Fatalf("%s is known, and the provider has the rest of it: %s", body, whole.at)
			}
			if b.Input < whole.bill && b.Known {
				t.Fatalf("%s is bounded by %d tokens, and %d are billed", body, b.Input, whole.bill)
			}
			each := p.Input
			switch {
			case whole.mark == "1h":
				each *= 2
			case whole.mark != "" || f != Messages:
				each = p.CacheWrite
			}
			if cost, most := b.Cost(p), (model.Price{Input: each}).Cost(model.Usage{Input: b.Input}); cost < most {
				t.Fatalf("%s costs up to %d by its bound, and %d are billed", body, cost, most)
			}
		}))
	}
}
