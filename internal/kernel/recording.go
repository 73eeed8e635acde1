package kernel

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal"
)

// A Recording is the journal of one process, to be gone through again. Nothing
// that is done with it touches the live state.
type Recording struct {
	Records []*abi.Record

	store journal.Store
	m     machine
	at    int // records folded
}

// Recording reads the journal of a process.
func (w window) Recording(ctx context.Context, pid abi.Pid) (*Recording, error) {
	k := w.k
	if err := k.cfg.Log.Flush(ctx); err != nil {
		return nil, k.broken()
	}
	r := &Recording{store: k.cfg.Store, m: newMachine()}
	for rec, err := range k.cfg.Store.Records(pid, 0) {
		if err != nil {
			return nil, err
		}
		r.Records = append(r.Records, rec)
	}
	if len(r.Records) == 0 {
		return nil, unknown(pid)
	}
	return r, nil
}

// Where says where the process stood after its first n records. It is cheap
// when n grows from call to call.
func (r *Recording) Where(n int) (w Where, err error) {
	if n < r.at {
		r.m, r.at = newMachine(), 0
	}
	for ; r.at < n; r.at++ {
		if err := r.m.replay(r.store, r.Records[r.at]); err != nil {
			return w, err
		}
	}
	p := r.m.procs[r.Records[0].Pid]
	w, args := p.where()
	b := book{store: r.store}
	for i := range w.Unfinished {
		if w.Unfinished[i].Args, err = b.Bytes(args[i]); err != nil {
			return w, err
		}
	}
	return w, nil
}

// Check folds the whole recording, looks at every step whether the account of
// the process kept its limits, and compares the end with the live state: they
// must be the same to the byte.
func (w window) Check(r *Recording) error {
	k := w.k
	m := newMachine()
	pid := r.Records[0].Pid
	for _, rec := range r.Records {
		if err := m.replay(r.store, rec); err != nil {
			return err
		}
		if err := m.procs[pid].kept(rec); err != nil {
			return err
		}
	}
	for _, kid := range k.below(pid) {
		if err := m.read(r.store, kid, func(*abi.Record) bool { return true }); err != nil {
			return err
		}
	}
	folded, err := m.procs[pid].dump()
	if err != nil {
		return err
	}
	live, err := k.Dump(pid)
	if err != nil {
		return err
	}
	if string(folded) != string(live) {
		for _, p := range append(k.below(pid), pid) {
			if i, err := k.Info(p); err == nil && (m.procs[p] == nil || i.Records != m.procs[p].N) {
				return nil // it went on meanwhile: there is nothing to compare with
			}
		}
		return fmt.Errorf("the live state is not the fold of its %d records:\nlive   %s\nfolded %s", len(r.Records), live, folded)
	}
	return nil
}

// kept says whether the account kept its limits after a record. What a call
// took beyond its reservation is drift, and is no breach.
func (f *fold) kept(r *abi.Record) (err error) {
	if r.Kind != abi.KindBegan {
		return nil
	}
	a := f.acct
	a.Limits.Each(func(u abi.Unit, limit int64) {
		if u < abi.Units && r.Intent.Reserve[u] > 0 && a.Settled[u]+a.Reserved[u] > limit {
			err = fmt.Errorf("record %d: the call %d began past the limit on %s", r.N, r.Call, u)
		}
	})
	return err
}

func (f *fold) dump() ([]byte, error) {
	return json.Marshal(struct {
		*fold
		Limits   abi.Limits `json:"limits"`
		Settled  abi.Usage  `json:"settled"`
		Reserved abi.Usage  `json:"reserved"`
		Stuck    abi.Usage  `json:"stuck"`
	}{f, f.acct.Limits, f.acct.Settled, f.acct.Reserved, f.acct.Doubt})
}
