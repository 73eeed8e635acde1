package sse

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestSSE(t *testing.T) {
	for in, want := range map[string]string{
		"":                                          "",
		"data: a\n\n":                               "[a]",
		"data:a\n\ndata:  b\n\n":                    "[a][ b]",
		"data: a\r\n\r\ndata: b\r\rdata: c\n\n":     "[a][b][c]",
		"\ufeffdata: a\n\n":                         "[a]",
		": comment\n\n:\n\ndata: a\n\n":             "[a]",
		"event: x\ndata: a\n\ndata: b\n\n":          "x[a][b]",
		"event: x\n\ndata: b\n\n":                   "[b]",
		"data: a\ndata: b\ndata\n\n":                "[a\nb\n]",
		"data\n\n":                                  "[]",
		"id: 1\nretry: 5\nnonsense\ndata: a: b\n\n": "[a: b]",
		"data: a\n\ndata: cut":                      "[a][cut]...",
		"data: a\n\ndata: cut\n":                    "[a][cut]...",
		"data: a\n\ndat":                            "[a]",
		"\n\n\n\n":                                  "",
	} {
		for name, r := range map[string]io.Reader{"at once": strings.NewReader(in), "by byte": iotest.OneByteReader(strings.NewReader(in)), "with its end": iotest.DataErrReader(strings.NewReader(in))} {
			var got strings.Builder
			s := New(r)
			for {
				name, data, whole, err := s.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString(name + "[" + string(data) + "]")
				if !whole {
					got.WriteString("...")
				}
			}
			if got.String() != want {
				t.Errorf("%q %s: got %q, want %q", in, name, got.String(), want)
			}
		}
	}
	for _, in := range []string{"data: " + strings.Repeat("x", MaxEvent+1), strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 9)} {
		if _, _, _, err := New(strings.NewReader(in)).Next(); !errors.Is(err, ErrTooLong) {
			t.Errorf("an event too long: %v", err)
		}
	}
}

func FuzzSSE(f *testing.F) {
	paths, err := filepath.Glob("../testdata/*/*.sse")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\ufeffdata: a\r\rdata\n\nevent:x\n:\ndata:\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Reading is as it is over lines that are split all at once.
		text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(data), "\ufeff"))
		var want []string
		var lines []string
		for _, line := range strings.Split(text, "\n") {
			if line == "" {
				if lines != nil {
					want = append(want, strings.Join(lines, "\n"))
				}
				lines = nil
				continue
			}
			if name, value, _ := strings.Cut(line, ":"); name == "data" {
				lines = append(lines, strings.TrimPrefix(value, " "))
			}
		}
		if lines != nil {
			want = append(want, strings.Join(lines, "\n"))
		}
		var got []string
		s := New(strings.NewReader(string(data)))
		for {
			_, event, _, err := s.Next()
			if err != nil {
				break
			}
			got = append(got, string(event))
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
