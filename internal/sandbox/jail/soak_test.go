//go:build linux

package jail_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
)

// soaks are runs in the proportion in which they are tried; each knows how it
// must end. N is a number no other run has.
var soaks = []struct {
	weight int
	spec   sandbox.Spec
	cancel time.Duration
	cause  sandbox.Cause
	stdout string
}{
	{30, sandbox.Spec{Code: "import os\nassert os.listdir('/tmp') == [] and 'x' not in globals()\nx = N; open('/tmp/f', 'w').write(str(x)); print(x)"}, 0, sandbox.OK, "N\n"},
	{20, sandbox.Spec{Argv: sh("test ! -e /tmp/f && echo N | tee /tmp/f")}, 0, sandbox.OK, "N\n"},
	{10, sandbox.Spec{Code: "print(N); raise SystemExit(3)"}, 0, sandbox.Failed, "N\n"},
	{5, sandbox.Spec{Argv: sh("while :; do :; done")}, 20 * time.Millisecond, sandbox.Killed, ""},
	{5, sandbox.Spec{Argv: sh("echo N; setsid sleep 100 & sleep 100"), Limits: sandbox.Limits{Wall: 300 * time.Millisecond}}, 0, sandbox.Timeout, "N\n"},
	{5, sandbox.Spec{Argv: sh("bomb() { bomb | bomb & }; bomb; sleep 9"), Limits: sandbox.Limits{Wall: 300 * time.Millisecond}}, 0, "", ""},
	{5, sandbox.Spec{Code: "x = bytearray(b'x') * (1 << 30)", Limits: sandbox.Limits{Memory: 64 << 20}}, 0, sandbox.Memory, ""},
	{5, sandbox.Spec{Argv: []string{"yes"}, Limits: sandbox.Limits{Output: 1000}}, 0, sandbox.Output, strings.Repeat("y\n", 500)},
	{5, sandbox.Spec{Argv: sh("head -c 9999999 /dev/zero > f"), Limits: sandbox.Limits{FileBytes: 1 << 20}}, 0, sandbox.Files, ""},
}

// held is what this process holds: descriptors, goroutines, bytes of heap.
func held() (fds, goroutines int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names), runtime.NumGoroutine(), m.HeapAlloc
}

// TestSoak mixes runs with kills and bombs on one pool: no wrong answer, and
// nothing grows. 200 of them, or 10,000 with KERN_SOAK=1.
func TestSoak(t *testing.T) {
	rounds := 200
	if os.Getenv("KERN_SOAK") != "" {
		rounds = 10_000
	}
	b := open(t, jail.Config{Max: 6, Warm: 2})
	soak(t, b, 0, 50)
	ready(t, b, 2)
	fds, goroutines, heap := held()
	soak(t, b, 50, rounds)
	if err := until(soon, func() bool {
		f, g, _ := held()
		return b.Warm() == 2 && f <= fds && g <= goroutines
	}); err != nil {
		f, g, _ := held()
		t.Errorf("want %d descriptors and %d goroutines as before, got %d and %d", fds, goroutines, f, g)
	}
	if _, _, now := held(); now > heap+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heap, now)
	}
	// Two processes and a cgroup in three hierarchies for each warm one.
	if err := until(soon, func() bool { return len(groups(os.Getpid())) == 3*2 && len(children(os.Getpid())) == 2*2 }); err != nil {
		t.Errorf("left behind: %v, %v", groups(os.Getpid()), children(os.Getpid()))
	}
}

func soak(t *testing.T, b *jail.Backend, from, to int) {
	var kinds []int
	for i, s := range soaks {
		for range s.weight {
			kinds = append(kinds, i)
		}
	}
	r := rand.New(rand.NewPCG(uint64(from), 1))
	next := make(chan [2]int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for n := range next {
				soakOnce(t, b, n[0], n[1])
			}
		})
	}
	for n := from; n < to; n++ {
		next <- [2]int{n, kinds[r.IntN(len(kinds))]}
	}
	close(next)
	workers.Wait()
}

func soakOnce(t *testing.T, b *jail.Backend, n, kind int) {
	k := soaks[kind]
	number := func(s string) string { return strings.ReplaceAll(s, "N", fmt.Sprint(n)) }
	s := k.spec
	s.Code = number(s.Code)
	if len(s.Argv) == 3 {
		s.Argv = sh(number(s.Argv[2]))
	}
	ctx := context.Background()
	if k.cancel > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.cancel)
		defer cancel()
	}
	out, err := b.Run(ctx, s)
	if err != nil && k.cause != sandbox.Killed {
		t.Errorf("run %d: %v", n, err)
		return
	}
	if k.cause == sandbox.Timeout && len(out.Stdout) == 0 {
		k.stdout = "" // a busy machine may not have come to it
	}
	if k.cause != "" && out.Cause != k.cause || string(out.Stdout) != number(k.stdout) {
		t.Errorf("run %d, %.40q: want %s with %q, got %s, exit %d %s, %q\n%s", n, s.Code+strings.Join(s.Argv, " "), k.cause, number(k.stdout), out.Cause, out.Exit, out.Signal, clip(out.Stdout), clip(out.Stderr))
	}
}
