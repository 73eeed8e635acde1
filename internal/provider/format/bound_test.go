package format

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

func extras(b Bound) string {
	var s []string
	for _, e := range b.Extras {
		s = append(s, e.Name+" "+e.Where)
	}
	return strings.Join(s, ", ")
}

func TestBound(t *testing.T) {
	text := strings.Repeat("all that is written here counts, once and not twice. ", 20)
	n := int64(tokens.Counter{}.Count(text))
	picture := strings.Repeat("QUJD", 3000)
	for _, c := range []struct {
		name     string
		face     Format
		body     string
		from, to int64 // of Input; 0: not looked at
		why      string
		extras   string
		more     string // least, cached, hour, hidden
	}{
		{"a text", Chat, `{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`, n, n + 200, "", "", "1 true false false"},
		{"parts", Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + text + `"}]}]}`, n, n + 200, "", "", ""},
		{"arguments and results", Chat, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"` + text + `"}}]},{"role":"tool","tool_call_id":"a","content":"` + text + `"}]}`, 2 * n, 2*n + 250, "", "", ""},
		{"tools", Chat, `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","description":"` + text + `"}}]}`, n + 1000, n + 1300, "", "", ""},
		{"a schema", Chat, `{"model":"m","messages":[],"response_format":{"type":"json_schema","json_schema":{"schema":{"description":"` + text + `"}}}}`, n + 1000, n + 1300, "", "", ""},
		{"an unknown field", Chat, `{"model":"m","messages":[],"documents":[{"body":"` + text + `"}]}`, n, n + 200, "", "", ""},
		{"an unknown part", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"new","deep":{"er":["` + text + `"]}}]}]}`, n, n + 250, "", "", ""},
		{"an unknown name of a field", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"new","` + text + `":1}]}]}`, n, n + 250, "", "", ""},
		{"fields that nobody reads", Chat, `{"model":"m","messages":[],"user":"` + text + `","metadata":{"a":"` + text + `"},"temperature":0.5}`, 1, 200, "", "", ""},
		{"a picture", Chat, `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + picture + `"}}]}]}`, 1445, 1800, "", "", ""},
		{"a picture for a small model", Chat, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.org/a.png","detail":"high"}}]}]}`, 48169, 49000, "", "", ""},
		{"a picture for somebody", Responses, `{"model":"vision","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://example.org/a.png"}]}]}`, 50000, 51000, "", "", ""},
		{"a picture in a result", Messages, `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"type":"base64","data":"` + picture + `"}}]}]}]}`, 4784, 5500, "", "", ""},
		{"sound", Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]}]}`, 0, 0, "sound", "audio ", ""},
		{"a file", Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`, 0, 0, "file", "", ""},
		{"a document", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA"}}]}]}`, 0, 0, "document", "", ""},
		{"a document in words", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"` + text + `"}}]}]}`, n, n + 250, "", "", ""},
		{"what came before", Responses, `{"model":"m","input":"a","previous_response_id":"resp_1"}`, 0, 0, "previous_response_id", "", ""},
		{"a conversation", Responses, `{"model":"m","input":"a","conversation":{"id":"c"}}`, 0, 0, "conversation", "", ""},
		{"a stored prompt", Responses, `{"model":"m","prompt":{"id":"p"}}`, 0, 0, "prompt", "", ""},
		{"a stored item", Responses, `{"model":"m","input":[{"type":"item_reference","id":"i"}]}`, 0, 0, "item", "", ""},
		{"not that prompt", Chat, `{"model":"m","messages":[],"prompt":"` + text + `"}`, n, n + 200, "", "", ""},
		{"tools of the provider", Responses, `{"model":"m","input":"a","tools":[{"type":"function","name":"f"},{"type":"web_search"},{"type":"local_shell"},{"type":"mcp","server_url":"u"},{"type":"custom","name":"c"}]}`, 0, 0, "", "web_search /tools/1, mcp /tools/3", "16 true false false"},
		{"tools of the other provider", Messages, `{"model":"m","messages":[],"tools":[{"name":"t","input_schema":{}},{"type":"bash_20250124","name":"bash"},{"type":"web_search_20250305","name":"web_search"},{"type":"custom","name":"c"},{"type":"new_20300101","name":"n"}]}`, 0, 0, "", "web_search_20250305 /tools/2, new_20300101 /tools/4", ""},
		{"other prices", Chat, `{"model":"m","messages":[],"service_tier":"priority","modalities":["text","audio"],"web_search_options":{},"models":["dear"],"prediction":{"content":"a"}}`, 0, 0, "", "service_tier /service_tier, audio /modalities, web_search_options /web_search_options, models /models, prediction /prediction", ""},
		{"the usual price", Chat, `{"model":"m","messages":[],"service_tier":"auto","modalities":["text"],"web_search_options":null}`, 0, 0, "", "", ""},
		{"faster", Messages, `{"model":"m","messages":[],"speed":"fast","mcp_servers":[],"inference_geo":"us"}`, 0, 0, "", "speed /speed, mcp_servers /mcp_servers, inference_geo /inference_geo", ""},
		{"choices", Chat, `{"model":"m","messages":[],"n":5,"max_tokens":10}`, 0, 0, "", "", "5 true false false"},
		{"a cache", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`, 0, 0, "", "", "1 true false false"},
		{"a cache for an hour", Messages, `{"model":"m","system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[]}`, 0, 0, "", "", "1 true true false"},
		{"a cached tool", Messages, `{"model":"m","messages":[],"tools":[{"name":"t","cache_control":{"type":"ephemeral"}}]}`, 0, 0, "", "", "1 true false false"},
		{"thoughts", Messages, `{"model":"m","max_tokens":4000,"messages":[],"thinking":{"type":"enabled","budget_tokens":2000}}`, 0, 0, "", "", "2001 false false true"},
		{"no thoughts", Messages, `{"model":"m","max_tokens":4000,"messages":[],"thinking":{"type":"disabled"}}`, 0, 0, "", "", "1 false false false"},
		{"silent thoughts", Chat, `{"model":"gpt-6-luna","messages":[]}`, 0, 0, "", "", "1 true false true"},
		{"silent thoughts of the other provider", Messages, `{"model":"claude-opus-5-5","messages":[]}`, 0, 0, "", "", "1 false false true"},
		{"thoughts that are turned off", Messages, `{"model":"claude-opus-5","messages":[],"thinking":{"type":"disabled"}}`, 0, 0, "", "", "1 false false false"},
		{"no thoughts unasked", Messages, `{"model":"claude-haiku-4-5","messages":[]}`, 0, 0, "", "", "1 false false false"},
		{"a cache for half a day", Responses, `{"model":"m","input":"a","prompt_cache_options":{"mode":"explicit","ttl":"12h"}}`, 0, 0, "", "", "16 true true false"},
		{"a cache for half an hour", Chat, `{"model":"m","messages":[],"prompt_cache_options":{"ttl":"30m"}}`, 0, 0, "", "", "1 true false false"},
		{"another model", Messages, `{"model":"m","messages":[],"fallbacks":[{"model":"dear"}]}`, 0, 0, "", "fallbacks /fallbacks", ""},
		{"another program", Responses, `{"model":"m","input":"a","access_programs":{"cyber":{}}}`, 0, 0, "", "access_programs /access_programs", ""},
		{"more agents", Responses, `{"model":"m","input":"a","multi_agent":{"enabled":true}}`, 0, 0, "", "multi_agent /multi_agent", ""},
		{"a mode", Responses, `{"model":"m","input":"a","reasoning":{"effort":"low","mode":"pro"}}`, 0, 0, "", "reasoning mode /reasoning/mode", ""},
		{"the usual mode", Responses, `{"model":"m","input":"a","reasoning":{"effort":"low","mode":"standard"}}`, 0, 0, "", "", ""},
		{"tiers", Responses, `{"model":"m","input":"a","service_tier":"ultrafast"}`, 0, 0, "", "service_tier /service_tier", ""},
		{"a summary", Messages, `{"model":"m","messages":[],"context_management":{"edits":[{"type":"clear_tool_uses_20250919"},{"type":"compact_20260112"}]}}`, 0, 0, "", "context_management /context_management", ""},
		{"only a summary", Messages, `{"model":"m","messages":[],"compaction":{}}`, 0, 0, "", "compaction /compaction", ""},
		{"a summary by the other provider", Responses, `{"model":"m","input":"a","context_management":[{"type":"compaction","compact_threshold":1000}]}`, 0, 0, "", "context_management /context_management", ""},
		{"no summary", Messages, `{"model":"m","messages":[],"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}}`, 0, 0, "", "", ""},
		{"a thread", Messages, `{"model":"m","messages":[],"thread":{"type":"continue","previous_message_id":"msg_1"}}`, 0, 0, "a thread", "", ""},
		{"a new thread", Messages, `{"model":"m","messages":[],"thread":{"type":"create"}}`, 0, 0, "", "", ""},
		{"tools later on", Messages, `{"model":"m","messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20260318","name":"web_search"}}},{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"mine","input_schema":{}}}}]}]}`, 0, 0, "", "web_search_20260318 ", ""},
		{"tools later on, of the other provider", Responses, `{"model":"m","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}]}`, 0, 0, "", "web_search ", ""},
		{"tools in a space of names", Responses, `{"model":"m","input":"a","tools":[{"type":"namespace","name":"crm","tools":[{"type":"function","name":"f"},{"type":"mcp"}]},{"type":"tool_search","execution":"client"},{"type":"tool_search"}]}`, 0, 0, "", "mcp /tools/0/tools/1, tool_search /tools/2", ""},
		{"sealed thoughts", Responses, `{"model":"m","input":[{"type":"reasoning","encrypted_content":"` + picture + `"}]}`, int64(len(picture)) * 3 / 4, int64(len(picture)), "", "", ""},
		{"arguments that look like a part", Messages, `{"model":"claude-opus-4-5","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"type":"image","role":"user","more":"` + text + `"}}]}]}`, n, n + 250, "", "", ""},
		{"an argument named like a part's", Messages, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"type":"` + text + `"}}]}]}`, n, n + 250, "", "", ""},
		{"an argument named like a seal", Messages, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"signature":"` + strings.Repeat("1+/", 1000) + `"}}]}]}`, 3000, 3400, "", "", ""},
		{"arguments that are an object", Chat, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{"type":"` + text + `"}}}]}]}`, n, n + 250, "", "", ""},
		{"a long role", Chat, `{"model":"m","messages":[{"role":"` + text + `","content":""}]}`, n, n + 250, "", "", ""},
		{"words beside a picture", Messages, `{"model":"claude-opus-4-5","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"` + picture + `"},"title":"` + text + `"}]}]}`, n + 4784, n + 5300, "", "", ""},
		{"a conversation in a field of another format", Chat, `{"model":"m","messages":[],"input":{"type":"` + text + `"}}`, n, n + 300, "", "", ""},
		{"an unknown field like a part", Chat, `{"model":"m","messages":[],"documents":[{"type":"image","body":"` + text + `"}]}`, 50000, 51000, "", "", ""},
		{"an unknown field of short names", Chat, `{"model":"m","messages":[],"x":[` + strings.Repeat(`{"content":1,"text":1,"name":1,"input":1,"output":1,"source":1},`, 99) + `0]}`, 99 * 24, 99 * 60, "", "x /x", ""},
		{"sound that was said", Chat, `{"model":"m","messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, 0, 0, "sound", "audio ", ""},
		{"no sound that was said", Chat, `{"model":"m","messages":[{"role":"assistant","audio":null,"content":"x"}]}`, 1, 200, "", "", ""},
		{"a thought that is named", Responses, `{"model":"gpt-6-sol","input":[{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"a"}]}]}`, 0, 0, "kept", "", ""},
		{"a thought with no seal", Responses, `{"model":"m","input":[{"type":"reasoning","id":"rs_1","encrypted_content":null,"content":[]}]}`, 0, 0, "kept", "", ""},
		{"a thought of another server", Responses, `{"model":"gpt-oss-120b","input":[{"type":"reasoning","id":"rs_1","content":[{"type":"reasoning_text","text":"` + text + `"}]}]}`, n, n + 250, "", "", ""},
		{"a thought without a name", Responses, `{"model":"gpt-6-sol","input":[{"type":"reasoning","summary":[]}]}`, 1, 250, "", "", ""},
		{"what the provider found", Responses, `{"model":"m","input":[{"type":"file_search_call","id":"fs_1","queries":["a"],"results":null}]}`, 0, 0, "kept", "", ""},
		{"a picture that was made", Responses, `{"model":"gpt-4o","input":[{"type":"image_generation_call","id":"ig_1"}]}`, 1445, 1800, "", "", ""},
		{"a picture that was made and is there", Responses, `{"model":"gpt-4o","input":[{"type":"image_generation_call","id":"ig_1","result":"` + picture + `"}]}`, 1445, 1800, "", "", ""},
		{"a picture for a small model that writes programs", Responses, `{"model":"gpt-5.1-codex-mini","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`, 2488, 4500, "", "", ""},
		{"a file in the cache for an hour", Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"},"cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`, 0, 0, "file", "", "1 true true false"},
		{"a document in the cache", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"AA"},"cache_control":{"type":"ephemeral"}}]}]}`, 0, 0, "document", "", "1 true false false"},
		{"a picture in the cache for an hour", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AA"},"cache_control":{"ttl":3600}}]}]}`, 0, 0, "", "", "1 true true false"},
		{"five minutes", Messages, `{"model":"m","messages":[],"cache_control":{"ttl":"5m"}}`, 0, 0, "", "", "1 true false false"},
		{"a text to cite", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"document","citations":{"enabled":true},"source":{"type":"text","data":"` + strings.Repeat("a. ", 500) + `"}}]}]}`, 6000, 8000, "", "", ""},
		{"a text not to cite", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"document","citations":{"enabled":false},"source":{"type":"text","data":"` + strings.Repeat("a. ", 500) + `"}}]}]}`, 1000, 3000, "", "", ""},
		{"tools that are named", Messages, `{"model":"m","tools":[{"name":"f","description":"` + text + `"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[` + strings.Repeat(`{"type":"tool_reference","tool_name":"f"},`, 9) + `{"type":"tool_reference","tool_name":"f"}]}]}]}`, 11*n + 1000, 12*n + 2500, "", "", ""},
		{"a tool with a parameter named type", Responses, `{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"function","name":"f","parameters":{"properties":{"type":{"description":"` + text + `"}}}}]}]}`, n + 1000, n + 1400, "", "", ""},
		{"the same of the other provider", Messages, `{"model":"m","messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"f","input_schema":{"properties":{"role":{"description":"` + text + `"}}}}}}]}]}`, n + 1000, n + 1400, "", "", ""},
		{"tools of the provider's design", Messages, `{"model":"claude-sonnet-4-5","messages":[],"tools":[{"type":"computer_20250124","name":"computer"},{"type":"text_editor_20250728","name":"e"},{"type":"bash_20250124","name":"bash"}]}`, 2526, 8000, "", "", ""},
		{"no tools", Messages, `{"model":"m","messages":[],"tools":[]}`, 1, 300, "", "", ""},
		{"a tool without a type", Chat, `{"model":"m","messages":[],"tools":[{"google_search":{}},{"name":"mine"},"web_search"]}`, 0, 0, "", "a tool without a type /tools/0, a tool without a type /tools/2", ""},
		{"answers at once", Responses, `{"model":"m","input":"a","n":2}`, 0, 0, "", "n /n", ""},
		{"one answer at once", Responses, `{"model":"m","input":"a","n":1,"best_of":1}`, 0, 0, "", "", ""},
		{"the best of many", Chat, `{"model":"m","messages":[],"n":1,"best_of":9}`, 0, 0, "", "best_of /best_of", ""},
		{"an answer for later", Chat, `{"model":"m","messages":[],"deferred":true}`, 0, 0, "", "deferred /deferred", ""},
		{"an answer for now", Chat, `{"model":"m","messages":[],"deferred":false,"enable_search":false}`, 0, 0, "", "", ""},
		{"searches", Chat, `{"model":"m","messages":[],"search_parameters":{"mode":"auto"},"enable_search":true,"preset":"p"}`, 0, 0, "", "search_parameters /search_parameters, enable_search /enable_search, preset /preset", ""},
		{"a cache that is named", Chat, `{"model":"m","messages":[],"extra_body":{"google":{"cached_content":"c"}}}`, 0, 0, "cached content", "", ""},
		{"a budget without an end", Messages, `{"model":"m","messages":[],"thinking":{"type":"enabled","budget_tokens":9223372036854775807}}`, 0, 0, "", "", "1 false false true"},
		{"embeddings", Embeddings, `{"model":"m","input":["` + text + `","` + text + `"]}`, 2 * n, 2*n + 200, "", "", "0 true false false"},
		{"embeddings of tokens", Embeddings, `{"model":"m","input":[[1,2,3],[4]]}`, 4, 200, "", "", ""},
		{"embeddings of something", Embeddings, `{"model":"m","input":[{"image":"a"}]}`, 0, 0, "neither", "", ""},
	} {
		b := parse(t, c.face, c.body).Bound()
		if c.to > 0 && (b.Input < c.from || b.Input > c.to) {
			t.Errorf("%s: %d tokens, want %d to %d", c.name, b.Input, c.from, c.to)
		}
		if b.Known != (c.why == "") || !strings.Contains(b.Why, c.why) {
			t.Errorf("%s: known %v, %q, want %q", c.name, b.Known, b.Why, c.why)
		}
		if got := extras(b); got != c.extras {
			t.Errorf("%s: extras %q, want %q", c.name, got, c.extras)
		}
		if got := fmt.Sprint(b.Least, b.Cached, b.Hour, b.Hidden); c.more != "" && got != c.more {
			t.Errorf("%s: %s, want %s", c.name, got, c.more)
		}
	}
}

