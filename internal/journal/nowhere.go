package journal

import (
	"fmt"
	"iter"

	"github.com/kern-run/kern/abi"
)

// Nowhere is a store that keeps nothing: for a machine of processes that is
// simulated or measured, and never recovered. A log in front of it neither
// queues nor waits.
var Nowhere Store = nowhere{}

type nowhere struct{}

// NewPid returns 0: the caller is alone and counts by itself.
func (nowhere) NewPid() (abi.Pid, error)                       { return 0, nil }
func (nowhere) Append(Lease, []abi.Record) error               { return nil }
func (nowhere) Scan(func(*abi.Record) error, ...abi.Pid) error { return nil }
func (nowhere) Claim(Lease, ...abi.Pid) (Lease, error)         { return Lease{}, nil }
func (nowhere) Answer(abi.Pid, uint64) (*abi.Record, error)    { return nil, nil }
func (nowhere) Close() error                                   { return nil }

func (nowhere) Feed(Cursor) FeedReader                   { return nowhere{} }
func (nowhere) Next(func(abi.Pid) bool) ([]Entry, error) { return nil, nil }
func (nowhere) Cursor() Cursor                           { return 0 }

func (nowhere) Records(abi.Pid, uint64) iter.Seq2[*abi.Record, error] {
	return func(func(*abi.Record, error) bool) {}
}

func (nowhere) Blob(h abi.Hash) ([]byte, error) { return nil, fmt.Errorf("blob %s was not kept", h) }
