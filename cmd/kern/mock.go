package main

import (
	"errors"
	"net"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/mockprovider"
)

// scriptExample shows all that a script may say.
const scriptExample = `  price: {input: 3.00, output: 15.00}    # dollars a million tokens; without it the price that Kern knows
  window: 200000                         # a longer prompt is refused
  latency: 200ms                         # before each answer
  repeat: true                           # after the last reply comes the first
  replies:                               # the only key that must be there
    - text: I look at it.
      calls: [{tool: read, args: {path: a.txt}}]
      usage: {input: 120, output: 30}    # counted where it is not given
    - error: rate_limit                  # overloaded, auth, bad_request, context, network
    - text: It is done.
`

func mockCommand(t *cli.Terminal) *cobra.Command {
	var f mockprovider.Flags
	cmd := &cobra.Command{
		Use:   "mock [flags]",
		Short: "Serve a mock provider, to test agents against",
		Long: `Serve a mock provider, to test agents against. It speaks the formats of OpenAI
(chat/completions, responses, embeddings, models) and Anthropic (messages,
count_tokens), streaming or not. It has the limits and errors of a real provider,
and faults on request. It prints its address on the first line, and its bill at
the end.

It answers with the replies of a script, as the model script:FILE does. The number
of answers in a conversation selects the reply, so many agents can share a script.
An error in the script comes once in each conversation. Without a script the mock
answers with --reply, or with the last message; if the request has a JSON schema,
with a value of that schema. A script is YAML:

` + scriptExample + `
Limits hold for each key and model, over any sixty seconds. A request past a limit
gets 429, Retry-After and the usual headers. GET /mock/stats counts requests,
answers and money for each key (by its hash) and model; with ?idle=1 it answers
when no request is running.

Faults: cut@N (the connection breaks after N events), malformed@N, hang@N,
slow@MS (each byte), nousage, wrongusage@N (reports N output tokens too many).
cut@3=10% affects a tenth of the answers, cut@3#2 only the second request. --seed
makes chance repeatable.`,
		Example: `  kern mock --script replies.yaml --port 8080
  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python agent.py
  kern mock --rpm 60 --tpm 100000 --ban 20 --latency p50=300ms,p99=2s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Config()
			if err != nil {
				return cli.Usage("kern mock --help explains the flags", "%v", err)
			}
			err = mockprovider.Serve(cmd.Context(), c, f.Port, t.Out, t.Err)
			var e *net.OpError
			if errors.As(err, &e) && e.Op == "listen" {
				return cli.Usage("use another --port; 0 selects a free one", "%v", err)
			}
			return err
		},
	}
	f.Add(cmd.Flags())
	return cmd
}
