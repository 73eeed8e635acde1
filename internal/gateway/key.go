package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/syscalls"
)

// keyPrefix begins every key. Programs that look at keys expect "sk-".
const keyPrefix = "sk-kern-"

// newKey makes a key, and the hash under which the ring finds it.
func newKey() (key, sum string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // rand.Read never fails
	key = keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return key, hashKey(key)
}

func hashKey(key string) string {
	h := sha256.Sum256([]byte(key))
	return hex.EncodeToString(h[:])
}

// A Ring finds processes by the hashes of their keys. It is built from the journal,
// because a key is part of the agent of its process. The ring also knows the keys of
// ended processes, so that their programs learn the reason.
type Ring struct {
	Blob func(abi.Hash) ([]byte, error) // reads the journal

	mu    sync.RWMutex
	keys  map[abi.Hash]abi.Pid
	pids  map[abi.Pid]bool
	held  []abi.Pid         // processes from the journal that must be held
	plain map[abi.Hash]bool // agents without a key; many processes may share one
}

// add puts a process into the ring, under the hash of its key in hex.
func (r *Ring) add(sum string, pid abi.Pid) {
	var h abi.Hash
	if h.UnmarshalText([]byte(sum)) != nil {
		return // sum is not a hash, so no key matches it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		r.keys, r.pids = make(map[abi.Hash]abi.Pid), make(map[abi.Pid]bool)
	}
	r.keys[h], r.pids[pid] = pid, true
}

// find returns the process of a key. It looks for the hash of the key, so the time of
// the lookup reveals nothing about other keys.
func (r *Ring) find(key string) (abi.Pid, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	pid, ok := r.keys[sha256.Sum256([]byte(key))]
	return pid, ok
}

// plainMax is the number of agents without a key that a ring remembers.
const plainMax = 1000

// Found adds a process from the journal to the ring if its agent has a key.
func (r *Ring) Found(pid abi.Pid, s *abi.Spawn) error {
	if r.plain[s.Program.Hash] {
		return nil
	}
	b, err := s.Program.Bytes, error(nil)
	if h := s.Program.Hash; !h.IsZero() {
		b, err = r.Blob(h)
	}
	if err != nil {
		return err
	}
	var p struct { // the fields of an abi.Agent that matter here
		Key  string `json:"key"`
		Held bool   `json:"held"`
	}
	switch {
	case json.Unmarshal(b, &p) == nil && p.Key != "":
		if r.add(p.Key, pid); p.Held {
			r.held = append(r.held, pid)
		}
	case !s.Program.Hash.IsZero():
		if len(r.plain) >= plainMax || r.plain == nil {
			r.plain = make(map[abi.Hash]bool)
		}
		r.plain[s.Program.Hash] = true
	}
	return nil
}

// miss ends each process from the journal that no client holds again in time.
func (r *Ring) miss(g *Gateway) {
	for _, pid := range r.held {
		if g.cfg.Kernel.Ending(pid) == nil {
			g.miss(pid, rejoinTime)
		}
	}
	r.held, r.plain = nil, nil
}

// Keyed reports whether a process has a key.
func (g *Gateway) Keyed(i *kernel.Info) bool {
	g.cfg.Ring.mu.RLock()
	defer g.cfg.Ring.mu.RUnlock()
	return g.cfg.Ring.pids[i.Pid]
}

// A Key is a request for a process and the key by which a program reaches it.
type Key struct {
	Name     string
	Limits   abi.Limits
	Account  string
	Priority int
	Watchdog abi.Watchdog
	Parent   abi.Pid // 0: none
	Hold     bool    // the process ends when no client holds it
	Title    string  // the command line of the program; empty: unknown
}

// An Issued is a new key with its addresses. Its text exists only here, because the
// journal holds only the hash.
type Issued struct {
	Pid       abi.Pid
	Key       string
	OpenAI    string                  // the base URL for programs that use the formats of OpenAI
	Anthropic string                  // the base URL for programs that use the format of Anthropic
	InPath    string                  // the base URL with the key in it, for programs with a credential of their own
	Ways      map[string]provider.Way // by format
}

// Issue makes a process and its key.
func (g *Gateway) Issue(ctx context.Context, k Key) (Issued, error) {
	key, sum := newKey()
	if k.Watchdog.Profile == "" {
		k.Watchdog.Profile = "strict" // a warning cannot reach the model
	}
	var pid abi.Pid
	var err error
	if k.Parent != 0 {
		pid, err = g.child(ctx, k, sum)
	} else {
		pid, err = g.cfg.Spawn(ctx, abi.Agent{Name: k.Name, Hosted: true, Held: k.Hold, Key: sum}, k)
	}
	if err != nil {
		return Issued{}, err
	}
	g.cfg.Ring.add(sum, pid)
	if k.Hold {
		g.miss(pid, rejoinTime)
	}
	base := g.Base()
	return Issued{Pid: pid, Key: key, OpenAI: base + "/v1", Anthropic: base, InPath: base + "/k/" + key,
		Ways: map[string]provider.Way{"openai": g.cfg.Models.Way("openai"), "anthropic": g.cfg.Models.Way("anthropic")}}, nil
}

