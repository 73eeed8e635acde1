package abi

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Spent is what calls used in one hour: of one model, under one named account, by
// processes of one name.
type Spent struct {
	Hour    int64  `json:"hour"`              // of UTC, counted since 1970
	Model   string `json:"model,omitempty"`   // of a tool with a cost: the word tool and its name
	Account string `json:"account,omitempty"` // the named account above the process
	Name    string `json:"name,omitempty"`    // of the process, or of the nearest one above it that has a name
	Usage   Usage  `json:"usage"`
}

// A Period renews the limits of a named account: what was settled before it began
// does not count.
type Period struct {
	Per   string `json:"per"`             // one of [Periods]; empty: the limits do not renew
	Since int64  `json:"since,omitempty"` // when it began, in nanoseconds since 1970
	Until int64  `json:"until,omitempty"` // when the next one begins
	Base  Usage  `json:"base,omitzero"`   // settled before it began
}

// Periods are the lengths of periods. All begin at midnight in UTC, a week on Monday.
func Periods() []string { return []string{"day", "week", "month"} }

// NewPeriod returns the period that a moment is in.
func NewPeriod(per string, now time.Time) (Period, error) {
	if !slices.Contains(Periods(), per) {
		return Period{}, fmt.Errorf("%q: expected %s", per, strings.Join(Periods(), ", "))
	}
	now = now.UTC()
	from := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	to := from.AddDate(0, 0, 1)
	switch per {
	case "week":
		from = from.AddDate(0, 0, -(int(from.Weekday())+6)%7)
		to = from.AddDate(0, 0, 7)
	case "month":
		from = from.AddDate(0, 0, 1-from.Day())
		to = from.AddDate(0, 1, 0)
	}
	return Period{Per: per, Since: from.UnixNano(), Until: to.UnixNano()}, nil
}
