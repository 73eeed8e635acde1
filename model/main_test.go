package model

import (
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// ReplyTo returns the reply of a script to a request, for external tests.
func (s *Script) ReplyTo(index int) *Reply { return s.reply(index) }

// Counted returns the tokens of a whole reply, for external tests.
func (r *Reply) Counted() int { return r.counted() }

// ScriptErrors are the kinds of error that a script may name, for external tests.
var ScriptErrors = scriptErrors
