package transport

import (
	"net"
	"time"
)

// patience is how long a provider's machine may leave unanswered what it was
// sent, or be asked in vain whether it is there, until a connection to it is
// given up. The system waits for a quarter of an hour. Below a hundred seconds
// nobody should give up (RFC 1122, 4.2.3.5), and a way that fails over or a
// laptop that changes networks takes a minute: an answer that is lost meanwhile
// was paid for. Ten minutes are what programs wait for an answer, and another
// provider needs some of them. How long a model thinks is nothing to it: the
// machine answers for it.
const patience = 3 * time.Minute

// probes are how often a machine is asked in vain before it is given up.
const probes = 5

// dialer makes connections that are given up after so long.
func dialer(patience time.Duration) *net.Dialer {
	each := patience / (probes + 1) // from the last word to the first probe too
	return &net.Dialer{
		Timeout:         dialTime,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: each, Interval: each, Count: probes},
		Control:         bounded(patience),
	}
}
