package main

import (
	"errors"
	"net"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/mockprovider"
)

// scriptExample shows all that a script may say.
const scriptExample = `  price: {input: 3.00, output: 15.00}    # dollars a million tokens
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
		Short: "Be a provider of models, to test agents against",
		Long: `Be a provider of models, to test agents against: it speaks the formats of OpenAI
(chat/completions, responses, embeddings, models) and Anthropic (messages,
count_tokens), streaming or not, and has the limits, the errors and, on demand,
the faults of a real one. It prints its address on the first line, and its bill
at the end.

What it says: the replies of a script, as the model script:FILE does; the reply
is chosen by how many answers the conversation of the request holds, so any
number of agents can share it. Errors in the script come once to each
conversation. Without a script it says --reply, or repeats what was said last;
where a JSON schema is asked for, a value of that schema. A script is YAML:

` + scriptExample + `
Limits are for each key and model, in any sixty seconds; what goes past one is
answered with 429, Retry-After and the usual headers. GET /mock/stats tells what
was asked, sent and billed, for each key (by its hash) and model; with ?idle=1
it answers when no request is under way.

Faults: cut@N (the connection breaks after N events), malformed@N, hang@N,
slow@MS (each byte), nousage, wrongusage@N (N output tokens too many in what it
says). To some answers only: cut@3=10%, or to the second request: cut@3#2. What
is left to chance follows from --seed.`,
		Example: `  kern mock --script replies.yaml --port 8080
  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python agent.py
  kern mock --rpm 60 --tpm 100000 --ban 20 --latency p50=300ms,p99=2s`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Config()
			if err != nil {
				return cli.Usage("kern mock --help explains the flags", "%v", err)
			}
			err = mockprovider.Serve(cmd.Context(), c, f.Port, t.Out, t.Err)
			var e *net.OpError
			if errors.As(err, &e) && e.Op == "listen" {
				return cli.Usage("name another with --port; 0 takes one that is free", "%v", err)
			}
			return err
		},
	}
	f.Add(cmd.Flags())
	return cmd
}
