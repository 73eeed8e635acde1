package tariff

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/provider/tokens"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// long is a text that shows where it is counted.
var long = strings.Repeat("all of this counts, ", 30)

// every is all formats.
const every = Chat | Responses | Embeddings | Messages

// request has the members of a body, beside a model that thinks aloud.
func request(t *testing.T, at Format, body string) *Request {
	t.Helper()
	if bad := jsontext.Check([]byte(body), jsontext.UniqueKeys); bad != nil {
		t.Fatalf("%s: %v", body, bad)
	}
	r := &Request{Format: at, Model: "m", Choices: 1}
	for name, val := range jsontext.Members([]byte(body)) {
		r.Fields = append(r.Fields, Field{string(name), val})
	}
	return r
}

// effect is what a field changes in the bill of a request that has nothing else.
func effect(r *Request) string {
	bare := *r
	bare.Fields = nil
	with, without := Of(r), Of(&bare)
	var s []string
	for _, e := range with.Extras {
		if s = append(s, "sold as "+e.Name); len(strings.Fields(e.Why)) < 4 {
			s = append(s, "for no reason")
		}
	}
	if !with.Known {
		s = append(s, "kept")
	}
	switch n := with.Input - without.Input; {
	case n >= perTools && with.Input-with.Text >= perTools:
		s = append(s, "told")
	case n >= int64(r.Count.Count(long)):
		s = append(s, "counted")
	}
	if with.Hour {
		s = append(s, "for long")
	} else if with.Cached && !without.Cached {
		s = append(s, "cached")
	}
	if with.Hidden {
		s = append(s, "hidden")
	}
	if with.Least > without.Least {
		s = append(s, "least")
	}
	if !r.Steady() {
		s = append(s, "moves")
	}
	return strings.Join(s, ", ")
}

// A fieldCase is a value of a field, or of several, and what it makes a provider
// bill.
type fieldCase struct {
	names  string
	at     Format
	value  string // LONG stands for a long text
	effect string // NAME stands for the field
}