// What OpenAI counts for a plain request is known exactly, and the bound is
// near it.
func TestBoundIsNear(t *testing.T) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 200)
	r := parse(t, Chat, `{"model":"gpt-4o","messages":[{"role":"user","content":"`+text+`"}]}`)
	exact := int64(tokens.CountText(text)) + 7
	loose := r.Bound().Input
	r.Count = catalog.CounterOf("openai", "gpt-4o")
	if tight := r.Bound().Input; tight < exact || tight > exact+20 || loose < tight {
		t.Errorf("bound %d, of any vocabulary %d, in truth %d", tight, loose, exact)
	}
	if catalog.CounterOf("openai@localhost", "llama3").Exact() || !catalog.CounterOf("openai@localhost", "gpt-4o-2024-08-06").Exact() || catalog.CounterOf("anthropic", "claude-3-opus").Exact() {
		t.Error("a vocabulary is taken for known")
	}
}

func TestBoundCost(t *testing.T) {
	p := model.Price{Input: 3_000_000_000, Output: 1, CacheRead: 300_000_000, CacheWrite: 3_750_000_000}
	for _, c := range []struct {
		b    Bound
		want int64
	}{
		{Bound{Input: 1000}, 3_000_000},
		{Bound{Input: 1000, Cached: true}, 3_750_000},
		{Bound{Input: 1000, Cached: true, Hour: true}, 6_000_000},
	} {
		if got := c.b.Cost(p); got != c.want {
			t.Errorf("%+v costs %d, want %d", c.b, got, c.want)
		}
	}
}

