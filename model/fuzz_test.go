package model_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/provider/modeltest"
	"github.com/kern-run/kern/model"
)

func FuzzScript(f *testing.F) {
	modeltest.AddSeeds(f, func(b []byte) { f.Add(b) }, "testdata/*.yaml")
	for _, s := range []string{
		"replies: [{calls: [{tool: t, args: {a: &x [1, {b: c}], d: *x}}]}]", "repeat: true\nreplies:\n- text: |\n    a\n   \n    b\n",
		"replies: [{usage: {input: 0x1, output: 1_0}}]", "? replies\n: []", "replies: &a\n  - *a", "{replies: [{text: 'it''s'}], price: {input: .5}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := model.ParseScript("s.yaml", data)
		again, err2 := model.ParseScript("s.yaml", data)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("parsed once: %v, and again: %v", err, err2)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "s.yaml:") {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		for i := range min(len(s.Replies)+1, 4) {
			s.Latency, again.Latency = 0, 0
			r := model.Request{Index: i, MaxOutput: 10}
			o := modeltest.Run(t, t.Context(), s, r)
			if !reflect.DeepEqual(o, modeltest.Run(t, t.Context(), again, r)) {
				t.Fatal("the same bytes give two scripts")
			}
			if o.Done != nil && (o.Done.Usage.Output > 10 || o.Done.Usage.Input != int64(s.Count(r))) {
				t.Fatalf("%s", o)
			}
			for _, c := range s.ReplyTo(i).Calls {
				if strings.HasPrefix(c.Args, "{") && strings.Contains(string(data), "args: {") && !strings.ContainsAny(string(data), "'\"|>") && !json.Valid([]byte(c.Args)) {
					t.Fatalf("the mapping became %s", c.Args)
				}
			}
		}
	})
}
