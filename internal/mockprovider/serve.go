package mockprovider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/model"
)

// Flags are a [Config] as flags of a command line.
type Flags struct {
	config                     Config
	log, price                 string
	Port                       int
	scripts, faults            []string
	latency, ttft              string
	burst, overload            string
	tpm, itpm, otpm, rpm       int64
	concurrency, ban, chunking int
}

// Add declares the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	c := &f.config
	flags.IntVar(&f.Port, "port", 0, "the port on 127.0.0.1; 0: a free one")
	flags.StringArrayVar(&f.scripts, "script", nil, "what it says: a `file`, or MODEL=FILE for one model")
	flags.StringVar(&c.Reply, "reply", "", "what it says without a script")
	flags.StringVar(&f.price, "price", "", "dollars a million tokens without a script, as `IN/OUT`; none: the price that Kern knows")
	flags.StringSliceVar(&c.Models, "model", nil, "the models there are; any, if none is given")
	flags.StringSliceVar(&c.Keys, "key", nil, "the keys that are accepted; any, if none is given")
	flags.Int64Var(&f.rpm, "rpm", 0, "requests a minute")
	flags.Int64Var(&f.tpm, "tpm", 0, "tokens a minute, in and out together")
	flags.Int64Var(&f.itpm, "itpm", 0, "input tokens a minute")
	flags.Int64Var(&f.otpm, "otpm", 0, "output tokens a minute")
	flags.IntVar(&f.concurrency, "concurrency", 0, "requests of one key at a time")
	flags.StringVar(&f.burst, "burst", "100%", "the `share` of a minute's limit that may be used in one second")
	flags.IntVar(&f.ban, "ban", 0, "refuse a key for good after so many 429s in a minute")
	flags.StringVar(&f.overload, "overload", "0%", "the `share` of requests answered with 503 or 529")
	flags.StringVar(&f.latency, "latency", "0s", "before an answer: `200ms`, 200ms±50ms or p50=200ms,p99=2s")
	flags.StringVar(&f.ttft, "ttft", "0s", "before the first token, in the same `forms`")
	flags.Float64Var(&c.TPS, "tps", 0, "tokens a second in one stream; 0: at once")
	flags.IntVar(&f.chunking, "chunk", 1, "words in one event of a stream")
	flags.StringArrayVar(&f.faults, "fault", nil, "what goes wrong: `KIND`, KIND@N, KIND@N=10% or KIND@N#3")
	flags.Uint64Var(&c.Seed, "seed", 1, "of all that is left to chance")
	flags.StringVar(&f.log, "log", "", "write one line of JSON for each request to this `file`")
}

// Config parses the flags.
func (f *Flags) Config() (c Config, err error) {
	c = f.config
	c.Known = true
	c.Limits = Limits{Requests: f.rpm, Tokens: f.tpm, Input: f.itpm, Output: f.otpm, Concurrency: f.concurrency, Ban: f.ban}
	c.Chunk = f.chunking
	if min(f.rpm, f.tpm, f.itpm, f.otpm, int64(f.concurrency), int64(f.ban), int64(f.chunking)) < 0 || c.TPS < 0 {
		return c, errors.New("a limit below zero, expected 0 for none, or more")
	}
	for _, share := range []struct {
		flag, text string
		to         *float64
	}{{"burst", f.burst, &c.Limits.Burst}, {"overload", f.overload, &c.Overload}} {
		if *share.to, err = ParseShare(share.text); err != nil {
			return c, fmt.Errorf("--%s is %w", share.flag, err)
		}
	}
	for _, spread := range []struct {
		flag, text string
		to         *Spread
	}{{"latency", f.latency, &c.Latency}, {"ttft", f.ttft, &c.TTFT}} {
		if *spread.to, err = ParseSpread(spread.text); err != nil {
			return c, fmt.Errorf("--%s is %w", spread.flag, err)
		}
	}
	for _, s := range f.faults {
		fault, err := ParseFault(s)
		if err != nil {
			return c, err
		}
		c.Faults = append(c.Faults, fault)
	}
	if f.log != "" {
		if c.Log, err = os.OpenFile(f.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return c, err
		}
	}
	if f.price != "" {
		in, out, ok := strings.Cut(f.price, "/")
		if c.Price.Input, err = abi.ParseMoney(in); err == nil {
			c.Price.Output, err = abi.ParseMoney(out)
		}
		if err != nil || !ok {
			return c, fmt.Errorf("--price is %q, expected dollars a million tokens, such as 3.00/15.00", f.price)
		}
	}
	for _, s := range f.scripts {
		if err := addScript(&c, s); err != nil {
			return c, err
		}
	}
	return c, nil
}

func addScript(c *Config, flag string) error {
	name, file, one := strings.Cut(flag, "=")
	if !one {
		file = flag
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s, err := model.ParseScript(file, data)
	if err != nil {
		return err
	}
	if !one {
		c.Script = s
		return nil
	}
	if c.Scripts == nil {
		c.Scripts = map[string]*model.Script{}
	}
	c.Scripts[name] = s
	return nil
}

// Serve runs a provider on 127.0.0.1 until ctx ends. It writes its address as
// the first line of out, writes its bill to notes at the end, and closes the
// log.
func Serve(ctx context.Context, c Config, port int, out, notes io.Writer) error {
	if file, ok := c.Log.(io.Closer); ok {
		defer file.Close()
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	m := New(c)
	s := &http.Server{Handler: m, ReadHeaderTimeout: 30 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if _, err := fmt.Fprintf(out, "http://%s\n", l.Addr()); err != nil {
		return errors.Join(err, s.Close())
	}
	key := "any"
	if len(c.Keys) > 0 {
		key = c.Keys[0]
	}
	fmt.Fprintf(notes, "OPENAI_BASE_URL=http://%[1]s/v1 OPENAI_API_KEY=%[2]s ANTHROPIC_BASE_URL=http://%[1]s ANTHROPIC_API_KEY=%[2]s\n", l.Addr(), key)
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	err = s.Close()
	<-served
	t := m.Stats()
	fmt.Fprintf(notes, "%d requests, %d refused with 429, %d aborted; tokens in %d, out %d; billed $%s\n", t.Requests, t.Refused, t.Aborted, t.Input, t.Output, t.Dollars)
	return err
}