func TestCallsAndResults(t *testing.T) {
	for _, c := range []struct {
		name           string
		face           Format
		body           string
		calls, results string // of the last turn
	}{
		{"chat", Chat, `{"model":"m","messages":[{"role":"user","content":"q"},
			{"role":"assistant","tool_calls":[{"id":"0","type":"function","function":{"name":"old","arguments":"{}"}}]},{"role":"tool","tool_call_id":"0","content":"x"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"custom","custom":{"name":"g","input":"ls"}}]},
			{"role":"tool","tool_call_id":"a","content":"one"},{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"t"},{"type":"text","text":"wo"}]}]}`,
			`a f {"x": 1};b g ls`, "a one;b two"},
		{"functions of old", Chat, `{"model":"m","messages":[{"role":"assistant","function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"r"}]}`,
			"function_call:f f {}", "function_call:f r"},
		{"nothing yet", Chat, `{"model":"m","messages":[{"role":"user","content":"q"}]}`, "", ""},
		{"a later question", Chat, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"x"},{"role":"assistant","content":"so"},{"role":"user","content":"q"}]}`, "", ""},
		{"a beginning of the answer", Chat, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"x"},{"role":"assistant","content":"so"}]}`, "", ""},
		{"messages", Messages, `{"model":"m","system":"s","messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"I"},{"type":"tool_use","id":"a","name":"f","input":{"x": 1}},{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":"no"},{"type":"tool_result","tool_use_id":"b"},{"type":"text","text":"go on"}]}]}`,
			`a f {"x": 1};s web_search {} hosted`, "a no failed;b "},
		{"responses", Responses, `{"model":"m","instructions":"i","input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"0","name":"old","arguments":"{}"},{"type":"function_call_output","call_id":"0","output":"x"},{"role":"user","content":"q2"},
			{"type":"reasoning","id":"r"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"one"},{"type":"custom_tool_call","call_id":"b","name":"g","input":"ls"},{"type":"custom_tool_call_output","call_id":"b","output":[{"type":"input_text","text":"two"}]},
			{"type":"local_shell_call","call_id":"c","action":{"type":"exec"}},{"type":"local_shell_call_output","call_id":"c","output":"three"},{"type":"web_search_call","id":"w","action":{}}]}`,
			`a f {};b g ls;c local_shell {"type":"exec"};w web_search {} hosted`, "a one;b two;c three"},
		{"a question behind the results", Responses, `{"model":"m","input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"one"},{"role":"user","content":"and?"}]}`,
			"a f {}", "a one"},
		{"the turn before", Responses, `{"model":"m","input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"one"},{"role":"user","content":"q"},{"type":"apply_patch_call","call_id":"b","operation":{"type":"delete_file"}},{"type":"apply_patch_call_output","call_id":"b","output":"two"}]}`,
			`b apply_patch {"type":"delete_file"}`, "b two"},
		{"only results", Responses, `{"model":"m","previous_response_id":"r","input":[{"type":"function_call_output","call_id":"a","output":"one"}]}`, "", "a one"},
		{"embeddings", Embeddings, `{"model":"m","input":"a"}`, "", ""},
	} {
		r := parse(t, c.face, c.body)
		var calls, results []string
		for _, x := range r.Calls() {
			s := x.ID + " " + x.Name + " " + x.Args
			if x.Hosted {
				s += " hosted"
			}
			if !x.Whole {
				s += " in part"
			}
			calls = append(calls, s)
		}
		for _, x := range r.Results() {
			s := x.ID + " " + x.Text
			if x.Failed {
				s += " failed"
			}
			results = append(results, s)
		}
		if got := strings.Join(calls, ";"); got != c.calls {
			t.Errorf("%s: calls %s, want %s", c.name, got, c.calls)
		}
		if got := strings.Join(results, ";"); got != c.results {
			t.Errorf("%s: results %s, want %s", c.name, got, c.results)
		}
	}
}

