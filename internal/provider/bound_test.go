package provider

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/model"
)

// TestCutAnswerIsBooked: what came before a stream broke is paid, and so is what
// was sent, and what may have been said unseen: all that was granted, where the
// model may have thought.
//
// Mutants that die here: nothing unseen is booked, silent thoughts are free.
func TestCutAnswerIsBooked(t *testing.T) {
	const granted = 100_000
	words := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("word ", 200) + `"}}]}` + "\n\n"
	for _, c := range []struct {
		ref         string
		pieces      int
		least, most int64
	}{
		{"openai:gpt-4.1", 3, 600 + 600/16 + 16, granted},
		{"openai:gpt-6-luna", 3, granted, granted},
		{"anthropic:claude-fable-5", 0, granted, granted},
	} {
		m := over(t, c.ref, &tape{pieces: strings.SplitAfter(strings.Repeat(words, c.pieces), "\n\n"), end: errors.New("reset")})
		r := model.Request{Messages: hello.Messages, MaxOutput: granted}
		o := run(t, m, r)
		if o.Err == nil || o.Err.Usage == nil || o.Err.Usage.Input < int64(m.Count(r)) || o.output < c.least || o.output > c.most {
			t.Errorf("%s after %d pieces: %v, %d of output, want at least %d", c.ref, c.pieces, o.Err, o.output, c.least)
		}
	}
}

// TestFloodIsCut: a provider that does not keep to the maximum is not listened to
// for long, and what it gave is booked.
func TestFloodIsCut(t *testing.T) {
	var pieces []string
	for i := range 1000 {
		pieces = append(pieces, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"%s%d\"}}]}\n\n", strings.Repeat("word ", 200), i))
	}
	for _, ref := range []string{"openai:gpt-5", "openai:llama3"} {
		o := run(t, over(t, ref, &tape{pieces: pieces}), model.Request{Messages: hello.Messages, MaxOutput: 1000})
		if o.Done == nil || o.Done.Stop != model.StopLength || o.Done.Usage.Output < 1000 || o.Done.Usage.Output > 5000 {
			t.Errorf("%s: %v, %+v", ref, o.Err, o.Done)
		}
	}
}

// TestMaxField: the name of a provider tells how its Chat calls the output maximum.
func TestMaxField(t *testing.T) {
	for provider, want := range map[string]string{"openai": "max_completion_tokens", "openai@eu.api.openai.com": "max_completion_tokens",
		"openai@mine.openai.azure.com": "max_completion_tokens", "openai@api.deepseek.com": "", "openai@localhost:11434": "", "anthropic": ""} {
		if got := maxField(provider); got != want {
			t.Errorf("%s: %q, want %q", provider, got, want)
		}
	}
}

// TestImpossibleUsage: a usage that no request can have is booked at the bound, and
// kept as a claim; one that only passes the bound is believed.
//
// Mutants that die here: a claim of input or of output that is believed, a usage
// somewhat beyond the bound that is not.
func TestImpossibleUsage(t *testing.T) {
	for usage, want := range map[string]struct {
		input, output int64 // the most that is booked
		claimed       bool
	}{
		`{"prompt_tokens":4611686018427387904,"completion_tokens":7}`: {2000, 7, true},
		`{"prompt_tokens":7,"completion_tokens":4611686018427387904}`: {7, 1000, true},
		`{"prompt_tokens":30000000,"completion_tokens":30000000}`:     {2000, 1000, true},
		`{"prompt_tokens":5000,"completion_tokens":2000}`:             {5000, 2000, false},
	} {
		o := run(t, over(t, "openai:gpt-4.1", &tape{pieces: []string{
			"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n", "data: {\"choices\":[],\"usage\":" + usage + "}\n\n", "data: [DONE]\n\n"}}),
			model.Request{Messages: hello.Messages, MaxOutput: 1000})
		if o.Done == nil || o.Done.Usage.Input > want.input || o.Done.Usage.Input == 0 || o.Done.Usage.Output > want.output || o.Done.Usage.Output == 0 || (o.Done.Claim != nil) != want.claimed {
			t.Errorf("%s: %v, %+v, want up to %+v", usage, o.Err, o.Done, want)
		}
	}
}
