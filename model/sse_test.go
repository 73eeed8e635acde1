package model

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

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
			s := newSSE(r)
			for {
				name, data, whole, err := s.next()
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
	for _, in := range []string{"data: " + strings.Repeat("x", maxEvent+1), strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 9)} {
		if _, _, _, err := newSSE(strings.NewReader(in)).next(); !errors.Is(err, errEventTooLong) {
			t.Errorf("an event too long: %v", err)
		}
	}
}
