package abi

import (
	"fmt"
	"strconv"
	"strings"
)

// A MinOutput is the least output that a model call is worth: a number of tokens such
// as "500", or a share of what the request asks for such as "10%". If a limit leaves
// less, the call is refused. Empty: a sixteenth, and at most 256 tokens.
type MinOutput string

// The default of [MinOutput].
const (
	defaultShare = 16
	defaultLeast = 256
)

// ParseMinOutput checks s.
func ParseMinOutput(s string) (MinOutput, error) {
	digits, share := strings.CutSuffix(s, "%")
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || share && n > 100 {
		return "", fmt.Errorf("min_output is %q, expected a number of tokens such as 500, or a share of what is asked for such as 10%%", Clip(s))
	}
	return MinOutput(s), nil
}

// Of returns the least output of a request that asks for asked tokens in choices
// answers.
func (m MinOutput) Of(asked, choices int64) int64 {
	digits, share := strings.CutSuffix(string(m), "%")
	n, err := strconv.ParseInt(digits, 10, 32)
	switch {
	case err != nil:
		n = min(asked/defaultShare, defaultLeast*choices)
	case share:
		n = asked * n / 100
	default:
		n *= choices
	}
	return min(n, asked)
}
