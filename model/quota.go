package model

import "time"

// A Quota is how the limits of a key stood when a provider answered. The zero
// Quota says nothing.
type Quota struct {
	At       time.Time // when it came
	Requests Allowance
	Tokens   Allowance // in and out together
	Input    Allowance // tokens
	Output   Allowance // tokens
}

// An Allowance is a limit, and what is left of it. Limit 0: not told.
type Allowance struct{ Limit, Left int64 }