// No refusal that waiting does not mend has a status after which the libraries
// try again.
func TestStatus(t *testing.T) {
	mend := map[abi.Code]bool{abi.ModelRateLimit: true, abi.ModelOverloaded: true, abi.ModelNetwork: true, abi.ModelMalformed: true,
		abi.StorageFull: true, abi.StorageBroken: true, abi.DaemonGone: true, abi.DaemonBusy: true, abi.TooManyRequests: true, abi.Internal: true}
	for _, c := range abi.Codes {
		s := Status(c.Code)
		again := s == 408 || s == 409 || s == 429 || s >= 500
		if again != mend[c.Code] || s < 400 {
			t.Errorf("%s is %d", c.Code, s)
		}
	}
	for _, f := range []Format{Chat, Responses, Embeddings, Messages} {
		body := string(ErrorBody(f, 402, abi.LimitMoney, "no room", "ask for more"))
		for _, want := range []string{`"error":{"type":"`, `LIMIT_MONEY: no room. ask for more"`, `"code":"LIMIT_MONEY"`, `"hint":"ask for more"`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s has no %s", f, body, want)
			}
		}
		if strings.HasPrefix(body, `{"type":"error"`) != (f == Messages) {
			t.Errorf("%s: %s", f, body)
		}
	}
}

