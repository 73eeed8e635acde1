package provider

import (
	"errors"
	"fmt"
	"github.com/kern-run/kern/model"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var providers = map[string]string{"openai": "openai:gpt-5", "anthropic": "anthropic:claude-sonnet-4-5"}

// streams calls f with every stream in testdata.
func streams(t *testing.T, f func(t *testing.T, ref, path, data string)) {
	for dir, ref := range providers {
		paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.sse"))
		if err != nil || len(paths) < 10 {
			t.Fatalf("%d streams in %s, %v", len(paths), dir, err)
		}
		for _, path := range paths {
			t.Run(dir+"/"+filepath.Base(path), func(t *testing.T) {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				f(t, ref, path, string(data))
			})
		}
	}
}

func TestStreams(t *testing.T) {
	streams(t, func(t *testing.T, ref, path, data string) {
		o := run(t, over(t, ref, &tape{pieces: []string{data}}), hello)
		golden(t, strings.TrimSuffix(path, ".sse")+".want", o.String())
	})
}

// Any chunking gives the same events.
func TestStreamsSplitAnywhere(t *testing.T) {
	streams(t, func(t *testing.T, ref, _, data string) {
		want := run(t, over(t, ref, &tape{pieces: []string{data}}), hello)
		check := func(what string, pieces []string) {
			if got := run(t, over(t, ref, &tape{pieces: pieces}), hello); !same(got, want) {
				t.Fatalf("%s: got\n%swant\n%s", what, got, want)
			}
		}
		for i := range data {
			check(fmt.Sprintf("split at %d", i), []string{data[:i], data[i:]})
		}
		check("byte by byte", strings.Split(data, ""))
		var bytes []string
		for i := range len(data) {
			bytes = append(bytes, data[i:i+1])
		}
		check("byte by byte, within characters", bytes)
	})
}

// A stream cut at any byte ends with an error of kind network, or is whole
// already. It never claims an end that it did not see.
func TestStreamsCutAnywhere(t *testing.T) {
	streams(t, func(t *testing.T, ref, _, data string) {
		whole := run(t, over(t, ref, &tape{pieces: []string{data}}), hello)
		for i := range data {
			for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, errors.New("read: connection reset by peer")} {
				o := run(t, over(t, ref, &tape{pieces: []string{data[:i]}, end: end}), hello)
				if !strings.HasPrefix(whole.Text, o.Text) {
					t.Fatalf("cut at %d: text %q is no beginning of %q", i, o.Text, whole.Text)
				}
				if o.Done != nil {
					if o.Text != whole.Text || !reflect.DeepEqual(o.Calls, whole.Calls) || o.Done.Stop != whole.Done.Stop {
						t.Fatalf("cut at %d with %v: done, but not whole:\n%s", i, end, o)
					}
					continue
				}
				if o.Err.Kind != model.Network && (whole.Err == nil || o.Err.Kind != whole.Err.Kind) {
					t.Fatalf("cut at %d with %v: %v", i, end, o.Err)
				}
				if o.Text != "" && o.Err.Usage == nil {
					t.Fatalf("cut at %d: text came, but no usage is known", i)
				}
			}
		}
	})
}
