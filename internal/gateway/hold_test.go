package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/syscalls"
)

// TestMissed: a process that nobody holds is ended once, when its time is over,
// and nothing is kept of it; one that was held meanwhile has all its time again.
//
// Mutants that die here: the timer of one that was missed is kept, that of one
// that was taken is not stopped.
func TestMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ended []abi.Pid
		h := &holds{end: func(pid abi.Pid, why syscalls.ExitArgs) error {
			if why.Code != abi.ProgramGone || why.Error != "the command that ran the program is gone, and the program with it" {
				t.Errorf("%d ended with %+v", pid, why)
			}
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, pid)
			return nil
		}}
		want := func(pids ...abi.Pid) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ended, pids) {
				t.Errorf("ended %v, want %v", ended, pids)
			}
		}
		h.miss(1, rejoinTime)
		h.miss(2, rejoinTime)
		time.Sleep(rejoinTime - leaveTime/2)
		h.take(2)
		if h.leave(2) {
			h.miss(2, leaveTime)
		}
		time.Sleep(leaveTime * 3 / 4)
		synctest.Wait()
		want(1) // only the first had its time
		time.Sleep(leaveTime)
		synctest.Wait()
		want(1, 2)
		if len(h.timers) > 0 || len(h.count) > 0 {
			t.Errorf("timers left %v, counts left %v", h.timers, h.count)
		}
	})
}

// A stage is a kernel with processes that want to be held, and are never told
// anything.
type stage struct {
	Kernel
	mu    sync.Mutex
	ended []abi.Pid
}

func (s *stage) Ending(abi.Pid) *abi.Error { return nil }
func (s *stage) Where(pid abi.Pid) (kernel.Where, error) {
	return kernel.Where{Next: 1, View: kernel.View{Pid: pid, Spawn: &abi.Spawn{Program: abi.Data{Bytes: []byte(`{"held":true}`)}}}}, nil
}
func (s *stage) Bytes(d abi.Data) ([]byte, error) { return d.Bytes, nil }

func (s *stage) Orders(ctx context.Context, _ abi.Pid, was kernel.Orders) (kernel.Orders, error) {
	<-ctx.Done()
	return was, ctx.Err()
}

func (s *stage) Do(_ context.Context, c abi.Call) abi.Result {
	var a syscalls.ExitArgs
	if err := json.Unmarshal(c.Args, &a); err != nil || c.Row != "exit" || a.Code != abi.ProgramGone {
		return abi.Result{Err: &abi.Error{Code: abi.InvalidCall}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, c.Pid)
	return abi.Result{}
}

// TestHeld: a process that wants to be held ends when nobody came to hold it, be it
// new or found in the journal, and soon after the last of those who held it went;
// never while one is there, nor once the daemon ends.
//
// Mutants that die here: a new one that is not missed, one that was found and is
// not, one of two holders whose leaving ends it, the last whose leaving does not, a
// daemon that misses those whom its own end has torn off.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		ring := &Ring{}
		key := strings.Repeat("0", 64)
		for pid, program := range map[abi.Pid]string{1: `{"key":"` + key + `","held":true}`, 2: `{"key":"` + key + `"}`} {
			if err := ring.Found(pid, &abi.Spawn{Program: abi.Data{Bytes: []byte(program)}}); err != nil {
				t.Fatal(err)
			}
		}
		next := abi.Pid(2)
		g := New(Config{Kernel: s, Ring: ring, Spawn: func(context.Context, abi.Agent, Key) (abi.Pid, error) { next++; return next, nil }})
		defer g.Close()
		for _, hold := range []bool{true, true, true, false} {
			if _, err := g.Issue(t.Context(), Key{Hold: hold}); err != nil {
				t.Fatal(err)
			}
		}
		hold := func(pid abi.Pid) context.CancelFunc {
			ctx, leave := context.WithCancel(t.Context())
			go func() { _ = g.Hold(ctx, pid, func(kernel.Orders) error { return nil }) }()
			synctest.Wait()
			return leave
		}
		want := func(after time.Duration, pids ...abi.Pid) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if slices.Sort(s.ended); !slices.Equal(s.ended, pids) {
				t.Errorf("ended %v, want %v", s.ended, pids)
			}
		}
		first, second, other := hold(4), hold(4), hold(5)
		want(rejoinTime - time.Second) // nobody's time is over
		want(2*time.Second, 1, 3)      // the found and the new one that nobody came for
		first()
		want(2*leaveTime, 1, 3)
		second()
		want(leaveTime/2, 1, 3)
		want(leaveTime, 1, 3, 4)
		g.Rest()
		other()
		want(2*rejoinTime, 1, 3, 4)
	})
}

// A reader is a client that takes what it is given, and keeps until when it must.
type reader struct {
	http.ResponseWriter
	until time.Time
}

func (r *reader) SetWriteDeadline(t time.Time) error { r.until = t; return nil }
func (r *reader) FlushError() error                  { return nil }

// TestLongStream: a client that reads has its time for each part of an answer, and
// not for all of it; also when its model thought for longer than that, and when
// the answer is an error.
//
// Mutants that die here: a time that is set once, a head or a part or an error
// that is written after its time.
func TestLongStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &reader{ResponseWriter: httptest.NewRecorder()}
		v := &inbound{w: &deadlineWriter{ResponseWriter: client}}
		a := &programAnswer{inbound: v}
		want := func(what string) {
			t.Helper()
			if left := time.Until(client.until); left < writeTime/2 || left > writeTime {
				t.Fatalf("%s: it has %s", what, left)
			}
		}
		time.Sleep(2 * writeTime)
		a.flush()
		want("the head")
		for range 20 {
			a.write([]byte("a part\n"), true)
			want("a part")
			time.Sleep(writeTime / 3)
		}
		time.Sleep(2 * writeTime)
		v.fail(badKey)
		want("an error")
	})
}
