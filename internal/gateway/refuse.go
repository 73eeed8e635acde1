package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/syscalls"
)

// overdrawn is a model call of a process whose limits allow no model call any more.
// Its body is not read. The journal gets the refusal, because kern exec ends the
// program for it.
type overdrawn struct{ reason *abi.Error }

// Plan implements [syscalls.External].
func (o overdrawn) Plan(kernel.View) (kernel.Plan, *abi.Error) {
	return kernel.Plan{Effect: abi.Irreversible, Intent: true}, o.reason
}

// Run implements [syscalls.External]. It is never called, because Plan always fails.
func (o overdrawn) Run(context.Context, *kernel.Job) kernel.Done { return kernel.Done{Err: o.reason} }

// maxOverdrawn is the most bytes that the refusals of one tree add to the journal. A
// program that asks on for ever gets the same answer, and the journal does not grow.
const maxOverdrawn = 1 << 20

// refuseEarly refuses a request before its body is read, if a limit of the process
// allows no model call or if the tree has stored too much.
func (v *inbound) refuseEarly(k Kernel) *abi.Error {
	s := v.session
	if e := v.budget.full(s.share); e != nil {
		return e
	}
	e := exhausted(k, s.pid, v.format)
	if e == nil || !s.share.mayRefuse() {
		return e
	}
	args, err := json.Marshal(syscalls.ModelArgs{Relay: &syscalls.Relayed{Format: string(v.format)}})
	if err != nil {
		return &abi.Error{Code: abi.Internal, Message: err.Error()}
	}
	call := abi.Call{Pid: s.pid, N: s.number(), Row: "model", Args: args}
	res := k.DoVia(v.r.Context(), call, overdrawn{e})
	s.share.store(0)
	v.w.Header().Set(callHeader, strconv.FormatUint(call.N, 10))
	return res.Err
}

// mayRefuse counts a refusal, and reports whether the journal gets it.
func (s *share) mayRefuse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused += recordSize
	return s.refused <= maxOverdrawn
}

// exhausted returns the refusal of any model call of a process, if one of its own
// limits has nothing left. Money that is spent does not refuse a call to a free
// model, so only a limit of 0 counts here.
func exhausted(k View, pid abi.Pid, f format.Format) *abi.Error {
	_, left := k.Stands(pid)
	for _, u := range []abi.Unit{abi.Money, abi.Tokens, abi.InputTokens, abi.OutputTokens, abi.Steps, abi.ModelCalls} {
		if n, set := left.Get(u); !set || n > 0 || u == abi.OutputTokens && f == format.Embeddings {
			continue
		}
		i, err := k.Info(pid)
		if err != nil {
			return nil
		}
		limit, set := i.Limits.Get(u)
		used := i.Used[u] + i.Doubt[u]
		if !set || used < limit || u == abi.Money && limit > 0 {
			continue // the limit of an account above, or not the last word
		}
		return &abi.Error{Code: abi.LimitCode(u), Message: fmt.Sprintf("the %s limit of this process is %s; %s is used and the call may use %s",
			u, abi.FormatUnit(u, limit), abi.FormatUnit(u, used), abi.FormatUnit(u, 1)), Hint: "finish with what you have"}
	}
	return nil
}

// Sizes of the record of a refused request.
const (
	maxRefused   = 4 << 10 // new bytes that are kept whole
	refusedBegin = 2 << 10 // bytes that are kept of a longer request
)

// A refusedRequest is what the journal keeps of a long request that was refused.
type refusedRequest struct {
	Refused bool     `json:"refused"`
	Bytes   int      `json:"bytes"`
	SHA256  abi.Hash `json:"sha256"`
	Begins  string   `json:"begins"`
}

// Refused implements [kernel.Refusable]. A refused request must not fill the disk, so
// of a long one the journal keeps only the beginning and the hash.
func (c *upstreamCall) Refused() (parts []abi.Hash, blobs []abi.Blob) {
	if c.stored.bytes() <= maxRefused {
		return c.stored.parts, c.stored.fresh
	}
	begin := strings.ToValidUTF8(string(c.raw[:min(len(c.raw), refusedBegin)]), "?")
	note, err := json.Marshal(refusedRequest{true, len(c.raw), abi.HashOf(c.raw), begin})
	if err != nil {
		return nil, nil
	}
	c.shortened = true
	h := abi.HashOf(note)
	c.stored.fresh = []abi.Blob{{Hash: h, Bytes: note}}
	return []abi.Hash{h}, c.stored.fresh
}

// refusedNote returns the error for reading a refused request of which only the
// beginning is kept; nil for any other request.
func refusedNote(rest []byte) error {
	var r refusedRequest
	if json.Unmarshal(rest, &r) != nil || !r.Refused {
		return nil
	}
	return &abi.Error{Code: abi.InvalidCall, Message: fmt.Sprintf("the request was refused, so the journal has only its beginning: of %d bytes with the SHA-256 %s the first are %s", r.Bytes, r.SHA256, r.Begins)}
}
