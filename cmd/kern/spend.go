package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/daemon"
)

func spendCommand(t *cli.Terminal, d *daemon.Directory) *cobra.Command {
	var by []string
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "spend", SuggestFor: []string{"cost", "costs", "report", "usage", "bill", "money", "stats"},
		Short: "Show what was spent, by day, model, account or name",
		Long: `Show what all processes spent, added up by day, hour, model, account or name of the
process, or by several of them. Days and hours are those of UTC, as on the bills of
providers. A child without a name counts under the name above it. The sums are those
of the accounts, to the last digit; what removed processes spent stays in them.

--since takes a duration such as 24h or 7d, a time of today, or a date. It begins
with the hour that it names.`,
		Example: `  kern spend
  kern spend --by model --since 7d
  kern spend --by day,account --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := int64(0), error(nil)
			if since != "" {
				if from, err = sinceTime(since, time.Now()); err != nil {
					return err
				}
			}
			for _, part := range by {
				if !slices.Contains(api.Parts(), part) {
					return cli.Usage("for example: kern spend --by day,model", "--by %q, expected %s", part, strings.Join(api.Parts(), ", "))
				}
			}
			return report(cmd.Context(), t, d, asJSON, func(c *api.Client) (api.SpendReport, error) { return c.Spend(cmd.Context(), by, from) }, showSpending)
		},
	}
	cmd.Flags().StringSliceVar(&by, "by", []string{"day"}, "add up by these `parts`: "+strings.Join(api.Parts(), ", "))
	cmd.Flags().StringVar(&since, "since", "", "only since this `time`, or in this last duration")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func showSpending(t *cli.Terminal, s api.SpendReport) error {
	if len(s.Lines) == 0 {
		t.Note("kern: no model call was made")
		return nil
	}
	columns := []cli.Column{}
	for _, part := range s.By {
		head := strings.ToUpper(part)
		if part == "day" || part == "hour" {
			head += " (UTC)"
		}
		columns = append(columns, cli.Column{Head: head, Least: 10})
	}
	columns = append(columns, cli.Column{Head: "MONEY"}, cli.Column{Head: "CALLS", Spare: 3}, cli.Column{Head: "INPUT", Spare: 2}, cli.Column{Head: "OUTPUT", Spare: 1})
	amounts := func(u api.Usage) []string {
		return []string{"$" + u.Money, strconv.FormatInt(u.ModelCalls, 10), strconv.FormatInt(u.InputTokens, 10), strconv.FormatInt(u.OutputTokens, 10)}
	}
	var rows [][]string
	for _, l := range s.Lines {
		var row []string
		for _, part := range s.By {
			row = append(row, cli.Clean(map[string]string{"day": l.Day, "hour": l.Hour, "model": l.Model, "account": l.Account, "name": l.Name}[part]))
		}
		rows = append(rows, append(row, amounts(l.Usage)...))
	}
	if len(s.Lines) > 1 {
		total := make([]string, len(s.By))
		total[0] = "total"
		rows = append(rows, append(total, amounts(s.Total)...))
	}
	return t.Table(columns, rows)
}
