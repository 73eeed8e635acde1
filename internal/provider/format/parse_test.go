package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/provider/tariff"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func parse(t testing.TB, f Format, body string) *Request {
	t.Helper()
	r, err := Parse(f, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// Each body is refused with a place and with what was expected there.
func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("[", jsontext.MaxDepth+1) + strings.Repeat("]", jsontext.MaxDepth+1)
	for _, c := range []struct {
		face        Format
		body        string
		where, want string
	}{
		{Chat, ``, "", "JSON value"},
		{Chat, `[]`, "", "object"},
		{Chat, "{\"model\":\"m\xff\",\"messages\":[]}", "", "UTF-8"},
		{Chat, `{"model":"m","messages":[]} x`, "", "nothing after"},
		{Chat, `{"model":"m","messages":[{"role":}]}`, "/messages/0/role", "JSON value"},
		{Chat, `{"model":"m","messages":[],"x":` + deep + `}`, "/x" + strings.Repeat("/0", jsontext.MaxDepth-1), "within each other"},
		{Chat, `{"model":"m","messages":[],"max_tokens":1,"max_tokens":9}`, "/max_tokens", "only once"},
		{Chat, `{"model":"m","messages":[],"max_tokens":1,"max\u005ftokens":9}`, "/max_tokens", "only once"},
		{Chat, `{"model":"m","messages":[{"role":"user","role":"system"}]}`, "/messages/0/role", "only once"},
		{Chat, `{"model":"m","messages":[],"Max_Tokens":9}`, "/Max_Tokens", `"max_tokens"`},
		{Chat, `{"model":"m","meſſages":[],"messages":[]}`, "/meſſages", `"messages"`},
		{Chat, `{"model":"m","messages":[],"Mcp_Servers":[]}`, "/Mcp_Servers", `"mcp_servers"`},
		{Messages, `{"model":"m","messages":[],"Search_Parameters":{}}`, "/Search_Parameters", `"search_parameters"`},
		{Chat, `{"model":"m","messages":[],"max_tokens":9,"max_tokens\u0000":900}`, "/max_tokens\x00", "less of it"},
		{Chat, `{"model":"m","messages":[],"model\ud800":"dear"}`, "/model\ufffd", "less of it"},
		{Chat, "\ufeff" + `{"model":"m","messages":[]}`, "", "JSON value"},
		{Chat, `{"model":"m","messages":[],"max_tokens":true}`, "/max_tokens", "whole number"},
		{Chat, `{"model":"m","messages":[],"max_tokens":1.5}`, "/max_tokens", "whole number"},
		{Chat, `{"model":"m","messages":[],"max_tokens":18446744073709551717}`, "/max_tokens", "whole number"},
		{Chat, `{"model":"m","messages":[],"n":"2"}`, "/n", "whole number"},
		{Chat, `{"model":"m","messages":[],"n":1025}`, "/n", "whole number"},
		{Chat, `{"model":"m","messages":[` + strings.Repeat("0,", maxElements) + `0]}`, "/messages", "longer than"},
		{Responses, `{"model":"m","functions":[` + strings.Repeat("0,", maxElements) + `0]}`, "/functions", "longer than"},
		{Messages, `{"model":"m","messages":[],"system":[` + strings.Repeat("0,", maxElements) + `0]}`, "/system", "longer than"},
		{Chat, `{"model":"m","messages":[],"x":{` + members(jsontext.MaxKeys+1) + `}}`, "/x/" + fmt.Sprint(jsontext.MaxKeys), "members of one object"},
		{Chat, `{"messages":[]}`, "/model", "name of a model"},
		{Chat, `{"model":7,"messages":[]}`, "/model", "name of a model"},
		{Chat, `{"model":"m","messages":[],"stream":"yes"}`, "/stream", "true or false"},
		{Chat, `{"model":"m","messages":[],"n":0}`, "/n", "whole number"},
		{Chat, `{"model":"m","messages":[],"n":1.5}`, "/n", "whole number"},
		{Chat, `{"model":"m","messages":[],"max_completion_tokens":"9"}`, "/max_completion_tokens", "whole number"},
		{Chat, `{"model":"m","messages":[],"tools":{}}`, "/tools", "list of tools"},
		{Chat, `{"model":"m","messages":"hello"}`, "/messages", "list of messages"},
		{Chat, `{"model":"m"}`, "/messages", "to read"},
		{Responses, `{"model":"m","input":"x","background":true}`, "/background", "outlives"},
		{Responses, `{"model":"m","input":4}`, "/input", "list"},
		{Embeddings, `{"model":"m"}`, "/input", "to read"},
		{Embeddings, `{"model":"m","input":"x","stream":true}`, "/stream", "not streamed"},
		{Messages, `{"model":"m","messages":[],"system":7}`, "/system", "text or a list"},
		{"soap", `{}`, "", "expected one of"},
	} {
		_, err := Parse(c.face, []byte(c.body))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %.80s: %v, want %q", c.face, c.body, err, c.want)
			continue
		}
		var e *abi.Error
		if errors.As(err, &e) && strings.Contains(e.Message, "cannot be used") && strings.Contains(c.body, strings.Trim(c.where, "/")+`":`) && e.Got == "" {
			t.Errorf("%s: it does not say what came", c.body)
		}
		if errors.As(err, &e) && (e.Code != abi.InvalidArguments || e.Where != c.where) {
			t.Errorf("%s %.80s: %s at %q, want %q", c.face, c.body, e.Code, e.Where, c.where)
		}
	}
}

