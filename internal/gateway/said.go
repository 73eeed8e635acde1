package gateway

import (
	"crypto/sha256"

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
	news  abi.Hash // the elements that the model has not read, if the request continues a conversation
}

// askedIn returns what a request asks. If the request does not continue an answered
// conversation, all of it is new. The conversation of many requests may end with the
// same question, and the same answer to it is not a loop.
func (k *answered) askedIn(pid abi.Pid, c *upstreamCall) (a asked) {
	links := c.stored.links
	if len(links) == 0 {
		return a
	}
	a.whole = prefixName(pid, "", c.stored.common, links[len(links)-1])
	a.news = a.whole
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
func (c *upstreamCall) said(text string, calls int) []byte {
	if c.asked.whole.IsZero() || c.bound.Elsewhere || text == "" || calls > 0 {
		return nil
	}
	return append(c.asked.news[:], text...)
}