// fieldCases say by what providers themselves say of each field what it costs.
// Those that cost nothing are tried in TestFree.
var fieldCases = []fieldCase{
	{"messages system input instructions", Chat | Responses | Messages, `"LONG"`, "counted"},
	{"input", Embeddings, `["LONG"]`, "counted"},
	{"tools functions", every, `[{"type":"function","name":"f","description":"LONG"}]`, "told"},
	{"tools", Chat, `[{"type":"web_search"}]`, "sold as web_search, told"},
	{"tool_choice function_call documents suffix grammar json_schema guided_json guided_regex guided_choice guided_grammar structured_outputs regex ebnf", Chat, `{"a":"LONG"}`, "counted"},
	{"chat_template chat_template_kwargs", Chat, `{"a":"LONG"}`, "counted"},
	{"response_format text output_format output_config", every, `{"a":"LONG"}`, "counted"},
	{"response_format text output_format output_config", every, `{"type":"json_schema","a":"LONG"}`, "told"},
	{"safe_prompt", Chat, `true`, "told"},
	{"safe_prompt", Chat, `false`, ""},
	{"prompt_mode", Chat, `"reasoning"`, "told"},
	{"cache_control prompt_cache_options", Messages, `{"type":"ephemeral"}`, "cached"},
	{"cache_control prompt_cache_options", Messages, `{"ttl":"5m"}`, "cached"},
	{"cache_control prompt_cache_options", Chat | Responses, `{"ttl":"30m"}`, ""},
	{"cache_control prompt_cache_options", every, `{"ttl":"1h"}`, "for long"},
	{"prompt_cache_retention", Chat | Responses, `"24h"`, "for long"},
	{"prompt_cache_retention", Chat | Responses, `"in_memory"`, ""},
	{"prompt_cache_retention", Chat | Responses, `"in-memory"`, ""},

	{"reasoning", Chat | Responses, `{"effort":"LONG"}`, "counted, hidden"},
	{"reasoning/effort reasoning/summary reasoning/generate_summary reasoning/context reasoning/exclude reasoning/enabled", Responses, `"x"`, "hidden"},
	{"reasoning/max_tokens", Chat | Responses, `2000`, "hidden, least"},
	{"reasoning/mode", Responses, `"standard"`, "hidden"},
	{"reasoning/mode", Responses, `""`, "hidden"},
	{"reasoning/mode", Responses, `"pro"`, "sold as reasoning mode, hidden"},
	{"reasoning/mode", Responses, `7`, "sold as reasoning mode, hidden"},
	{"thinking", Messages, `{"type":"enabled","display":"LONG"}`, "counted, hidden"},
	{"thinking", Messages, `{"type":"disabled"}`, ""},
	{"thinking/type thinking/budget_tokens thinking/display thinking/clear_thinking", Messages, `"x"`, "hidden"},
	{"reasoning_effort", Chat, `"none"`, ""},
	{"reasoning_effort", Chat, `"low"`, "hidden"},
	{"options vllm_xargs mm_processor_kwargs custom_params format", every, `{"a":"LONG"}`, "counted"},
	{"think", Chat, `false`, ""},
	{"think", Chat, `true`, "hidden"},
	{"enable_thinking", Chat, `false`, ""},
	{"enable_thinking", Chat, `true`, "hidden"},
	{"include_reasoning reasoning_format reasoning_split separate_reasoning stream_reasoning thinking_budget thinking_token_budget", Chat, `false`, "hidden"},

	{"previous_response_id", Responses, `"resp_1"`, "kept"},
	{"conversation", Responses, `"conv_1"`, "kept, moves"},
	{"prompt", Responses, `{"id":"p"}`, "kept, moves"},
	{"prompt", Chat, `"LONG"`, "counted"},
	{"thread", Messages, `{"type":"continue"}`, "kept, moves"},
	{"thread", Messages, `{"type":"create"}`, "moves"},
	{"cached_content extra_body/google/cached_content", Chat, `"LONG"`, "kept, counted"},
	{"extra_body/google/thinking_config", Chat, `{"thinking_budget":9}`, "hidden"},

	{"truncation", Responses, `"auto"`, "moves"},
	{"truncation", Responses, `"disabled"`, ""},
	{"transforms truncate_prompt_tokens prompt_truncate_len context_length_exceeded_behavior", Chat, `["middle-out"]`, "moves"},
	{"context_management compaction", Messages, `{"edits":[{"type":"compact_20260112"}]}`, "sold as NAME, moves"},
	{"context_management compaction", Messages, `{"edits":[{"type":"clear_tool_uses_20250919"}]}`, "moves"},
	{"context_management compaction", Responses, `[{"type":"compaction"}]`, "sold as NAME, moves"},

	{"n", Chat, `9`, ""},
	{"n best_of", Responses | Messages, `9`, "sold as NAME"},
	{"n best_of", Responses | Messages, `1`, ""},
	{"best_of", Chat, `2`, "sold as NAME"},
	{"use_beam_search", Chat, `true`, "sold as NAME"},
	{"use_beam_search", Chat, `false`, ""},
	{"service_tier", every, `"priority"`, "sold as NAME"},
	{"service_tier", every, `"performance"`, "sold as NAME"},
	{"service_tier", every, `"auto"`, ""},
	{"service_tier", every, `"default"`, ""},
	{"service_tier", every, `"standard"`, ""},
	{"service_tier", every, `"standard_only"`, ""},
	{"service_tier", every, `"on_demand"`, ""},
	{"service_tier", every, `"flex"`, ""},
	{"speed", Messages, `"fast"`, "sold as NAME"},
	{"speed", Messages, `"standard"`, ""},
	{"inference_geo", Messages, `"us"`, "sold as NAME"},
	{"inference_geo", Messages, `"global"`, ""},
	{"models fallbacks preset access_programs route safety_model", Chat, `["dear"]`, "sold as NAME"},
	{"provider/sort", Chat, `"price"`, ""},
	{"provider/sort", Chat, `"throughput"`, "sold as NAME"},
	{"provider/sort", Chat, `{"by":"latency"}`, "sold as NAME"},
	{"provider/data_collection", Chat, `"allow"`, ""},
	{"provider/data_collection", Chat, `"deny"`, "sold as NAME"},
	{"provider/require_parameters provider/zdr provider/enforce_distillable_text", Chat, `false`, ""},
	{"provider/require_parameters provider/zdr provider/enforce_distillable_text", Chat, `true`, "sold as NAME"},
	{"provider/order provider/only provider/ignore provider/quantizations provider/preferred_min_throughput provider/preferred_max_latency", Chat, `["x"]`, "sold as NAME"},
	{"multi_agent", Responses, `{"enabled":true}`, "sold as NAME"},
	{"prediction speculation", Chat, `{"type":"content","content":"LONG"}`, "sold as NAME, counted"},
	{"plugins", Chat, `[{"id":"response-healing"},{"id":"context-compression"}]`, "moves"},
	{"plugins", Chat, `[{"id":"response-healing"},{"id":"web"}]`, "sold as NAME, moves"},
	{"plugins", Chat, `"web"`, "sold as NAME, moves"},
	{"web_search_options data_sources search_options", Chat, `{}`, "sold as NAME"},
	{"search_parameters search_settings enable_search web_search compound_custom enable_code_interpreter", Chat, `{}`, "sold as NAME"},
	{"search_parameters search_settings enable_search web_search compound_custom enable_code_interpreter", Chat, `false`, ""},
	{"mcp_servers container", Messages, `[]`, "sold as NAME"},
	{"deferred", Chat, `true`, "sold as NAME"},
	{"deferred", Chat, `false`, ""},
	{"audio image_config", Chat, `{}`, "sold as audio"},
	{"modalities", Chat, `["text","audio"]`, "sold as audio"},
	{"modalities", Chat, `["image"]`, "sold as audio"},
	{"modalities", Chat, `["text"]`, ""},
}