// TestBoundOutput multiplies the output by the answers asked for at once.
//
// Mutants that die here: a maximum of one choice taken for that of all, a
// product that runs over.
func TestBoundOutput(t *testing.T) {
	for body, want := range map[string]int64{`"n":5,"max_tokens":10`: 50, `"max_tokens":10`: 10, `"n":5`: 0, `"n":2,"max_tokens":10,"max_completion_tokens":7`: 14,
		`"n":1024,"max_tokens":9223372036854775807`: 1 << 50} {
		r, err := Parse(Chat, []byte(`{"model":"m","messages":[],`+body+`}`))
		if err != nil {
			t.Fatal(err)
		}
		if b := r.Bound(); b.Output != want {
			t.Errorf("%s: %d, want %d", body, b.Output, want)
		}
	}
}

// TestElsewhere says of which requests the provider fetches a part.
//
// Mutants that die here: a picture that is in the request taken for one at an
// address, an address taken for a picture, the name of a source for its address.
func TestElsewhere(t *testing.T) {
	for _, c := range []struct {
		face Format
		part string
		want bool
	}{
		{Chat, `{"type":"image_url","image_url":{"url":"https://a.example/p.png"}}`, true},
		{Chat, `{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}`, false},
		{Chat, `{"type":"video_url","video_url":{"url":"https://a.example/v"}}`, true},
		{Responses, `{"type":"input_image","image_url":"https://a.example/p.png"}`, true},
		{Responses, `{"type":"input_image","image_url":"data:image/png;base64,AA"}`, false},
		{Responses, `{"type":"input_image","file_id":"f"}`, false},
		{Responses, `{"type":"input_file","file_url":"https://a.example/f.pdf"}`, true},
		{Messages, `{"type":"image","source":{"type":"url","url":"https://a.example/p.png"}}`, true},
		{Messages, `{"type":"tool_result","content":[{"type":"document","source":{"type":"url","url":"https://a.example/f.pdf"}}]}`, true},
		{Messages, `{"type":"image","source":{"type":"base64","data":"AA"}}`, false},
		{Messages, `{"type":"search_result","source":"https://a.example","content":[]}`, false},
		{Messages, `{"type":"tool_use","input":{"image_url":"https://a.example/p.png"}}`, false},
	} {
		list := "messages"
		if c.face == Responses {
			list = "input"
		}
		b := parse(t, c.face, `{"model":"m","`+list+`":[{"role":"user","content":[`+c.part+`]}]}`).Bound()
		if b.Elsewhere != c.want {
			t.Errorf("%s: %v, want %v", c.part, b.Elsewhere, c.want)
		}
	}
}
