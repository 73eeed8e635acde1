package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/gateway"
	"github.com/kern-run/kern/internal/mockprovider"
)

// A talk is an agent in one of the formats, as small as can be: it sends what
// it has, and keeps the answer.
type talk struct {
	r      *rig
	key    string
	face   string // chat, messages, responses
	stream bool
	msgs   []string
	calls  []struct{ id, name string } // of the last answer
	last   got
}

// say adds what the user says, and asks.
func (a *talk) say(text string) *talk {
	a.msgs = append(a.msgs, fmt.Sprintf(`{"role":"user","content":%q}`, text))
	return a.ask()
}

// result adds the results of the last calls, and asks.
func (a *talk) result(failed bool, texts ...string) *talk {
	var blocks []string
	for i, text := range texts {
		switch id := a.calls[i].id; a.face {
		case "chat":
			a.msgs = append(a.msgs, fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%q}`, id, text))
		case "responses":
			a.msgs = append(a.msgs, fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%q}`, id, text))
		default:
			blocks = append(blocks, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":%q,"is_error":%v}`, id, text, failed))
		}
	}
	if blocks != nil {
		a.msgs = append(a.msgs, `{"role":"user","content":[`+strings.Join(blocks, ",")+`]}`)
	}
	return a.ask()
}

func (a *talk) ask() *talk {
	stream := ""
	if a.stream {
		stream = `,"stream":true`
	}
	msgs := "[" + strings.Join(a.msgs, ",") + "]"
	path, body := "/v1/chat/completions", `{"model":"m","messages":`+msgs+`,"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`
	switch a.face {
	case "responses":
		path, body = "/v1/responses", `{"model":"m","input":`+msgs+`,"tools":[{"type":"function","name":"look","parameters":{"type":"object"}}]`
	case "messages":
		path, body = "/v1/messages", `{"model":"m","max_tokens":500,"messages":`+msgs+`,"tools":[{"name":"look","input_schema":{"type":"object"}}]`
	}
	a.last = a.r.post(a.key, path, body+stream+"}")
	a.calls = nil
	if a.last.status == http.StatusOK && a.last.code() == "" {
		a.keep()
	}
	return a
}