// body is a body with one field in it.
func body(name, value string) string {
	outer, inner, deep := strings.Cut(name, "/")
	if deep {
		value = body(inner, value)
	}
	return fmt.Sprintf("{%q:%s}", outer, value)
}

// rowOf names a row and one of its fields.
func rowOf(name string, f *row) string { return fmt.Sprint(name, " of ", f.name, " at ", f.at) }

// TestFields holds the bill of each field to what it does, and that there is no
// row without a case, nor one whose values that ask for nothing were not tried.
//
// Mutants that die here: a row that is dropped, one of another kind, one without
// its exceptions, and one with more of them.
func TestFields(t *testing.T) {
	asked, quiet := map[string]bool{}, map[string]bool{}
	for _, c := range fieldCases {
		for name := range strings.SplitSeq(c.names, " ") {
			for at := Chat; at <= Messages; at <<= 1 {
				if c.at&at == 0 {
					continue
				}
				r := request(t, at, body(name, strings.ReplaceAll(c.value, "LONG", long)))
				want := strings.ReplaceAll(c.effect, "NAME", name)
				if got := effect(r); got != want {
					t.Errorf("%s at %d is %q, want %q", body(name, c.value), at, got, want)
				}
				f := find(name, at)
				if f == nil {
					t.Fatalf("%s is tried and in no row", name)
				}
				asked[rowOf(name, f)] = true
				if f.sold != "" && !strings.Contains(c.effect, "sold") || f.kept != "" && !strings.Contains(c.effect, "kept") || f.sold == "" && c.effect == "" {
					quiet[rowOf(name, f)] = true
				}
			}
		}
	}
	for i := range fields {
		f := &fields[i]
		plain := f.sold == "" && f.kept == "" && f.read == nil && f.moves == nil
		for name := range strings.SplitSeq(f.name, " ") {
			if !plain && !asked[rowOf(name, f)] {
				t.Errorf("%s has no case", rowOf(name, f))
			}
			if f.off != nil && !quiet[rowOf(name, f)] {
				t.Errorf("%s has values that ask for nothing, and none was tried", rowOf(name, f))
			}
			for _, other := range rows[name] {
				if other.name != f.name && (other.at == 0 || f.at == 0) && other.at == f.at {
					t.Errorf("%s stands twice", rowOf(name, f))
				}
			}
		}
	}
}

