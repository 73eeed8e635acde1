package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/abi"
)

// control does what wants a connection's descriptor.
func control(t *testing.T, c net.Conn, f func(fd int) error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		if bad := raw.Control(func(fd uintptr) { err = f(int(fd)) }); bad != nil {
			err = bad
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// other is the end of a connection that this process has as well.
func other(c net.Conn) (fd int, err error) {
	all, err := os.ReadDir("/proc/self/fd")
	for _, e := range all {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		name, err := unix.Getsockname(n)
		if at, ok := name.(*unix.SockaddrInet4); err == nil && ok && fmt.Sprintf("%v:%d", net.IP(at.Addr[:]), at.Port) == c.RemoteAddr().String() {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no connection comes from %s: %w", c.RemoteAddr(), err)
}

// impatience is for how long, in milliseconds, a machine may leave something
// unacknowledged, and when, how often and at what distance it is asked whether
// it is there.
var impatience = []struct{ level, name, value int }{
	{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 180_000}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 30}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 5},
}

// TestVanished: a provider whose machine is gone while it thinks is given up, as
// the options of the connection say. It may have thought: its input is paid for,
// and the call goes on as after any connection that broke. Seconds stand here for
// the minutes.
//
// Mutants that die here: connections without these options; what was lost on the
// way is taken not to have been read, or is no attempt.
func TestVanished(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	r := d.before(", fallback: [second]")
	d.open(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { here.Close() })
		theirs, err := other(here)
		if err != nil {
			t.Error(err)
			return
		}
		for _, o := range impatience {
			if v, err := unix.GetsockoptInt(theirs, o.level, o.name); v != o.value || err != nil {
				t.Errorf("the option %d of %d is %d, %v; want %d", o.name, o.level, v, err, o.value)
			}
		}
		control(t, here, func(fd int) error { // whatever comes is dropped before anybody sees it
			nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
		})
		for name, v := range map[int]int{unix.TCP_USER_TIMEOUT: 1000, unix.TCP_KEEPINTVL: 1, unix.TCP_KEEPIDLE: 1} {
			if err := unix.SetsockoptInt(theirs, unix.IPPROTO_TCP, name, v); err != nil {
				t.Error(err)
			}
		}
	}))
	k := r.key("")
	if g := r.ok(k.Key, "/v1/chat/completions", chat("x")); !strings.Contains(g.body, "from the second") {
		t.Errorf("%s", g.body)
	}
	if n := r.lost(k.Pid); n != 1 {
		t.Errorf("%d attempts were lost, want one", n)
	}
	lost := slices.IndexFunc(r.records(k.Pid), func(rec *abi.Record) bool { return rec.Answer != nil && rec.Answer.Err != nil })
	if lost < 0 {
		t.Fatal("no attempt failed")
	}
	a := r.records(k.Pid)[lost].Answer
	if a.Err.Code != abi.ModelNetwork || !strings.Contains(a.Err.Message, "timed out") || a.Usage[abi.InputTokens] == 0 || a.Usage[abi.OutputTokens] != 0 || a.Usage[abi.ModelCalls] != 1 {
		t.Errorf("%+v took %v, want its input, and one call", a.Err, a.Usage)
	}
	if v := r.kernel.Traffic(); strings.Contains(v[0].Rests, "reached") {
		t.Errorf("a machine that took the request is one that %s", v[0].Rests)
	}
}
