package format

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/tokens"
)

var update = flag.Bool("update", false, "rewrite the expected files")

// An outcome is what came of an answer.
type outcome struct {
	seen    Seen
	forward string
	err     error
}

// feed meters an answer in pieces. What Write returns is copied at once, for
// it is valid no longer than that. Calls that are ready are let go at once.
func feed(t testing.TB, m *Meter, pieces ...string) (o outcome) {
	t.Helper()
	var out strings.Builder
	for _, p := range pieces {
		b, err := m.Write([]byte(p))
		out.Write(b)
		if err != nil {
			o.err = err
			break
		}
		if len(m.Ready()) > 0 {
			out.Write(m.Release())
		}
	}
	if o.err == nil {
		b, err := m.End()
		out.Write(b)
		out.Write(m.Release())
		o.err = err
	}
	o.seen, o.forward = m.Seen(), out.String()
	return o
}

func errorFormat(dir string) Format {
	for f := range parts {
		if strings.HasSuffix(string(f), dir) {
			return f
		}
	}
	return ""
}

// transcripts calls f with every answer in testdata.
func transcripts(t testing.TB, f func(name string, face Format, stream bool, data string)) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.*")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d transcripts, %v", len(paths), err)
	}
	for _, path := range paths {
		ext := filepath.Ext(path)
		if ext == ".want" {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f(path, errorFormat(filepath.Base(filepath.Dir(path))), ext == ".sse", string(data))
	}
}

func meterOf(f Format, stream bool) *Meter {
	m := NewMeter(f, stream)
	m.Hold, m.Drop = true, true
	return m
}

func TestTranscripts(t *testing.T) {
	transcripts(t, func(name string, f Format, stream bool, data string) {
		o := feed(t, meterOf(f, stream), data)
		got, err := json.MarshalIndent(o.seen, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text := string(got) + "\n"
		if o.err != nil {
			text += "error: " + o.err.Error() + "\n"
		}
		if o.forward != data {
			text += "--- not all was passed on:\n" + o.forward
		}
		path := strings.TrimSuffix(name, filepath.Ext(name)) + filepath.Ext(name) + ".want"
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(want) != text {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", name, err, text, want)
		}
	})
}

// Pieces of any size give the same, to the byte.
func TestTranscriptsSplitAnywhere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	transcripts(t, func(name string, f Format, stream bool, data string) {
		want := feed(t, meterOf(f, stream), data)
		hold := func(what string, pieces ...string) {
			if got := feed(t, meterOf(f, stream), pieces...); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, %s: got %+v, want %+v", name, what, got, want)
			}
		}
		for i := range data {
			hold(fmt.Sprint("split at ", i), data[:i], data[i:])
		}
		var single []string
		for i := range len(data) {
			single = append(single, data[i:i+1])
		}
		hold("byte by byte", single...)
		for range 20 {
			var pieces []string
			for rest := data; rest != ""; {
				n := 1 + random.IntN(min(len(rest), 400))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			hold("at random", pieces...)
		}
	})
}

// A stream that is cut claims no end that it did not have, and what was passed
// on is a beginning of it; so the error that Cut puts behind it is an event of
// its own.
func TestTranscriptsCutAnywhere(t *testing.T) {
	transcripts(t, func(name string, f Format, stream bool, data string) {
		if !stream {
			return
		}
		whole := feed(t, meterOf(f, stream), data)
		for i := range data {
			m := meterOf(f, stream)
			var out strings.Builder
			b, err := m.Write([]byte(data[:i]))
			out.Write(b)
			if err == nil && m.Seen().Done && !whole.seen.Done {
				t.Fatalf("%s, cut at %d: done", name, i)
			}
			if s := m.Seen(); s.Output > 0 && !s.Reported && whole.seen.Reported && s.Output > 40+2*whole.seen.Output {
				t.Fatalf("%s, cut at %d: %d tokens counted, %d reported at the end", name, i, s.Output, whole.seen.Output)
			}
			if strings.Contains(data, "\"usage\"") && strings.Contains(name, "dropped") {
				continue
			}
			if !strings.HasPrefix(data, out.String()) {
				t.Fatalf("%s, cut at %d: passed on %q", name, i, out.String())
			}
			out.Write(m.Cut(abi.LimitMoney, "no money is left", ""))
			if last := lastEvent(out.String()); !strings.Contains(last, `"LIMIT_MONEY"`) || jsontext.Check([]byte(last), jsontext.UniqueKeys) != nil {
				t.Fatalf("%s, cut at %d: the end is %q", name, i, last)
			}
		}
	})
}

// lastEvent is the data of the last event as a simple reader sees it.
func lastEvent(s string) (data string) {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	for block := range strings.SplitSeq(s, "\n\n") {
		for line := range strings.SplitSeq(block, "\n") {
			if d, ok := strings.CutPrefix(line, "data:"); ok {
				data = strings.TrimSpace(d)
			}
		}
	}
	return data
}

// An answer of Claude's that is cut before its usage came is counted by the
// bound of its vocabulary, and one of another model as it always was.
func TestWhatWasSaidIsCountedForItsModel(t *testing.T) {
	const said = "Die Donaudampfschifffahrtsgesellschaft befördert überraschend viele Fahrgäste."
	for name, least := range map[string]int64{"claude-opus-4-8": 38, "llama3": int64(tokens.CountText(said))} {
		r := parse(t, Messages, `{"model":"`+name+`","max_tokens":100,"stream":true,"messages":[]}`)
		r.Count = catalog.CounterOf("anthropic", name)
		o := feed(t, r.Meter(true), "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9}}}\n\n"+
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\""+said+"\"}}\n\n")
		if got := o.seen.Output; got < least || name == "llama3" && got != least {
			t.Errorf("%s: %d tokens, want %d", name, got, least)
		}
	}
}