// child starts a process below k.Parent, by a system call of the parent.
func (g *Gateway) child(ctx context.Context, k Key, sum string) (abi.Pid, error) {
	return g.Below(ctx, k.Parent, "key", syscalls.KeyArgs{Name: k.Name, Key: sum, Priority: &k.Priority, Limits: k.Limits, Held: k.Hold, Title: k.Title})
}

// Below makes a system call of parent that starts a process below it, and returns the
// pid of the new process.
func (g *Gateway) Below(ctx context.Context, parent abi.Pid, row string, a any) (abi.Pid, error) {
	args, err := json.Marshal(a)
	if err != nil {
		return 0, err
	}
	s, err := g.session(parent)
	if err != nil {
		return 0, err
	}
	if e := tooManyChildren(g.cfg.Kernel, parent); e != nil {
		return 0, e
	}
	res := g.cfg.Kernel.Do(ctx, abi.Call{Pid: parent, N: s.number(), Row: row, Args: args})
	if res.Err != nil {
		return 0, res.Err
	}
	var out struct{ Pid abi.Pid }
	err = json.Unmarshal(res.Value, &out)
	return out.Pid, err
}

// maxChildren is the most processes that a tree of keys starts without a limit on
// children, because each of them stays in the journal.
const maxChildren = 1000

// tooManyChildren returns an error if no process from pid upwards has a limit on
// children, and the top one has started maxChildren.
func tooManyChildren(k View, pid abi.Pid) *abi.Error {
	for {
		i, err := k.Info(pid)
		if err != nil {
			return nil // the call itself reports it
		}
		if _, set := i.Limits.Get(abi.Children); set {
			return nil
		}
		if i.Parent == 0 {
			if i.Used[abi.Children] < maxChildren {
				return nil
			}
			return &abi.Error{Code: abi.LimitChildren, Message: fmt.Sprintf("process %d has no limit on children, and has started %d, which is the most without one", pid, i.Used[abi.Children]),
				Hint: fmt.Sprintf("for more: kern limit %d --children N", pid)}
		}
		pid = i.Parent
	}
}

// named returns the session of the child with this name. It starts the child if none
// with the name is alive. It refuses the name of a child whose loop Kern runs, because
// that loop alone numbers the calls of its process. No program has the key of the child, because the key of the
// parent and the name are enough.
func (g *Gateway) named(ctx context.Context, parent *session, name string, l abi.Limits) (*session, error) {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: "the name of a child: expected 1 to 64 plain characters", Where: ChildHeader}
	}
	parent.naming.Lock()
	defer parent.naming.Unlock()
	if pid, ok := parent.child(name); ok && g.cfg.Kernel.Ending(pid) == nil {
		return g.session(pid)
	}
	i, err := g.cfg.Kernel.Info(parent.pid)
	if err != nil {
		return nil, err
	}
	taken := false
	for _, pid := range i.Children {
		if g.cfg.Kernel.Ending(pid) != nil {
			continue
		}
		kid, err := g.cfg.Kernel.Info(pid)
		switch {
		case err != nil || kid.Name != name || kid.Exit != nil:
		case !g.Keyed(&kid):
			taken = true
		default:
			parent.knows(name, pid)
			return g.session(pid)
		}
	}
	if taken {
		return nil, notByKey
	}
	_, sum := newKey() // the key itself is dropped
	pid, err := g.child(ctx, Key{Name: name, Limits: l, Priority: i.Priority, Parent: parent.pid}, sum)
	if err != nil {
		return nil, err
	}
	g.cfg.Ring.add(sum, pid)
	parent.knows(name, pid)
	return g.session(pid)
}

// readLimits parses the limits of a header, such as money=0.5,steps=10.
func readLimits(s string) (l abi.Limits, err error) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, amount, _ := strings.Cut(part, "=")
		u, ok := abi.UnitOf(strings.TrimSpace(name))
		if !ok {
			return l, &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf("there is no limit %q, expected something like money=0.5,steps=10", name), Where: LimitsHeader}
		}
		n, err := abi.ParseUnit(u, strings.TrimSpace(amount))
		if err != nil {
			return l, &abi.Error{Code: abi.InvalidArguments, Message: err.Error(), Where: LimitsHeader}
		}
		l.Set(u, n)
	}
	return l, enforceable(&l)
}

// enforceable returns an error if this host cannot enforce one of the limits.
func enforceable(l *abi.Limits) (err error) {
	l.Each(func(u abi.Unit, _ int64) {
		if !slices.Contains(abi.SettableUnits(), u) && err == nil {
			err = &abi.Error{Code: abi.InvalidArguments, Message: "no such limit: this host cannot enforce " + u.String()}
		}
	})
	return err
}

// End ends the process of a key in the way in which its program ended: with an output,
// or with an error.
func (g *Gateway) End(ctx context.Context, pid abi.Pid, a syscalls.ExitArgs) error {
	args, err := json.Marshal(a)
	if err != nil {
		return err
	}
	s, err := g.session(pid)
	if err != nil {
		return err
	}
	if res := g.cfg.Kernel.Do(ctx, abi.Call{Pid: pid, N: s.number(), Row: "exit", Args: args}); res.Err != nil {
		return res.Err
	}
	return nil
}

// Base returns the URL at which programs reach the gateway; empty before [Gateway.Found].
func (g *Gateway) Base() string {
	if base := g.base.Load(); base != nil {
		return *base
	}
	return ""
}
