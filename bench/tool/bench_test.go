// Package tool measures the check of arguments and the run of commands, each beside
// the same work without Kern. Run it with
//
//	go test ./bench/tool -bench . -count 6
package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"runtime"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/program"
	"github.com/kern-run/kern/internal/schema"
	"github.com/kern-run/kern/internal/tools"
)

func TestMain(m *testing.M) {
	program.Main()
	leaktest.Main(m)
}

const (
	rawSchema = `{"type":"object","properties":{"path":{"type":"string","minLength":1},"line":{"type":"integer","minimum":1},"mode":{"enum":["read","write"]}},"required":["path","line"],"additionalProperties":false}`
	document  = `{"path":"internal/schema/fast.go","line":42,"mode":"read"}`
)

func BenchmarkCheck(b *testing.B) {
	doc := []byte(document)
	b.Run("kern", func(b *testing.B) {
		s, err := schema.Compile([]byte(rawSchema))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if v := s.Check(doc); v != nil {
				b.Fatal(v)
			}
		}
	})
	b.Run("unmarshal", func(b *testing.B) { // not even a check
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := json.Unmarshal(doc, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(rawSchema)))
		if err != nil {
			b.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("s.json", parsed); err != nil {
			b.Fatal(err)
		}
		s, err := c.Compile("s.json")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Validate(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Compile([]byte(rawSchema)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	doc := []byte(document)
	b.Run("kern", func(b *testing.B) {
		buf := make([]byte, 0, 2*len(doc))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := jsontext.Canonical(buf, doc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unmarshal-marshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := json.Unmarshal(doc, &v); err != nil {
				b.Fatal(err)
			}
			if _, err := json.Marshal(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCommand runs true in four ways: by exec alone, below a warm supervisor,
// below a supervisor that is started for the call, and in a process group.
func BenchmarkCommand(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Fatal("there is a supervisor on Linux only")
	}
	args := []byte(`{}`)
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("true")
			cmd.Stdin = bytes.NewReader(args)
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
	})
	run := func(b *testing.B, r tools.Runner) {
		t, err := tools.Command(abi.ToolSpec{Name: "true", Command: []string{"true"}}, r)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if out := t.Run(context.Background(), tools.Input{Args: args}); out.Err != nil {
				b.Fatal(out.Err)
			}
		}
	}
	b.Run("warm", func(b *testing.B) {
		p := &program.Pool{}
		r := tools.Runner{Pool: p}
		if err := p.Warm(); err != nil {
			b.Fatal(err)
		}
		run(b, r)
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("cold", func(b *testing.B) { run(b, tools.Runner{Pool: &program.Pool{Idle: -1}}) })
}