// members are as many of an object.
func members(n int) string {
	var b strings.Builder
	for i := range n - 1 {
		fmt.Fprintf(&b, `"%d":0,`, i)
	}
	return b.String() + fmt.Sprintf(`"%d":0`, n-1)
}

// As many as are allowed pass.
func TestParseMany(t *testing.T) {
	r := parse(t, Chat, `{"model":"m","messages":[`+strings.Repeat("0,", maxElements-1)+`0],"x":{`+members(jsontext.MaxKeys)+`}}`)
	if len(r.Messages) != maxElements {
		t.Errorf("%d elements", len(r.Messages))
	}
	sounds := parse(t, Chat, `{"model":"m","messages":[`+strings.Repeat(`{"type":"audio"},`, 999)+`0]}`)
	if n := len(sounds.Bound().Extras); n != tariff.MaxExtras {
		t.Errorf("%d are named", n)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		face Format
		body string
		want string
	}{
		{Chat, `{"model":"gpt-5","messages":[{"role":"user","content":"a"}]}`, `gpt-5 false 0 1 [] 1 false`},
		{Chat, ` {"model":"m","stream":true,"n":3,"max_tokens":90,"max_completion_tokens":80,"stream_options":{"include_usage":true},` +
			`"tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"c"}}],"functions":[{"name":"old"}],"messages":[]} `,
			`m true 80 3 [f c old] 0 true`},
		{Chat, `{"model":"m","max_tokens":-1,"messages":[],"n":null,"stream":null,"tools":null}`, `m false 0 1 [] 0 false`},
		{Chat, `{"model":"m","max_tokens":1e3,"messages":[],"n_predict":2000}`, `m false 1000 1 [] 0 false`},
		{Responses, `{"model":"m","instructions":"be","input":"hello","max_output_tokens":7,"tools":[{"type":"web_search"},{"type":"function","name":"f"}]}`, `m false 7 1 [web_search f] 2 false`},
		{Responses, `{"model":"m","input":[{"role":"user","content":"a"},{"type":"function_call_output"}],"store":true,"background":false}`, `m false 0 1 [] 2 false`},
		{Responses, `{"model":"m","prompt":{"id":"p"}}`, `m false 0 1 [] 0 false`},
		{Embeddings, `{"model":"m","input":["a","b"]}`, `m false 0 0 [] 2 false`},
		{Messages, `{"model":"m","system":[{"type":"text","text":"s"}],"max_tokens":5,"messages":[{"role":"user","content":"a"}],"tools":[{"name":"t"},{"type":"bash_20250124","name":"bash"}]}`, `m false 5 1 [t bash] 2 false`},
	} {
		r := parse(t, c.face, c.body)
		if got := fmt.Sprint(r.Model, " ", r.Stream, " ", r.MaxOutput, " ", r.Choices, " ", r.Tools, " ", len(r.Messages), " ", r.Usage); got != c.want {
			t.Errorf("%s: %s, want %s", c.body, got, c.want)
		}
	}
}

