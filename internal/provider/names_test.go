// Mutants that the test here kills; each was tried:
//   - a name with a dot goes to the provider
//   - an answer's name stays as the provider wrote it
//   - calls in the conversation keep their names
//   - two tools get one name on the wire
//   - the caller's request is changed
package provider

import (
	"encoding/json"
	"fmt"
	"github.com/kern-run/kern/model"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"testing"
)

// TestToolNames: providers refuse a dot in the name of a tool, so it is sent
// without, and comes back with it.
func TestToolNames(t *testing.T) {
	plain := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	tools := []model.ToolSpec{{Name: "fs.read"}, {Name: "fs_read"}, {Name: "fs.read_2"}, {Name: "fs_read_2"}, {Name: "look"}}
	ask := func() model.Request {
		return model.Request{Tools: tools, Messages: []model.Message{
			{Role: model.User, Text: "go"},
			{Role: model.Assistant, Calls: []model.ToolCall{{ID: "a", Name: "fs.read", Args: "{}"}, {ID: "b", Name: "gone.by", Args: "{}"}}},
			{Role: model.Tool, CallID: "a", Text: "x"}, {Role: model.Tool, CallID: "b", Text: "y"},
		}}
	}
	wire := make(map[string]bool)
	for _, tool := range tools {
		var sent struct {
			Tools    []struct{ Function struct{ Name string } }
			Messages []struct {
				Calls []struct{ Function struct{ Name string } } `json:"tool_calls"`
			}
		}
		m := serve(t, "openai:gpt-5", Config{}, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &sent); err != nil {
				t.Error(err)
			}
			name := "nothing"
			for i, s := range tools {
				if s.Name == tool.Name {
					name = sent.Tools[i].Function.Name
				}
			}
			wire[name] = true
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":%q,\"arguments\":\"{}\"}}]}}]}\n\ndata: [DONE]\n\n", name)
		})
		r := ask()
		o := run(t, m, r)
		if o.Done == nil || len(o.Calls) != 1 || o.Calls[0].Name != tool.Name {
			t.Errorf("%s came back as %+v, %v", tool.Name, o.Calls, o.Err)
		}
		if !reflect.DeepEqual(r, ask()) {
			t.Error("the request of the caller was changed")
		}
		for _, s := range sent.Tools {
			if !plain.MatchString(s.Function.Name) {
				t.Errorf("the provider was sent the tool %q", s.Function.Name)
			}
		}
		calls := sent.Messages[1].Calls
		if calls[0].Function.Name != sent.Tools[0].Function.Name || calls[1].Function.Name != "gone_by" {
			t.Errorf("the conversation names %+v", calls)
		}
	}
	if len(wire) != len(tools) {
		t.Errorf("%d names on the wire for %d tools: %v", len(wire), len(tools), wire)
	}
}
