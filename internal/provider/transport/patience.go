package transport

import (
	"net"
	"time"
)

// patience bounds how long the provider's machine may leave sent bytes or probes
// unacknowledged. After that the connection is closed.
//
// The default of the system is a quarter of an hour. RFC 1122, 4.2.3.5 asks for at
// least a hundred seconds. A network that fails over or a laptop that changes
// networks needs a minute, and an answer lost meanwhile was paid for. Programs
// wait ten minutes for an answer, and a fallback needs a part of that time.
// The thinking time of a model does not count, because the machine acknowledges
// bytes all the while.
const patience = 3 * time.Minute

// probes is the number of unanswered keep-alive probes that close a connection.
const probes = 5

// dialer returns a dialer whose connections close after patience without an
// acknowledgement.
func dialer(patience time.Duration) *net.Dialer {
	each := patience / (probes + 1) // the time before the first probe counts as one interval
	return &net.Dialer{
		Timeout:         dialTime,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: each, Interval: each, Count: probes},
		Control:         bounded(patience),
	}
}