// TestFree holds that what no model reads costs nothing, whatever it says.
//
// Mutants that die here: a free field that counts, or is sold.
func TestFree(t *testing.T) {
	n := 0
	for i := range fields {
		f := &fields[i]
		if f.sold != "" || f.kept != "" || f.read != nil || f.moves != nil {
			continue
		}
		for name := range strings.SplitSeq(f.name, " ") {
			if strings.HasPrefix(name, "reasoning/") || strings.HasPrefix(name, "thinking/") {
				continue // what holds them is not free; see TestFields
			}
			n++
			for _, value := range []string{`true`, `7`, `"` + long + `"`, `["` + long + `"]`} {
				if got := effect(request(t, Chat, body(name, value))); got != "" {
					t.Errorf("%s is %q", body(name, value), got)
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("%d fields were tried", n)
	}
}

// TestUnheard counts what nobody here knows, and names a wish for who may answer.
//
// Mutants that die here: an unknown field taken for free, or for sold, a member of
// a known one likewise, a name that only looks like that of a member.
func TestUnheard(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"new":"` + long + `"}`, "sold as new, counted, moves"},
		{`{"new":{"on":true}}`, "sold as new, moves"},
		{`{"new":true}`, "sold as new, moves"},
		{`{"new":["on"]}`, "sold as new, moves"},
		{`{"new":7,"newer":false,"newest":{},"last":[],"least":""}`, "moves"},
		{`{"extra_body":{"enable_search":true}}`, "sold as extra_body/enable_search"},
		{`{"grounding":{"google_search":{}}}`, "sold as grounding, moves"},
		{`{"new":null}`, ""},
		{`{"Temperature":1}`, "moves"},
		{`{"provider/max_price":{"prompt":1}}`, "sold as provider~1max_price, moves"},
		{`{"provider":{"max_price":{"prompt":1},"new":null}}`, ""},
		{`{"provider":{"new":1}}`, "sold as provider/new"},
		{`{"provider":{"a/b":1}}`, "sold as provider/a~1b"},
		{`{"provider":"dear"}`, "sold as provider"},
		{`{"provider":["dear"]}`, "sold as provider"},
		{`{"provider":{"` + strings.Repeat("n", 200) + `":1}}`, "sold as provider/" + strings.Repeat("n", 51) + "..."},
		{`{"providers":"dear"}`, "sold as providers, moves"},
		{`{"reasoning":{"new":"` + long + `"}}`, "sold as reasoning/new, counted, hidden"},
		{`{"thinking":{"new":1}}`, "hidden"},
		{`{"usage":{"new":"` + long + `"}}`, "sold as usage/new, counted"},
		{`{"extra_body":{"google":{"new":"` + long + `"}}}`, "sold as extra_body/google/new, counted"},
		{`{"extra_body":{"google":7}}`, ""},
		{`{"conversation":"c"}`, "sold as conversation, moves"}, // Chat has none
	} {
		if got := effect(request(t, Chat, c.body)); got != c.want {
			t.Errorf("%s is %q, want %q", c.body, got, c.want)
		}
	}
}

// TestFreeThere takes the word of a person for what a field costs at a provider,
// and counts it all the same.
//
// Mutants that die here: a word for one field taken for all of them, one for a
// field taken for what it holds, and for what the provider keeps.
func TestFreeThere(t *testing.T) {
	for _, c := range []struct{ body, free, want string }{
		{`{"prediction":"` + long + `"}`, "prediction", "counted"},
		{`{"prediction":1,"mcp_servers":[1]}`, "prediction", "sold as mcp_servers"},
		{`{"service_tier":"priority"}`, "service_tier", ""},
		{`{"provider":{"zdr":true,"order":["a"]}}`, "provider/zdr", "sold as provider/order"},
		{`{"provider":{"zdr":true}}`, "provider", "sold as provider/zdr"},
		{`{"provider":{"zdr":true}}`, "zdr", "sold as provider/zdr"},
		{`{"modalities":["audio"]}`, "modalities", ""},
		{`{"modalities":["audio"]}`, "audio", "sold as audio"},
		{`{"cached_content":"c"}`, "cached_content", "kept"},
	} {
		r := request(t, Chat, c.body)
		r.Free = []string{c.free}
		if got := effect(r); got != c.want {
			t.Errorf("%s with %s free is %q, want %q", c.body, c.free, got, c.want)
		}
	}
}

// TestNamed are the fields that may cost something, without those that hold them.
func TestNamed(t *testing.T) {
	names := Named()
	for name, want := range map[string]bool{"models": true, "provider": true, "prompt": true, "transforms": true, "service_tier": true, "temperature": false, "model": false, "provider/zdr": false, "usage": false} {
		if slices.Contains(names, name) != want {
			t.Errorf("%s is named: %v", name, !want)
		}
	}
	if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name comes twice in %q", names)
	}
}

// TestOffers says of each type of tools who runs it, in which format, and what a
// model is told of it.
//
// Mutants that die here: a type of one format in all of them, one that is told of
// and not counted, a longer name taken for one of a family.
func TestOffers(t *testing.T) {
	const run, taught = "", "taught"
	tried := map[string]bool{}
	for _, c := range []struct {
		at         Format
		kind, want string
	}{
		{every, "function", run}, {every, "custom", run},
		{Responses, "local_shell", taught}, {Responses, "apply_patch", taught}, {Responses, "computer", taught}, {Responses, "computer_use_preview", taught},
		{Chat | Messages, "local_shell", "sold"}, {Chat | Messages, "apply_patch", "sold"}, {Chat | Messages, "computer", "sold"}, {Chat, "computer_use_preview", "sold"},
		{Messages, "bash_20250124", taught}, {Messages, "text_editor_20250728", taught}, {Messages, "computer_20251124", taught}, {Messages, "memory_20250818", taught},
		{Chat | Responses, "bash_20250124", "sold"}, {Responses, "computer_20251124", "sold"},
		{Messages, "bash_", "sold"}, {Messages, "bash_2025012", "sold"}, {Messages, "bash_code_execution_20250825", "sold"}, {Messages, "computer_cloud1", "sold"}, {Messages, "memory_202508180", "sold"},
		{every, "code_execution_20250825", "sold"}, {every, "openrouter:web_search", "sold"}, {every, "functions", "sold"}, {every, "tool_search", "sold"},
	} {
		for at := Chat; at <= Messages; at <<= 1 {
			if c.at&at == 0 {
				continue
			}
			w := weigher{r: request(t, at, "{}"), b: Bound{Known: true}}
			w.offer("/tools/0", []byte(`{"type":"`+c.kind+`","name":"f"}`))
			got := run
			switch {
			case len(w.b.Extras) > 0:
				if got = "sold"; w.b.Extras[0].Name != c.kind || w.b.Extras[0].Where != "/tools/0" {
					t.Errorf("%s is named %+v", c.kind, w.b.Extras)
				}
			case w.n == perOwn && w.beside == perOwn:
				got = taught
			}
			if got != c.want {
				t.Errorf("%s at %d is %q, want %q", c.kind, at, got, c.want)
			}
			if o := offered(at, c.kind); o != nil {
				tried[o.name] = true
			}
		}
	}
	for _, o := range offers {
		if !tried[o.name] {
			t.Errorf("%s has no case", o.name)
		}
	}
}

// TestParts holds what each part of a message is billed for beside its words.
//
// Mutants that die here: a type that is dropped, or taken for another.
func TestParts(t *testing.T) {
	const words = `,"title":"LONG"`
	cases := map[string]struct{ more, want string }{
		"image_url":             {`,"image_url":{"url":"data:,LONG"}`, "a picture"},
		"input_image":           {`,"image_url":"data:,LONG"`, "a picture"},
		"image":                 {`,"source":{"data":"LONG"},"title":"LONG"`, "a picture, counted"},
		"computer_screenshot":   {`,"image":"LONG"`, "a picture"},
		"image_generation_call": {`,"result":"LONG","revised_prompt":"LONG"`, "a picture, counted"},
		"input_audio":           {words, "sold as audio, unbounded"},
		"audio":                 {words, "sold as audio, unbounded"},
		"document":              {`,"source":{"type":"base64","data":"LONG"}`, "unbounded"},
		"file":                  {words, "unbounded"},
		"input_file":            {words, "unbounded"},
		"container_upload":      {words, "unbounded"},
		"video":                 {words, "unbounded"},
		"video_url":             {words, "unbounded"},
		"input_video":           {words, "unbounded"},
		"audio_url":             {words, "sold as audio, unbounded"},
		"document_url":          {words, "unbounded"},
		"tool_definition":       {`,"definition":{"name":"f","description":"LONG"}`, "tools, counted"},
		"additional_tools":      {`,"tools":[{"name":"f","description":"LONG"}]`, "tools, counted"},
		"tool_search_output":    {`,"tools":[{"name":"f","description":"LONG"}]`, "tools, counted"},
		"tool_reference":        {`,"tool_name":"offered"`, "counted"},
		"item_reference":        {`,"id":"i"`, "unbounded"},
		"compaction":            {`,"content":"LONG"`, "unbounded, counted"},
		"text":                  {words, "counted"},
	}
	for kind := range parts {
		if _, ok := cases[kind]; !ok {
			t.Errorf("%s has no case", kind)
		}
	}
	n := int64(tokens.Counter{}.Count(long))
	for kind, c := range cases {
		r := request(t, Responses, strings.ReplaceAll(`{"tools":[{"name":"offered","description":"LONG"}]}`, "LONG", long))
		r.Model = "gpt-4o"
		w := weigher{r: r, b: Bound{Known: true}}
		w.part([]byte(`{"type":"` + kind + `"` + strings.ReplaceAll(c.more, "LONG", long) + `}`))
		var got []string
		for _, e := range w.b.Extras {
			got = append(got, "sold as "+e.Name)
		}
		if !w.b.Known {
			if got = append(got, "unbounded"); parts[kind] == unbounded && !strings.Contains(w.b.Why, " "+kind+" ") {
				t.Errorf("%s is unbounded: %s", kind, w.b.Why)
			}
		}
		rest := w.n - w.beside
		switch {
		case w.beside == 1_500:
			got = append(got, "a picture")
		case w.beside >= perTools:
			got = append(got, "tools")
		}
		if rest >= n {
			got = append(got, "counted")
		}
		if got := strings.Join(got, ", "); got != c.want || rest >= 2*n {
			t.Errorf("%s is %q with %d tokens, want %q", kind, got, rest, c.want)
		}
	}
}

// TestPictures holds the most that a picture takes of each model that is known.
//
// Mutants that die here: an order in which a longer name is not found, a name that
// is all of one taken for a beginning.
func TestPictures(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range []struct {
		at   Format
		name string
		most int64
	}{
		{Messages, "claude-opus-4-5", 5_000}, {Chat, "claude-opus-4-5", 50_000},
		{Chat, "gpt-4o-mini-2024-07-18", 48_200}, {Chat, "gpt-4o-2024-08-06", 1_500}, {Responses, "gpt-4.1-mini", 4_000}, {Chat, "gpt-4.1-nano", 4_000}, {Chat, "gpt-4.1", 1_500},
		{Chat, "gpt-5-mini", 4_000}, {Chat, "gpt-5-nano", 4_000}, {Chat, "gpt-5", 1_500}, {Chat, "gpt-5-2025-08-07", 1_500}, {Chat, "gpt-5.1", 1_500}, {Chat, "gpt-5.1-codex-mini", 4_000},
		{Chat, "gpt-5.2", 50_000}, {Chat, "gpt-5-pro", 50_000}, {Chat, "o1", 1_500}, {Chat, "o3", 1_500}, {Chat, "o4-mini", 4_000}, {Chat, "gpt-4-turbo", 1_500}, {Chat, "llava", 50_000}, {Chat, "", 50_000},
		{Chat, "o4-next", 50_000}, {Chat, "o5", 50_000}, {Chat, "chatgpt-next", 50_000}, {Chat, "codex-next", 50_000},
	} {
		r := &Request{Format: c.at, Model: c.name}
		if got := r.picture(nil); got != c.most {
			t.Errorf("%s at %d takes %d, want %d", c.name, c.at, got, c.most)
		}
		for _, p := range pictures {
			for name := range strings.SplitSeq(p.name, " ") {
				if p.most == c.most && strings.HasPrefix(c.name+"$", name) {
					tried[name] = true
				}
			}
		}
	}
	for _, p := range pictures {
		for name := range strings.SplitSeq(p.name, " ") {
			if !tried[name] {
				t.Errorf("%q has no case", name)
			}
		}
	}
}

// TestSearching names the models that search, or choose another, unasked.
//
// Mutants that die here: a name that is dropped, one that is found in every name.
func TestSearching(t *testing.T) {
	found := map[string]bool{}
	for name, why := range map[string]string{
		"openai/gpt-4o:online": searches, "gpt-4o-search-preview": searches, "gpt-5-search-api-2025-10-14": searches, "o4-mini-deep-research": searches, "perplexity/sonar-pro": searches,
		"groq/compound-mini": theirs, "openrouter/auto": another, "openai/gpt-4o@preset/mine": another, "@preset/mine": another,
		"gpt-4o": "", "claude-opus-5": "", "anthropic/claude-sonnet-4.5:thinking": "", "llama3:8b": "",
	} {
		r := request(t, Chat, "{}")
		r.Model = name
		b := Of(r)
		if why == "" && len(b.Extras) > 0 || why != "" && (len(b.Extras) != 1 || b.Extras[0] != Extra{Name: name, Where: "/model", Why: why}) {
			t.Errorf("%s: %+v, want %q", name, b.Extras, why)
		}
		for _, m := range searching {
			found[m.part] = found[m.part] || strings.Contains(name, m.part)
		}
	}
	for _, m := range searching {
		if !found[m.part] {
			t.Errorf("%s has no case", m.part)
		}
	}
}

// TestHosted says which calls the provider carries out itself.
func TestHosted(t *testing.T) {
	tried := 0
	for kind, own := range map[string]bool{"web_search_call": false, "file_search_call": false, "code_interpreter_call": false, "image_generation_call": false, "mcp_call": false, "tool_search_call": false,
		"function_call": true, "custom_tool_call": true, "local_shell_call": true, "new_call": true} {
		if OwnItem(kind) != own {
			t.Errorf("%s is the client's: %v", kind, !own)
		}
		if !own {
			tried++
		}
	}
	if tried != len(hosted) {
		t.Errorf("%d of %d were tried", tried, len(hosted))
	}
}

// harmless are the parameters by which no bill grows, as each of these lists
// them in its reference, beside those that TestFields has.
var harmless = map[string]string{
	"OpenAI, of Chat":        "frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata model n parallel_tool_calls presence_penalty prompt_cache_key safety_identifier seed stop store stream stream_options temperature top_logprobs top_p user verbosity",
	"OpenAI, of Responses":   "background include max_output_tokens max_tool_calls metadata parallel_tool_calls prompt_cache_key safety_identifier store stream stream_options temperature top_logprobs top_p user",
	"OpenAI, of embeddings":  "dimensions encoding_format user",
	"Codex":                  "client_metadata include parallel_tool_calls prompt_cache_key store stream",
	"Anthropic":              "diagnostics fallback_credit_token max_tokens metadata stop_sequences stream temperature top_k top_p user_profile_id workspace_id",
	"Anthropic, at others":   "anthropic_version background_options",
	"OpenRouter":             "debug min_p repetition_penalty session_id top_a trace usage",
	"Groq":                   "citation_options disable_tool_validation",
	"Mistral":                "random_seed output_dimension",
	"Zhipu":                  "do_sample request_id tool_stream user_id",
	"Fireworks":              "mirostat_lr mirostat_target perf_metrics_in_response prompt_cache_isolation_key prompt_cache_max_len raw_output",
	"vLLM":                   "add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt continue_final_message ignore_eos include_stop_str_in_output length_penalty min_tokens prompt_logprobs return_token_ids return_tokens_as_token_ids skip_special_tokens spaces_between_special_tokens stop_token_ids",
	"SGLang":                 "no_stop_trim",
	"llama.cpp":              "cache_prompt dry_allowed_length dry_base dry_multiplier dry_penalty_last_n dry_sequence_breakers dynatemp_exponent dynatemp_range id_slot min_keep mirostat mirostat_eta mirostat_tau n_predict n_probs repeat_last_n repeat_penalty return_progress samplers tfs_z timings_per_token top_n_sigma typical_p xtc_probability xtc_threshold",
	"Ollama":                 "keep_alive",
	"vLLM, of its own":       "guided_decoding_backend guided_whitespace_pattern kv_transfer_params detokenize echo stop_regex logits_processors priority",
	"SGLang, of its own":     "lora_path return_hidden_states rid session_params",
	"llama.cpp, of its own":  "lora return_tokens response_fields parse_tool_calls post_sampling_probs t_max_predict_ms",
	"LM Studio":              "draft_model ttl",
	"LiteLLM":                "litellm_session_id litellm_trace_id litellm_metadata tags drop_params num_retries caching",
	"others, of answers":     "max_new_tokens",
	"others, of embeddings":  "embedding_type input_type normalized task truncate",
	"members of other rows":  "usage/include provider/max_price provider/allow_fallbacks extra_body/google/safety_settings extra_body/google/thought_tag_marker",
	"members of a reasoning": "reasoning/effort reasoning/summary reasoning/generate_summary reasoning/context reasoning/max_tokens reasoning/exclude reasoning/enabled",
	"members of a thinking":  "thinking/type thinking/budget_tokens thinking/display thinking/clear_thinking",
}

// TestHarmless lets pass what costs nothing, and knows of each free row who has
// the parameter.
//
// Mutants that die here: a name that is dropped from a free row, one that is
// written otherwise, one that nobody has.
func TestHarmless(t *testing.T) {
	had := map[string]bool{}
	for whose, names := range harmless {
		for name := range strings.SplitSeq(names, " ") {
			had[name] = true
			if b := Of(request(t, Chat, body(name, "7"))); len(b.Extras) > 0 || !b.Known {
				t.Errorf("%s: %s is refused: %+v", whose, name, b)
			}
		}
	}
	for _, f := range fields {
		for name := range strings.SplitSeq(f.name, " ") {
			if f.sold == "" && f.kept == "" && f.read == nil && f.moves == nil && !had[name] {
				t.Errorf("nobody has %s", name)
			}
		}
	}
}
