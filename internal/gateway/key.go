package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/sys"
)

// keyPrefix begins every key. Programs that look at keys expect "sk-".
const keyPrefix = "sk-kern-"

// newKey makes a key, and the hash by which it is known again.
func newKey() (key, sum string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	key = keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return key, hashKey(key)
}

func hashKey(key string) string {
	h := sha256.Sum256([]byte(key))
	return hex.EncodeToString(h[:])
}

// A ring finds processes by the hashes of their keys. What it holds is read
// from the journal: a key is part of the definition of its process.
type ring struct {
	mu   sync.RWMutex
	keys map[string]found
	pids map[abi.Pid]bool
}

type found struct {
	sum string
	pid abi.Pid
}

func (r *ring) add(sum string, pid abi.Pid) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		r.keys, r.pids = make(map[string]found), make(map[abi.Pid]bool)
	}
	r.keys[sum], r.pids[pid] = found{sum, pid}, true
}

// find looks for a key. What is compared is a hash, so the time it takes says
// nothing of any other key.
func (r *ring) find(key string) (abi.Pid, bool) {
	sum := hashKey(key)
	r.mu.RLock()
	f := r.keys[sum]
	r.mu.RUnlock()
	return f.pid, subtle.ConstantTimeCompare([]byte(sum), []byte(f.sum)) == 1
}

// load reads the keys of all processes from their definitions.
func (g *Gateway) load() error {
	for _, i := range g.cfg.Kernel.List() {
		b, err := g.cfg.Kernel.Bytes(i.Spawn.Program)
		if err != nil {
			return err
		}
		var p sys.Program
		if json.Unmarshal(b, &p) == nil && p.Key != "" {
			g.ring.add(p.Key, i.Pid)
			if p.Held && i.Exit == nil {
				g.miss(i.Pid, rejoinTime)
			}
		}
	}
	return nil
}

// Keyed says whether a process has a key.
func (g *Gateway) Keyed(i *kernel.Info) bool {
	g.ring.mu.RLock()
	defer g.ring.mu.RUnlock()
	return g.ring.pids[i.Pid]
}

// A Key is a request for a process that a program outside reaches with a key.
type Key struct {
	Name     string
	Limits   abi.Limits
	Account  string
	Priority int
	Watchdog abi.Watchdog
	Parent   abi.Pid // 0: none
	Hold     bool    // it ends when nobody holds it any more
}

// An Issued key is said once; only its hash is kept.
type Issued struct {
	Pid       abi.Pid
	Key       string
	OpenAI    string          // the base URL for programs that speak like OpenAI
	Anthropic string          // the same for Anthropic
	InPath    string          // the address with the key in it, for programs that bring a credential of their own
	Own       map[string]bool // by format: the daemon has a key for it, or another place to ask
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
		pid, err = g.cfg.Spawn(ctx, sys.Program{Name: k.Name, Hosted: true, Held: k.Hold, Key: sum}, k)
	}
	if err != nil {
		return Issued{}, err
	}
	g.ring.add(sum, pid)
	if k.Hold {
		g.miss(pid, rejoinTime)
	}
	return g.issued(pid, key), nil
}

func (g *Gateway) issued(pid abi.Pid, key string) Issued {
	base := g.Base()
	return Issued{Pid: pid, Key: key, OpenAI: base + "/v1", Anthropic: base, InPath: base + "/k/" + key,
		Own: map[string]bool{"openai": g.cfg.Models.Keyed("openai"), "anthropic": g.cfg.Models.Keyed("anthropic")}}
}

// child starts a process below another, by a system call of that one.
func (g *Gateway) child(ctx context.Context, k Key, sum string) (abi.Pid, error) {
	args, err := json.Marshal(sys.KeyArgs{Name: k.Name, Key: sum, Priority: &k.Priority, Limits: k.Limits})
	if err != nil {
		return 0, err
	}
	s, err := g.session(k.Parent)
	if err != nil {
		return 0, err
	}
	res := g.cfg.Kernel.Do(ctx, abi.Call{Pid: k.Parent, N: s.number(), Row: "key", Args: args})
	if res.Err != nil {
		return 0, res.Err
	}
	var out struct{ Pid abi.Pid }
	return out.Pid, json.Unmarshal(res.Value, &out)
}

// named finds the child of a name, and makes it when there is none that lives.
// It has no key: its parent's opens it, with the name.
func (g *Gateway) named(ctx context.Context, parent *session, name string, l abi.Limits) (*session, error) {
	if len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: "the name of a child: expected up to 64 plain characters", Where: ChildHeader}
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
	for _, pid := range i.Kids {
		kid, err := g.cfg.Kernel.Info(pid)
		if err == nil && kid.Spawn.Name == name && kid.Exit == nil {
			parent.knows(name, pid)
			return g.session(pid)
		}
	}
	_, sum := newKey() // nobody is told
	pid, err := g.child(ctx, Key{Name: name, Limits: l, Priority: i.Priority, Parent: parent.pid}, sum)
	if err != nil {
		return nil, err
	}
	g.ring.add(sum, pid)
	parent.knows(name, pid)
	return g.session(pid)
}

// readLimits reads limits as a header has them: money=0.5,steps=10.
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
	return l, nil
}

// End ends the process of a key as its program ended: with an output, or with
// an error.
func (g *Gateway) End(ctx context.Context, pid abi.Pid, a sys.ExitArgs) error {
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

// Base is the address at which programs reach the gateway.
func (g *Gateway) Base() string {
	if base := g.base.Load(); base != nil {
		return *base
	}
	return ""
}