// Bytes changes what it says and nothing else; the texts show where.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		face       Format
		max        int64
		body, want string
	}{
		{Chat, 0, `{"model":"gpt-5", "messages":[] , "odd":[1 ,2]}`, `=`},
		{Chat, 50, `{"model":"gpt-5","max_completion_tokens":50,"messages":[]}`, `=`},
		{Chat, 51, `{"model":"gpt-5","max_completion_tokens":50,"messages":[]}`, `=`},
		{Chat, 49, `{"model":"gpt-5","max_completion_tokens" : 50 ,"messages":[]}`, `{"model":"gpt-5","max_completion_tokens" : 49 ,"messages":[]}`},
		{Chat, 9, `{"model":"m","messages":[],"max_tokens":50,"max_completion_tokens":5}`, `{"model":"m","messages":[],"max_tokens":5,"max_completion_tokens":5}`},
		{Chat, 9, `{"model":"m","messages":[],"max_tokens":-1}`, `{"model":"m","messages":[],"max_tokens":9}`},
		{Chat, 9, `{"model":"gpt-4o","messages":[] }`, `{"model":"gpt-4o","messages":[],"max_completion_tokens":9 }`},
		{Chat, 9, `{"model":"llama3","messages":[]}`, `{"model":"llama3","messages":[],"max_tokens":9}`},
		{Chat, 9, `{"model":"gpt-6.2-sol","messages":[]}`, `{"model":"gpt-6.2-sol","messages":[],"max_completion_tokens":9}`},
		{Chat, 9, `{"model":"gpt-oss-120b","messages":[]}`, `{"model":"gpt-oss-120b","messages":[],"max_tokens":9}`},
		{Chat, 9, `{"model":"gpt-5","max_completion_tokens":null,"messages":[]}`, `{"model":"gpt-5","max_completion_tokens":9,"messages":[]}`},
		{Chat, 9, `{"model":"gpt-5","n":2,"messages":[]}`, `{"model":"gpt-5","n":2,"messages":[],"max_completion_tokens":4}`},
		{Chat, 9, `{"model":"deepseek-chat","max_completion_tokens":5,"messages":[]}`, `{"model":"deepseek-chat","max_completion_tokens":5,"messages":[],"max_tokens":5}`},
		{Chat, 5, `{"model":"deepseek-chat","max_completion_tokens":50,"messages":[]}`, `{"model":"deepseek-chat","max_completion_tokens":5,"messages":[],"max_tokens":5}`},
		{Chat, 5, `{"model":"deepseek-chat","max_completion_tokens":5,"max_tokens":5,"messages":[]}`, `=`},
		{Chat, 5, `{"model":"gpt-5","n_predict":5,"messages":[]}`, `{"model":"gpt-5","n_predict":5,"messages":[],"max_completion_tokens":5}`},
		{Chat, 5, `{"model":"gpt-5","max_tokens":5,"messages":[]}`, `=`},
		{Chat, 9, `{"model":"m","n":3,"messages":[],"max_tokens":3}`, `=`},
		{Responses, 5, `{"model":"m","max_tokens":5,"input":"x"}`, `{"model":"m","max_tokens":5,"input":"x","max_output_tokens":5}`},
		{Chat, 0, `{"model":"m","stream":true,"messages":[]}`, `{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}`},
		{Chat, 0, `{"model":"m","stream":true,"stream_options":null,"messages":[]}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`},
		{Chat, 0, `{"model":"m","stream":true,"stream_options":{},"messages":[]}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`},
		{Chat, 0, `{"model":"m","stream":true,"stream_options":{"x":1},"messages":[]}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true,"x":1},"messages":[]}`},
		{Chat, 0, `{"model":"m","stream":true,"stream_options":{"include_usage": false},"messages":[]}`, `{"model":"m","stream":true,"stream_options":{"include_usage": true},"messages":[]}`},
		{Chat, 3, `{"model":"m","stream":true,"messages":[]}`, `{"model":"m","stream":true,"messages":[],"max_tokens":3,"stream_options":{"include_usage":true}}`},
		{Responses, 30, `{"model":"m","input":"a","stream":true}`, `{"model":"m","input":"a","stream":true,"max_output_tokens":30}`},
		{Messages, 30, `{"max_tokens":64,"model":"m","messages":[]}`, `{"max_tokens":30,"model":"m","messages":[]}`},
		{Messages, 30, `{"max_tokens":0,"model":"m","messages":[]}`, `{"max_tokens":1,"model":"m","messages":[]}`},
		{Messages, 0, `{"max_tokens":0,"model":"m","messages":[]}`, `=`},
		{Messages, 30, `{"max_tokens":-1,"model":"m","messages":[]}`, `{"max_tokens":30,"model":"m","messages":[]}`},
		{Messages, 30, `{"model":"m","messages":[]}`, `{"model":"m","messages":[],"max_tokens":30}`},
		{Embeddings, 30, `{"model":"m","input":"a"}`, `=`},
	} {
		want := strings.Replace(c.want, "=", c.body, 1)
		if got := string(parse(t, c.face, c.body).Bytes(c.max)); got != want {
			t.Errorf("%d: got  %s\nwant %s", c.max, got, want)
		}
	}
	r := parse(t, Chat, `{"model":"here/gpt-5" ,"messages":[],"max_tokens":9}`)
	if got := string(r.WithModel(`gpt"5`).Bytes(3)); got != `{"model":"gpt\"5" ,"messages":[],"max_tokens":3}` {
		t.Error(got)
	}
	if got := string(r.Bytes(0)); !strings.Contains(got, "here/gpt-5") {
		t.Errorf("the first request is another now: %s", got)
	}
	r = parse(t, Messages, `{"max_tokens":0,"model":"m","messages":[]}`)
	r.Mutes = true
	if got := string(r.Bytes(30)); got != `{"max_tokens":0,"model":"m","messages":[]}` || r.Bound().Output != 1 {
		t.Errorf("%s, and at most %d tokens", got, r.Bound().Output)
	}
	r = parse(t, Chat, `{"model":"gpt-5","messages":[]}`)
	r.MaxField = "max_tokens"
	if got := string(r.Bytes(1)); got != `{"model":"gpt-5","messages":[],"max_tokens":1}` {
		t.Error(got)
	}
}

