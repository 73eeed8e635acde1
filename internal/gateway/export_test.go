package gateway

import "time"

// Pulse sets how often a stream that is held back says so.
func Pulse(g *Gateway, d time.Duration) { g.cfg.Pulse = d }

// OpenMax is how many tool calls of a process are open at most.
const OpenMax = wishesMax

// MaxField is what a provider's own name says of its output maximum.
var MaxField = maxField
