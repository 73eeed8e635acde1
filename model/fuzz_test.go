package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// seeds adds every file that matches as a seed.
func seeds(f *testing.F, add func([]byte), pattern string) {
	f.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds in %s, %v", pattern, err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		add(b)
	}
}

func FuzzScript(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) }, "testdata/*.yaml")
	for _, s := range []string{
		"replies: [{calls: [{tool: t, args: {a: &x [1, {b: c}], d: *x}}]}]", "repeat: true\nreplies:\n- text: |\n    a\n   \n    b\n",
		"replies: [{usage: {input: 0x1, output: 1_0}}]", "? replies\n: []", "replies: &a\n  - *a", "{replies: [{text: 'it''s'}], price: {input: .5}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseScript("s.yaml", data)
		again, err2 := ParseScript("s.yaml", data)
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
			r := Request{Index: i, MaxOutput: 10}
			o := run(t, s, r)
			if !reflect.DeepEqual(o, run(t, again, r)) {
				t.Fatal("the same bytes give two scripts")
			}
			if o.done != nil && (o.done.Usage.Output > 10 || o.done.Usage.Input != int64(s.Count(r))) {
				t.Fatalf("%s", o)
			}
			for _, c := range s.reply(i).Calls {
				if strings.HasPrefix(c.Args, "{") && strings.Contains(string(data), "args: {") && !strings.ContainsAny(string(data), "'\"|>") && !json.Valid([]byte(c.Args)) {
					t.Fatalf("the mapping became %s", c.Args)
				}
			}
		}
	})
}
