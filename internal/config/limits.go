package config

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/internal/quota"
	"github.com/kern-run/kern/internal/yamlfile"
)

// Traffic holds the limits of a provider, by the minute and at one time: for each
// key there, and for each model and key. Quota learns all other limits from the
// provider's answers.
type Traffic = quota.Config

// TrafficLimits are the limits of one provider, or of one model.
type TrafficLimits = quota.Limits

// readProviderLimits reads the limits of a provider or of a model:
//
//	limits: {rpm: 500, tpm: 200000, itpm: 150000, otpm: 50000, concurrency: 16}
func readProviderLimits(d *yamlfile.Document, n ast.Node, what string) (l TrafficLimits, err error) {
	order := []string{"rpm", "tpm", "itpm", "otpm", "concurrency"}
	rate := func(to *int64) yamlfile.Field {
		return func(n ast.Node, what string) error {
			v, err := positive(d, n, what)
			*to = int64(v)
			return err
		}
	}
	err = d.Mapping(n, what, order, map[string]yamlfile.Field{
		"rpm": rate(&l.Requests), "tpm": rate(&l.Tokens), "itpm": rate(&l.Input), "otpm": rate(&l.Output),
		"concurrency": func(n ast.Node, what string) (err error) {
			l.Concurrency, err = positive(d, n, what)
			return err
		},
	})
	if err == nil {
		if beyond := (TrafficLimits{Input: l.Input, Output: l.Output}).Beyond(TrafficLimits{Input: l.Tokens, Output: l.Tokens}); beyond != "" {
			err = d.Errorf(n, "%s grants %s in all (tpm)", what, beyond)
		}
	}
	return l, err
}

// positive reads a limit of at least 1. It refuses 0, because a provider that
// grants nothing is useless.
func positive(d *yamlfile.Document, n ast.Node, what string) (int, error) {
	v, err := d.Count(n, what)
	if err == nil && v == 0 {
		err = d.Errorf(n, "%s is 0, expected at least 1: a provider that grants nothing cannot be asked", what)
	}
	return v, err
}