func TestSplit(t *testing.T) {
	long := strings.Repeat("word ", 80)
	for _, c := range []struct {
		face Format
		body string
		rest string
		n    int
	}{
		{Chat, `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}],"x":1}`, `{"model":"m","messages":2,"x":1}`, 2},
		{Chat, `{"tools":[{"type":"function"}],"messages":[1],"model":"m"}`, `{"tools":1,"messages":1,"model":"m"}`, 2},
		{Chat, `{"model":"m","messages":[]}`, `{"model":"m","messages":0}`, 0},
		{Responses, `{"model":"m","instructions":"short","input":"` + long + `"}`, `{"model":"m","instructions":"short","input":-1}`, 1},
		{Messages, `{"model":"m","system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"}]}`, `{"model":"m","system":1,"messages":1}`, 2},
		{Embeddings, `{"model":"m","input":[1,2,3]}`, `{"model":"m","input":[1,2,3]}`, 0},
		{Embeddings, `{"model":"m","input":["a","b"]}`, `{"model":"m","input":2}`, 2},
	} {
		rest, msgs := parse(t, c.face, c.body).Split()
		if string(rest) != c.rest || len(msgs) != c.n {
			t.Errorf("%s: rest %s and %d, want %s and %d", c.body, rest, len(msgs), c.rest, c.n)
		}
		back, err := Join(c.face, rest, msgs)
		if err != nil || string(back) != c.body {
			t.Errorf("%s: joined %s, %v", c.body, back, err)
		}
	}
	for _, bad := range []struct {
		rest string
		msgs []json.RawMessage
	}{
		{`{"messages":3}`, []json.RawMessage{[]byte(`1`)}},
		{`{"messages":-2}`, nil},
		{`{"messages":-2}`, []json.RawMessage{[]byte(`1`), []byte(`2`)}},
		{`{"messages":0}`, []json.RawMessage{[]byte(`1`)}},
		{`{"messages":`, nil},
	} {
		if _, err := Join(Chat, []byte(bad.rest), bad.msgs); err == nil {
			t.Errorf("%s joined with %d elements", bad.rest, len(bad.msgs))
		}
	}
}
