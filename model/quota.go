package model

import "time"

// A Quota holds the provider's limits of a key at the time of an answer. The zero
// Quota means that the provider reported none.
type Quota struct {
	At       time.Time // time of the answer
	Requests Allowance
	Tokens   Allowance // input and output together
	Input    Allowance // tokens
	Output   Allowance // tokens
}

// An Allowance is one limit and what is left of it. A Limit of 0 means that the
// provider did not report it.
type Allowance struct{ Limit, Left int64 }
