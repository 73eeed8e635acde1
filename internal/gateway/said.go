package gateway

import (
	"crypto/sha256"
	"strconv"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/recent"
)

// answered remembers the conversations that the model answered. A request that
// continues one of them asks only what is new in it.
type answered struct {
	recent.Cache[abi.Hash, struct{}]
}

// asked is what a request asks, as the watchdog compares it.
type asked struct {
	whole abi.Hash // the conversation, for answered; zero: it is not known here
	news  abi.Hash // the elements that the model has not read; zero: the request continues no conversation
}

// askedIn returns what a request asks.
func (k *answered) askedIn(pid abi.Pid, c *upstreamCall) (a asked) {
	links := c.stored.links
	if len(links) == 0 {
		return a
	}
	a.whole = prefixName(pid, "", c.stored.common, links[len(links)-1])
	said, news := c.body.News()
	if before := len(links) - said - news; said > 0 && before > 0 {
		if _, ok := k.Get(prefixName(pid, "", c.stored.common, links[before-1])); ok {
			h := sha256.New()
			for _, m := range c.body.Messages[len(c.body.Messages)-news:] {
				h.Write(m)
			}
			h.Sum(a.news[:0])
		}
	}
	return a
}

// said returns what the watchdog compares of an answer without tool calls; nil if
// the provider keeps a part of the conversation, because Kern does not see that part.
// The answer to a request that continues no conversation is like no other: it may be
// one of many samples, or one of many texts that end with the same question.
func (c *upstreamCall) said(text string, calls int) []byte {
	switch {
	case c.asked.whole.IsZero() || c.bound.Elsewhere || text == "" || calls > 0:
		return nil
	case c.asked.news.IsZero():
		return strconv.AppendUint(nil, c.call.N, 10)
	}
	return append(c.asked.news[:], text...)
}