// keep reads the answer: of a stream only whether and which calls are there.
func (a *talk) keep() {
	type call struct {
		ID     string
		CallID string `json:"call_id"`
		Type   string
		Name   string
		Index  int
		Input  json.RawMessage
		Func   struct{ Name, Arguments string } `json:"function"`
		Args   string                           `json:"arguments"`
	}
	var events []string
	if a.stream {
		for line := range strings.Lines(a.last.body) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && data != "[DONE]" {
				events = append(events, data)
			}
		}
	} else {
		events = []string{a.last.body}
	}
	var calls []call
	for _, e := range events {
		var v struct {
			Choices []struct {
				Delta, Message struct {
					Calls []call `json:"tool_calls"`
				}
			}
			Content []call
			Output  []call
			Block   *call `json:"content_block"`
			Item    *call
			Type    string
		}
		if err := json.Unmarshal([]byte(e), &v); err != nil {
			a.r.t.Fatalf("%v: %s", err, e)
		}
		for _, c := range v.Choices {
			calls = append(append(calls, c.Delta.Calls...), c.Message.Calls...)
		}
		calls = append(append(calls, v.Content...), v.Output...)
		if v.Block != nil {
			calls = append(calls, *v.Block)
		}
		if v.Item != nil && v.Type == "response.output_item.done" {
			calls = append(calls, *v.Item)
		}
	}
	var said []string
	for _, c := range calls {
		id, name := c.ID, c.Name+c.Func.Name
		if c.CallID != "" {
			id = c.CallID
		}
		if id == "" || name == "" {
			continue
		}
		a.calls = append(a.calls, struct{ id, name string }{id, name})
		switch a.face {
		case "chat":
			said = append(said, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":"{}"}}`, id, name))
		case "responses":
			a.msgs = append(a.msgs, fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":%q,"arguments":"{}"}`, id, name))
		default:
			said = append(said, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":{}}`, id, name))
		}
	}
	switch {
	case a.face == "chat" && said != nil:
		a.msgs = append(a.msgs, `{"role":"assistant","tool_calls":[`+strings.Join(said, ",")+`]}`)
	case a.face == "messages" && said != nil:
		a.msgs = append(a.msgs, `{"role":"assistant","content":[`+strings.Join(said, ",")+`]}`)
	case len(a.calls) == 0:
		a.msgs = append(a.msgs, `{"role":"assistant","content":"said"}`)
	}
}

// talks runs f for every format, streamed and not.
func talks(t *testing.T, f func(t *testing.T, face string, stream bool)) {
	for _, face := range []string{"chat", "responses", "messages"} {
		for _, stream := range []bool{false, true} {
			name := face
			if stream {
				name += " streamed"
			}
			t.Run(name, func(t *testing.T) { f(t, face, stream) })
		}
	}
}

const lookTwice = `
price: {input: 1.00, output: 2.00}
replies:
  - {text: "let me see", calls: [{tool: look, args: {at: 1}}, {tool: look, args: {at: 2}}]}
  - {text: "the end"}
`

// toolCalls are the ends of the tool calls of a process.
func (r *rig) toolCalls(pid abi.Pid) (ends []string) {
	rows := map[uint64]string{}
	for _, rec := range r.records(pid) {
		if rec.Intent != nil {
			rows[rec.Call] = rec.Intent.Row
		}
		if rec.Answer != nil && rows[rec.Call] == "tool" {
			end := string(rec.Answer.Outcome)
			if rec.Answer.Err != nil {
				end += " " + string(rec.Answer.Err.Code)
			}
			ends = append(ends, end)
		}
	}
	return ends
}

// TestLongResult keeps of a long result what names it: it stands in the
// conversation, which is kept anyway.
//
// Mutants that die here: a long result that is kept twice, a short one that is
// not kept.
func TestLongResult(t *testing.T) {
	r := newRig(t, mockprovider.Config{Script: script(t, lookTwice)}, "")
	k := r.key("")
	a := (&talk{r: r, key: k.Key, face: "chat"}).say("go")
	short, long := strings.Repeat("a", 4<<10), strings.Repeat("b", 4<<10+1)
	a.result(false, short, long)
	var kept []string
	for _, rec := range r.records(k.Pid) {
		if rec.Answer != nil && rec.Answer.Outcome == abi.OK {
			b, err := r.kernel.Bytes(rec.Answer.Value)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, string(b))
		}
	}
	all := strings.Join(kept, " ")
	if strings.Count(all, short) != 1 || strings.Contains(all, long) || !strings.Contains(all, `"bytes":4097`) || !strings.Contains(all, abi.HashOf([]byte(long)).String()) {
		t.Errorf("kept is %.300s", all)
	}
}

// TestToolCalls makes system calls of what the model asks for, and ends them
// with the results that the next request brings. Scenario 15.
func TestToolCalls(t *testing.T) {
	talks(t, func(t *testing.T, face string, stream bool) {
		r := newRig(t, mockprovider.Config{Script: script(t, lookTwice)}, "")
		k := r.key("tool_calls=2,money=1")
		a := &talk{r: r, key: k.Key, face: face, stream: stream}
		if a.say("go"); len(a.calls) != 2 {
			t.Fatalf("%d calls in %s", len(a.calls), a.last.body)
		}
		if i, err := r.kernel.Info(k.Pid); err != nil || i.Reserved[abi.ToolCalls] != 2 || i.Used[abi.ToolCalls] != 0 {
			t.Errorf("%+v", i)
		}
		if a.result(false, "result one", "result two"); len(a.calls) != 0 || !strings.Contains(a.last.body, "end") {
			t.Errorf("%s", a.last.body)
		}
		if ends := r.toolCalls(k.Pid); !slices.Equal(ends, []string{"ok", "ok"}) {
			t.Errorf("%v", ends)
		}
		i := r.info(k.Pid)
		if i.Used[abi.ToolCalls] != 2 || i.Used[abi.ModelCalls] != 2 || i.Used[abi.OutputBytes] != int64(len("result oneresult two")) {
			t.Errorf("%v", i.Used)
		}
		r.books(k.Pid)
	})
}

// TestToolLimit lets the program carry out what fits: the refused calls of an answer
// are texts in it, which the model reads with the next request, and the books are
// right. An answer of which nothing fits is withheld. Scenario 3.
//
// Mutants that die here: a call shown that was refused, one that was admitted and not
// shown, a reason that the model never reads.
func TestToolLimit(t *testing.T) {
	talks(t, func(t *testing.T, face string, stream bool) {
		r := newRig(t, mockprovider.Config{Script: script(t, lookTwice+"  - {calls: [{tool: look, args: {at: 3}}]}\n")}, "")
		k := r.key("tool_calls=1,money=1")
		a := &talk{r: r, key: k.Key, face: face, stream: stream}
		a.say("go")
		why := "[The call of the tool look was refused and did not run: LIMIT_TOOL_CALLS: "
		if len(a.calls) != 1 || !strings.Contains(a.last.body, why) || !strings.Contains(a.last.body, "see") || strings.Contains(a.last.body, `"at":2`) || strings.Contains(a.last.body, `\"at\":2`) {
			t.Fatalf("%d calls in %s", len(a.calls), a.last.body)
		}
		if stream && face == "responses" && strings.Count(a.last.body, why) < 5 || !stream && strings.Count(a.last.body, why) != 1 {
			t.Errorf("%s", a.last.body)
		}
		if a.result(false, "result one"); len(a.calls) != 0 || !strings.Contains(a.last.body, "end") {
			t.Errorf("%s", a.last.body)
		}
		if ends := r.toolCalls(k.Pid); len(ends) != 2 || !slices.Contains(ends, "ok") || !slices.Contains(ends, "refused LIMIT_TOOL_CALLS") {
			t.Errorf("%v", ends)
		}
		if i := r.info(k.Pid); i.Used[abi.ToolCalls] != 1 {
			t.Errorf("%v", i.Used)
		}
		a.say("more")
		code := a.last.code()
		if a.keep(); code != abi.LimitToolCalls || len(a.calls) > 0 || strings.Contains(a.last.body, "response.completed") || stream != (a.last.status == http.StatusOK) {
			t.Errorf("%d %s", a.last.status, a.last.body)
		}
		r.books(k.Pid)
	})
}

// Of twenty calls of an answer five fit, in any format and through a real parser of
// streams: the program gets five, and fifteen reasons.
func TestFiveOfTwenty(t *testing.T) {
	const twenty = "price: {input: 1, output: 2}\nreplies:\n  - {text: see, calls: ["
	calls := ""
	for i := range 20 {
		calls += fmt.Sprintf("{tool: look, args: {at: %d}},", i)
	}
	talks(t, func(t *testing.T, face string, stream bool) {
		r := newRig(t, mockprovider.Config{Script: script(t, twenty+strings.TrimSuffix(calls, ",")+"]}\n")}, "")
		k := r.key("tool_calls=5,money=1")
		a := &talk{r: r, key: k.Key, face: face, stream: stream}
		a.say("go")
		ids := map[string]bool{}
		for _, c := range a.calls {
			ids[c.id] = true
		}
		if len(a.calls) != 5 || len(ids) != 5 || strings.Count(a.last.body, "was refused and did not run") < 15 {
			t.Errorf("%d calls, %d reasons: %s", len(a.calls), strings.Count(a.last.body, "was refused and did not run"), a.last.body)
		}
		ends := map[string]int{}
		for _, e := range r.toolCalls(k.Pid) {
			ends[e]++
		}
		if ends["refused LIMIT_TOOL_CALLS"] != 15 {
			t.Errorf("%v", ends)
		}
	})
}

// A provider that stores an answer wants a result for each of its calls, also for those
// that the program never saw.
func TestWithheldOfAStoredAnswer(t *testing.T) {
	for _, input := range []string{`[{"type":"function_call_output","call_id":"c1","output":"one"}]`, `"go on"`, `[]`} {
		bodies := make(chan string, 2)
		r := answering(t, func(w http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			bodies <- string(b)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"resp_1","object":"response","status":"completed","output":[{"type":"function_call","id":"f1","call_id":"c1","name":"look","arguments":"{}"},
				{"type":"function_call","id":"f2","call_id":"c2","name":"look","arguments":"{}"}],"usage":{"input_tokens":1,"output_tokens":1}}`)
		})
		k := r.key("tool_calls=1")
		r.ok(k.Key, "/v1/responses", `{"model":"m","input":"go"}`)
		<-bodies
		r.post(k.Key, "/v1/responses", `{"model":"m","previous_response_id":"resp_1","input":`+input+`}`)
		if sent := <-bodies; !json.Valid([]byte(sent)) || strings.Count(sent, `"call_id":"c2"`) != 1 || !strings.Contains(sent, "refused by a limit") {
			t.Errorf("%s", sent)
		}
	}
}

// TestLoop ends a key whose agent goes in circles. Scenario 13.
func TestLoop(t *testing.T) {
	const circle = "replies:\n" +
		"  - {calls: [{tool: look, args: {at: 1}}]}\n  - {calls: [{tool: look, args: {at: 1}}]}\n" +
		"  - {calls: [{tool: look, args: {at: 1}}]}\n  - {calls: [{tool: look, args: {at: 1}}]}\n"
	talks(t, func(t *testing.T, face string, stream bool) {
		r := newRig(t, mockprovider.Config{Script: script(t, circle)}, "")
		k := r.key("")
		a := &talk{r: r, key: k.Key, face: face, stream: stream}
		a.say("go")
		for range 2 {
			if a.result(false, "the same"); len(a.calls) != 1 {
				t.Fatalf("%d %s", a.last.status, a.last.body)
			}
		}
		if a.result(false, "the same"); a.last.code() != abi.WatchdogLoop || a.last.status != http.StatusForbidden {
			t.Errorf("%d %s", a.last.status, a.last.body)
		}
		if says := fmt.Sprintf("process %d was ended because it made a loop. for details: kern show %[1]d", k.Pid); !strings.Contains(a.last.body, says) {
			t.Errorf("%s, expected %s", a.last.body, says)
		}
		eventually(t, "it has exited", func() bool { return r.info(k.Pid).Exit != nil })
		if x := r.info(k.Pid).Exit; x.Exit != abi.ExitLoop {
			t.Errorf("%+v", x)
		}
		if n := r.mock.Stats().Requests; n != 3 {
			t.Errorf("%d requests reached the provider, want 3", n)
		}
		other := r.key("")
		b := &talk{r: r, key: other.Key, face: face, stream: stream}
		b.say("go")
		for i := range 3 {
			if b.result(false, fmt.Sprint("another ", i)); len(b.calls) != 1 && i < 3 {
				t.Errorf("%d: %d %s", i, b.last.status, b.last.body)
			}
		}
	})
}

// TestWarning tells a program that wants to know of the watchdog's one warning.
func TestWarning(t *testing.T) {
	r := newRig(t, mockprovider.Config{Script: script(t, "replies:\n"+strings.Repeat("  - {calls: [{tool: look, args: {at: 1}}]}\n", 5))}, "")
	k, err := r.kernel.Gateway.Issue(t.Context(), gateway.Key{Priority: abi.DefaultPriority, Watchdog: abi.Watchdog{Profile: "smart"}})
	if err != nil {
		t.Fatal(err)
	}
	a := &talk{r: r, key: k.Key, face: "chat"}
	a.say("go").result(false, "same").result(false, "same").result(false, "same")
	if w := a.last.header.Get("X-Kern-Warning"); a.last.status != http.StatusOK || !strings.HasPrefix(w, "WATCHDOG_LOOP: ") {
		t.Errorf("%d %q", a.last.status, w)
	}
}

// TestSameAnswers ends a program whose model says the same to the same message again
// and again. It does not end one that asks the same question about many texts, nor
// one that takes many samples of one request.
func TestSameAnswers(t *testing.T) {
	talks(t, func(t *testing.T, face string, stream bool) {
		r := newRig(t, mockprovider.Config{Reply: "It is done."}, "")
		a := &talk{r: r, key: r.key("").Key, face: face, stream: stream}
		turns := 0
		for a.say("go on"); a.last.status == http.StatusOK && turns < 20; turns++ {
			a.say("go on")
		}
		if turns != 7 || !strings.Contains(a.last.body, "WATCHDOG_LOOP") {
			t.Errorf("%d turns, then %d %s", turns, a.last.status, a.last.body)
		}
		other := r.key("").Key
		for i := range 20 {
			b := &talk{r: r, key: other, face: face, stream: stream}
			b.say(fmt.Sprint("text ", i)).say("Is it done?")
			c := &talk{r: r, key: other, face: face, stream: stream}
			if c.say("a sample"); b.last.status != http.StatusOK || c.last.status != http.StatusOK {
				t.Fatalf("%d: %s, %s", i, b.last.body, c.last.body)
			}
		}
	})
}

// TestNoResult ends a call typed when the program goes on without its result,
// and when its process ends.
func TestNoResult(t *testing.T) {
	r := newRig(t, mockprovider.Config{Script: script(t, lookTwice)}, "")
	k := r.key("")
	a := &talk{r: r, key: k.Key, face: "messages"}
	a.say("go").result(false, "only one")
	if ends := r.toolCalls(k.Pid); !slices.Contains(ends, "ok") || !slices.Contains(ends, "failed TOOL_GONE") || len(ends) != 2 {
		t.Errorf("%v", ends)
	}
	b := &talk{r: r, key: k.Key, face: "chat"}
	b.say("go") // another conversation of the same key: its calls stay open
	c := &talk{r: r, key: k.Key, face: "chat"}
	c.say("quite another matter")
	if i, _ := r.kernel.Info(k.Pid); i.Reserved[abi.ToolCalls] != 4 {
		t.Errorf("%v", i.Reserved)
	}
	if err := r.kernel.Signal(t.Context(), k.Pid, abi.Kill, "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has exited", func() bool { return r.info(k.Pid).Exit != nil })
	if ends := r.toolCalls(k.Pid); len(ends) != 6 || ends[5] != "failed INTERRUPTED" {
		t.Errorf("%v", ends)
	}
}

// TestOpenCalls: programs whose last word is a tool call bring no result, and
// that costs neither room for ever nor the key its life. The newest calls stay
// open; an old one that is ended says nothing of the tool, is not a sign of
// circles, and its result may still come.
//
// Mutants that die here: no bound, one that ends the newest, one that ends a
// call as TOOL_GONE, and a watchdog that counts it.
func TestOpenCalls(t *testing.T) {
	const each, talks = 50, 22
	one := strings.Repeat(", {tool: look, args: {label: spam}}", each)[2:]
	r := newRig(t, mockprovider.Config{Script: script(t, "replies:\n  - {calls: ["+one+"]}\n  - {text: the end}\n")}, "")
	k := r.key("")
	var all []*talk
	for range talks {
		a := &talk{r: r, key: k.Key, face: "messages"}
		if a.say("which label?"); len(a.calls) != each {
			t.Fatalf("%d %s", a.last.status, a.last.body)
		}
		all = append(all, a)
	}
	open := int64(gateway.OpenMax)
	eventually(t, "the oldest have ended", func() bool { return r.info(k.Pid).Reserved[abi.ToolCalls] == open })
	ends := r.toolCalls(k.Pid)
	if len(ends) != each*talks-gateway.OpenMax || slices.ContainsFunc(ends, func(s string) bool { return s != "failed INTERRUPTED" }) {
		t.Errorf("%d ends, the first %v", len(ends), ends[:min(3, len(ends))])
	}
	for _, a := range []*talk{all[0], all[talks-1]} { // what ended long ago, and what is open
		texts := make([]string, each)
		for i := range texts {
			texts[i] = fmt.Sprint("noted as ", i)
		}
		if a.result(false, texts...); a.last.status != http.StatusOK {
			t.Errorf("%d %s", a.last.status, a.last.body)
		}
	}
	if ends := r.toolCalls(k.Pid); ends[len(ends)-1] != "ok" {
		t.Errorf("%v", ends[len(ends)-each:])
	}
}

// TestTiredTool blocks a tool that failed three times in a row. Scenario 18.
func TestTiredTool(t *testing.T) {
	var calls strings.Builder
	for i := range 5 {
		fmt.Fprintf(&calls, "  - {calls: [{tool: look, args: {at: %d}}]}\n", i)
	}
	r := newRig(t, mockprovider.Config{Script: script(t, "replies:\n"+calls.String())}, "")
	k := r.key("")
	a := &talk{r: r, key: k.Key, face: "messages"}
	a.say("go").result(true, "bad 1").result(true, "bad 2")
	if a.result(true, "bad 3"); a.last.code() != abi.ToolBlocked {
		t.Errorf("%d %s", a.last.status, a.last.body)
	}
}

// TestOutputBytes counts what tools gave when it comes in.
func TestOutputBytes(t *testing.T) {
	r := newRig(t, mockprovider.Config{Script: script(t, lookTwice)}, "")
	k := r.key("output_bytes=100")
	a := &talk{r: r, key: k.Key, face: "chat"}
	a.say("go")
	if a.result(false, strings.Repeat("x", 60), strings.Repeat("y", 60)); a.last.code() != abi.LimitOutputBytes {
		t.Errorf("%d %s", a.last.status, a.last.body)
	}
	if n := r.mock.Stats().Requests; n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestSameIDs tells calls of two conversations apart whose provider gives the
// same ids to both.
func TestSameIDs(t *testing.T) {
	r := newRig(t, mockprovider.Config{Script: script(t, lookTwice)}, "")
	k := r.key("")
	one, two := &talk{r: r, key: k.Key, face: "chat"}, &talk{r: r, key: k.Key, face: "chat"}
	one.say("go")
	two.say("go")
	two.result(false, "a", "b")
	one.result(false, "c", "d")
	if ends := r.toolCalls(k.Pid); !slices.Equal(ends, []string{"ok", "ok", "ok", "ok"}) {
		t.Errorf("%v", ends)
	}
}

// TestPulse keeps the connection of a stream alive while its tool calls wait to
// be admitted: a comment now and then, and the rest when they are. A client
// that does not wait leaves nothing behind.
//
// Mutants that die here: a pulse that is not heard, one that shows the call.
func TestPulse(t *testing.T) {
	t.Parallel()
	for _, hangUp := range []bool{false, true} {
		talks(t, func(t *testing.T, face string, stream bool) {
			if !stream {
				return
			}
			r := newRig(t, mockprovider.Config{Script: script(t, strings.Replace(lookTwice, "let me see", longWords, 1)), TPS: 100}, "")
			gateway.Pulse(r.kernel.Gateway, 5*time.Millisecond)
			k := r.key("money=1")
			body, path := `"messages":[{"role":"user","content":"go"}],"max_tokens":500}`, "/v1/chat/completions"
			switch face {
			case "responses":
				body, path = `"input":"go"}`, "/v1/responses"
			case "messages":
				path = "/v1/messages"
			}
			s := r.stream(k.Key, path, `{"model":"m","stream":true,`+body)
			if !s.until("one") {
				t.Fatal("no text")
			}
			if err := r.kernel.Signal(t.Context(), k.Pid, abi.Stop, "test"); err != nil {
				t.Fatal(err)
			}
			beats := 0
			for beats < 3 && s.lines.Scan() {
				switch line := s.lines.Text(); {
				case line == ": kern holds a tool call":
					beats++
				case strings.Contains(line, `"look"`):
					t.Fatalf("the call is seen: %s", line)
				}
			}
			if beats < 3 {
				t.Fatalf("%d beats, then the end: %v", beats, s.lines.Err())
			}
			if hangUp {
				s.stop()
			}
			eventually(t, "the answer is there, or left", func() bool {
				return r.mock.Stats().InFlight == 0 && (!hangUp || r.info(k.Pid).Used[abi.ModelCalls] == 1)
			})
			if err := r.kernel.Signal(t.Context(), k.Pid, abi.Cont, "test"); err != nil {
				t.Fatal(err)
			}
			if !hangUp && !s.until(`"look"`) {
				t.Error("the call is not seen")
			}
			eventually(t, "what is open is what is seen", func() bool {
				i, err := r.kernel.Info(k.Pid)
				want := int64(2)
				if hangUp {
					want = 0
				}
				return err == nil && i.Reserved[abi.ToolCalls] == want && i.Used[abi.ToolCalls] == 0
			})
		})
	}
}
