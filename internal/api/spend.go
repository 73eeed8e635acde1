package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/quota"
)

// Reports tell what was used, over all processes.
type Reports struct {
	Traffic func() []quota.Snapshot // the use of the limits of providers
	Spent   func() []abi.Spent      // all that was used, by hour, model, account and name
}

func (p Reports) traffic(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := query(r); err != nil {
		return nil, err
	}
	return p.Traffic(), nil
}

// Parts are what spending can be added up by. A day and an hour are those of UTC.
func Parts() []string { return []string{"day", "hour", "model", "account", "name"} }

// A Spending is what was used in all, or in one part.
type Spending struct {
	Day     string `json:"day,omitempty"`
	Hour    string `json:"hour,omitempty"`
	Model   string `json:"model,omitempty"`
	Account string `json:"account,omitempty"`
	Name    string `json:"name,omitempty"`
	Usage   Usage  `json:"usage"`
}

// A SpendReport is an answer about spending. Total is the sum of Lines.
type SpendReport struct {
	By    []string   `json:"by"`
	Since *time.Time `json:"since,omitempty"` // an hour of UTC; nil: the beginning
	Lines []Spending `json:"lines"`
	Total Usage      `json:"total"`
}

// spend adds up what was used, by the parts that ?by= names, since the hour of ?since=
// in nanoseconds since 1970.
func (p Reports) spend(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := query(r, "by", "since"); err != nil {
		return nil, err
	}
	out := SpendReport{By: []string{}, Lines: []Spending{}}
	if by := r.URL.Query().Get("by"); by != "" {
		out.By = strings.Split(by, ",")
	}
	for _, part := range out.By {
		if !slices.Contains(Parts(), part) {
			return nil, expected("/by", part, strings.Join(Parts(), ", "))
		}
	}
	since := int64(0)
	if s := r.URL.Query().Get("since"); s != "" {
		at, err := strconv.ParseInt(s, 10, 64)
		if err != nil || at < 0 {
			return nil, expected("/since", s, "nanoseconds since 1970")
		}
		from := time.Unix(0, at).UTC().Truncate(time.Hour)
		out.Since, since = &from, from.Unix()/3600
	}
	out.add(p.Spent(), since)
	return out, nil
}

// add adds up the lines of a book since an hour.
func (out *SpendReport) add(book []abi.Spent, since int64) {
	sums := make(map[Spending]*abi.Usage)
	var total abi.Usage
	for i := range book {
		s := &book[i]
		if s.Hour < since {
			continue
		}
		part := partOf(s, out.By)
		if sums[part] == nil {
			sums[part] = new(abi.Usage)
		}
		sums[part].Add(&s.Usage)
		total.Add(&s.Usage)
	}
	for part, sum := range sums {
		part.Usage = usage(sum)
		out.Lines = append(out.Lines, part)
	}
	slices.SortFunc(out.Lines, func(a, b Spending) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Model, b.Model))
	})
	out.Total = usage(&total)
}

// partOf is what a line of a book has in common with the lines that it is added to.
func partOf(s *abi.Spent, by []string) (part Spending) {
	at := time.Unix(s.Hour*3600, 0).UTC()
	for _, name := range by {
		switch name {
		case "day":
			part.Day = at.Format(time.DateOnly)
		case "hour":
			part.Hour = at.Format("2006-01-02T15:00Z")
		case "model":
			part.Model = cmp.Or(s.Model, "unknown")
		case "account":
			part.Account = cmp.Or(s.Account, "-")
		case "name":
			part.Name = cmp.Or(s.Name, "-")
		}
	}
	return part
}

// Spend adds up what was used since a moment, by parts of [Parts].
func (c *Client) Spend(ctx context.Context, by []string, since int64) (SpendReport, error) {
	q := url.Values{"by": {strings.Join(by, ",")}}
	if since != 0 {
		q.Set("since", strconv.FormatInt(since, 10))
	}
	return ask[SpendReport](ctx, c.conn, "GET", "/v1/spend?"+q.Encode(), nil)
}
