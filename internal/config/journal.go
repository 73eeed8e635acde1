package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/yamlfile"
)

// JournalRules say which finished processes the daemon removes by itself.
type JournalRules struct {
	Age   time.Duration `json:"age,omitempty"`   // those that ended longer ago; 0: none
	Bytes int64         `json:"bytes,omitempty"` // the oldest, while the journal is larger; 0: no bound
}

func (s *JournalRules) read(d *yamlfile.Document, n ast.Node, what string) error {
	return d.Mapping(n, what, []string{"age", "bytes"}, map[string]yamlfile.Field{
		"age": func(n ast.Node, what string) error {
			text, err := d.Scalar(n, what)
			if err != nil {
				return err
			}
			if s.Age, err = ParseAge(text); err != nil || s.Age < time.Minute {
				return d.Errorf(n, "%s is %q, expected a time of a minute or more, such as 90d or 12h", what, text)
			}
			return nil
		},
		"bytes": func(n ast.Node, what string) error {
			text, err := d.Scalar(n, what)
			if err != nil {
				return err
			}
			if s.Bytes, err = abi.ParseUnit(abi.OutputBytes, text); err != nil || s.Bytes < 1<<20 {
				return d.Errorf(n, "%s is %q, expected a size of 1MiB or more, such as 2GiB", what, text)
			}
			return nil
		},
	})
}

// ParseAge reads a duration in which d is a day.
func ParseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}
