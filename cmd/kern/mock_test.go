package main

import (
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/model"
)

// TestScriptExample: what the help shows of a script is one.
func TestScriptExample(t *testing.T) {
	s, err := model.ParseScript("help", []byte(scriptExample))
	if err != nil || len(s.Replies) != 3 || s.Window == 0 || !s.Repeat || s.Latency == 0 || s.Price.Output == 0 {
		t.Errorf("%+v %v", s, err)
	}
	if long := mockCommand(&cli.Terminal{}).Long; !strings.Contains(long, "A script is YAML:\n\n"+scriptExample) {
		t.Errorf("it is not in the help:\n%s", long)
	}
}
