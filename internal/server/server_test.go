package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Mutants that die here: unknown keys forgiven; a key that stands twice
// forgiven; what follows the object forgiven; no bound on the body; a change of
// one limit that drops the others; a wait that goes on when its client is gone
// or the daemon ends; a blob that is not filled in; a socket for everybody;
// a version that is not compared.

// fake is a kernel with one process, 7, that has exited when gone is closed.
type fake struct {
	mu      sync.Mutex
	info    kernel.Info
	changes []string
	blobs   map[abi.Hash][]byte
	records []*abi.Record
	gone    chan struct{}
	waiting chan struct{} // told of every wait
	left    chan error    // told how every wait ended
	stopped chan struct{}
}

func newFake() *fake {
	f := &fake{gone: make(chan struct{}), waiting: make(chan struct{}, 8), left: make(chan error, 8), stopped: make(chan struct{}), blobs: make(map[abi.Hash][]byte)}
	f.info = kernel.Info{Pid: 7, Spawn: &abi.Spawn{Name: "seven", Priority: 10}, State: abi.Ready, Priority: 10, Born: 1e18}
	f.info.Limits.Set(abi.Money, 5e9)
	f.info.Limits.Set(abi.Steps, 20)
	return f
}

func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, fmt.Sprintf(format, args...))
}

func (f *fake) noted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.changes, "; ")
	f.changes = nil
	return s
}

func (f *fake) known(pid abi.Pid) error {
	if pid != 7 {
		return &abi.Error{Code: abi.UnknownProcess, Message: fmt.Sprintf("there is no process %d", pid)}
	}
	return nil
}

func (f *fake) Signal(_ context.Context, pid abi.Pid, s abi.Signal, by string) error {
	f.note("signal %d %s %s", pid, s, by)
	return f.known(pid)
}

func (f *fake) Decide(_ context.Context, pid abi.Pid, call uint64, yes bool, by, words string) error {
	f.note("decide %d %d %v %s %s", pid, call, yes, by, words)
	return f.known(pid)
}

func (f *fake) Change(_ context.Context, pid abi.Pid, c abi.Change) error {
	b, err := json.Marshal(c)
	f.note("change %d %s", pid, b)
	if c.Limits != nil {
		f.info.Limits = *c.Limits
	}
	return errors.Join(err, f.known(pid))
}

func (f *fake) SetAccount(_ context.Context, name, by string, l abi.Limits) error {
	b, err := l.MarshalJSON()
	f.note("account %s %s %s", name, by, b)
	return err
}

func (f *fake) Info(pid abi.Pid) (kernel.Info, error) { return f.info, f.known(pid) }
func (f *fake) List() []kernel.Info                   { return []kernel.Info{f.info} }

func (f *fake) Accounts() []kernel.Account {
	a := kernel.Account{Name: "team", Used: abi.Usage{abi.Money: 2e9}, Reserved: abi.Usage{abi.Money: 1e9}}
	a.Limits.Set(abi.Money, 4e9)
	a.Limits.Set(abi.Tokens, 100)
	return []kernel.Account{a}
}

func (f *fake) Bytes(d abi.Data) ([]byte, error) {
	if d.Hash.IsZero() {
		return d.Bytes, nil
	}
	b, ok := f.blobs[d.Hash]
	if !ok {
		return nil, errors.New("there is no such blob")
	}
	return b, nil
}

func (f *fake) Commits(_ context.Context, pid abi.Pid) (any, error) {
	return []string{"commits"}, f.known(pid)
}

func (f *fake) Diff(_ context.Context, pid abi.Pid, seq uint64) (any, error) {
	return []uint64{seq}, f.known(pid)
}

func (f *fake) Undo(_ context.Context, pid abi.Pid, u Undo) (any, error) {
	f.note("undo %d %d %v %s", pid, u.To, u.Partial, u.By)
	return done{true}, f.known(pid)
}

func (f *fake) Verify(_ context.Context, dir string) (any, error) {
	return nil, &abi.Error{Code: abi.WorkspaceMissing, Message: "nobody worked in " + dir}
}

func (f *fake) api() *API {
	return &API{
		About: About{Version: "1.2.3", Pid: 42}, Kernel: f, Views: f,
		Spawn: func(_ context.Context, r Run) (abi.Pid, error) {
			f.note("spawn %s %s", r.Program.Model, r.Task)
			return 8, nil
		},
		Files: f,
		Fork: func(_ context.Context, pid abi.Pid, fork Fork) (any, error) {
			f.note("fork %d %d%s", pid, fork.At, fork.Workspace)
			return Started{9}, f.known(pid)
		},
		Wait: func(ctx context.Context, pid abi.Pid) error {
			f.waiting <- struct{}{}
			var err error
			select {
			case <-f.gone:
			case <-ctx.Done():
				err = ctx.Err()
			}
			f.left <- err
			return err
		},
		Result: func(pid abi.Pid) (any, error) { return map[string]any{"pid": pid, "exit": "done"}, f.known(pid) },
		Replay: func(_ context.Context, pid abi.Pid, r *Run) (any, error) {
			f.note("replay %d %v", pid, r != nil)
			return map[string]any{"same": true}, f.known(pid)
		},
		Verify: func(_ context.Context, pid abi.Pid) (int, error) { return 3, nil },
		Records: func(ctx context.Context, pid abi.Pid, after uint64, follow bool, each func(*abi.Record) error) error {
			for _, r := range f.records {
				if r.N > after {
					c := *r
					if err := each(&c); err != nil {
						return err
					}
				}
			}
			if follow {
				f.waiting <- struct{}{}
				<-ctx.Done()
				f.left <- ctx.Err()
				return ctx.Err()
			}
			return nil
		},
		Stop: func() { close(f.stopped) },
	}
}

const okRun = `{"program":{"model":"script:x","script":"replies: []"},"priority":10,"task":"go"}`

// TestRequests is every endpoint with what it takes and what it refuses.
func TestRequests(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string // in the answer
		done               string // at the kernel
	}{
		{"GET", "/v1/daemon", "", 200, `"version":"1.2.3"`, ""},
		{"GET", "/v1/processes", "", 200, `[{"pid":7,`, ""},
		{"GET", "/v1/processes?all=1", "", 400, "only the parameters", ""},
		{"GET", "/v1/processes/7", "", 200, `"limits":{"money":"5","steps":20}`, ""},
		{"GET", "/v1/processes/8", "", 404, `"code":"UNKNOWN_PROCESS"`, ""},
		{"GET", "/v1/processes/seven", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/-7", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/07", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/99999999999999999999", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/7/result", "", 200, `"exit":"done"`, ""},
		{"GET", "/v1/processes/7/result?wait=soon", "", 400, `expected 0 or 1`, ""},
		{"GET", "/v1/processes/7/records?after=x", "", 400, `"where":"/after"`, ""},
		{"GET", "/v1/processes/7/records?after=-1", "", 400, `"where":"/after"`, ""},
		{"GET", "/v1/processes/7/records?follow=1&follow=0", "", 400, "each once", ""},
		{"GET", "/v1/processes/8/records", "", 404, "UNKNOWN_PROCESS", ""},
		{"POST", "/v1/processes", okRun, 200, `{"pid":8}`, "spawn script:x go"},
		{"POST", "/v1/processes", `{"program":{"model":"script:x","modell":"y"},"priority":1,"task":"go"}`, 400, `unknown field \"modell\"`, ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"priority":2,"task":"go"}`, 400, "priority", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":100,"task":"go"}`, 400, "0 (the most urgent) to 99", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":"high","task":"go"}`, 400, "expected a whole number", ""},
		{"POST", "/v1/processes", `{"program":{},"priority":1,"task":"go"}`, 400, "expected script:FILE", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x","hosted":true},"priority":1,"task":"go"}`, 400, "/program/hosted", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x","rows":["model"]},"priority":1,"task":"go"}`, 400, "/program/rows/0", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x","tools":[{"name":"t"}]},"priority":1,"task":"go"}`, 400, "/program/tools/0/command", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"task":"go","limits":{"cpu":"5s"}}`, 400, "cannot enforce", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"task":"go","limits":{"money":"-1"}}`, 400, "expected dollars", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"task":"go","watchdog":{"profile":"lazy"}}`, 400, "smart, strict or off", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"task":"go"} {}`, 400, "not JSON", ""},
		{"POST", "/v1/processes", `[]`, 400, "expected an object", ""},
		{"POST", "/v1/processes", `null`, 400, "expected an object", ""},
		{"POST", "/v1/processes", ``, 400, "not JSON", ""},
		{"POST", "/v1/processes", "{\"task\":\"\xff\"}", 400, "not JSON", ""},
		{"GET", "/v1/processes/7/commits", "", 200, `["commits"]`, ""},
		{"GET", "/v1/processes/8/commits", "", 404, "UNKNOWN_PROCESS", ""},
		{"GET", "/v1/processes/7/commits?seq=1", "", 400, "only the parameters", ""},
		{"GET", "/v1/processes/7/diff", "", 200, `[0]`, ""},
		{"GET", "/v1/processes/7/diff?seq=12", "", 200, `[12]`, ""},
		{"GET", "/v1/processes/7/diff?seq=0", "", 400, `"where":"/seq"`, ""},
		{"GET", "/v1/processes/7/diff?seq=last", "", 400, `"where":"/seq"`, ""},
		{"POST", "/v1/processes/7/undo", `{"to":3,"partial":true,"by":"ann"}`, 200, `{"ok":true}`, "undo 7 3 true ann"},
		{"POST", "/v1/processes/7/undo", `{"to":-3}`, 400, "/to", ""},
		{"POST", "/v1/processes/7/undo", `{"all":true}`, 400, "all", ""},
		{"POST", "/v1/workspaces/verify", `{"dir":"/tmp/x"}`, 404, "WORKSPACE_MISSING", ""},
		{"POST", "/v1/workspaces/verify", `{"dir":"x"}`, 400, `"where":"/dir"`, ""},
		{"POST", "/v1/processes/7/signal", `{"signal":"kill","by":"ann"}`, 200, `{"ok":true}`, "signal 7 kill ann"},
		{"POST", "/v1/processes/7/signal", `{"signal":"hup"}`, 400, "stop, cont, term or kill", ""},
		{"POST", "/v1/processes/8/signal", `{"signal":"kill"}`, 404, "UNKNOWN_PROCESS", "signal 8 kill "},
		{"POST", "/v1/processes/7/decide", `{"yes":true,"words":"fine","call":3}`, 200, `{"ok":true}`, "decide 7 3 true  fine"},
		{"POST", "/v1/processes/7/decide", `{"yes":"true"}`, 400, "expected true or false", ""},
		{"POST", "/v1/processes/7/decide", `{"yes":true,"call":-1}`, 400, "/call", ""},
		{"PATCH", "/v1/processes/7", `{"limits":{"steps":30},"by":"ann"}`, 200, `"money":"5","steps":30`, `change 7 {"limits":{"money":"5","steps":30},"by":"ann"}`},
		{"PATCH", "/v1/processes/7", `{"unset":["money"],"priority":3}`, 200, `"steps":20`, `change 7 {"limits":{"steps":20},"priority":3}`},
		{"PATCH", "/v1/processes/7", `{"unset":["mony"]}`, 400, "/unset/0", ""},
		{"PATCH", "/v1/processes/7", `{}`, 400, "nothing to change", ""},
		{"PATCH", "/v1/processes/7", `{"priority":-1}`, 400, "/priority", ""},
		{"POST", "/v1/processes/7/fork", `{"at":5}`, 200, `{"pid":9}`, "fork 7 5"},
		{"POST", "/v1/processes/7/fork", `{"at":1.5}`, 400, "/at", ""},
		{"POST", "/v1/processes/7/replay", `{}`, 200, `"same":true`, "replay 7 false"},
		{"POST", "/v1/processes/7/replay", `{"with":` + okRun + `}`, 200, `"same":true`, "replay 7 true"},
		{"POST", "/v1/processes/7/replay", `{"with":{"priority":1,"task":""}}`, 400, "/program/model", ""},
		{"POST", "/v1/processes/7/verify", ``, 200, `{"pid":7,"records":3}`, ""},
		{"GET", "/v1/accounts", "", 200, `"left":{"money":"1","tokens":100}`, ""},
		{"PUT", "/v1/accounts/team", `{"limits":{"money":"9"},"by":"ann"}`, 200, `"name":"team"`, `account team ann {"money":"9","tokens":100}`},
		{"PUT", "/v1/accounts/team", `{"unset":["money","tokens"]}`, 200, `"name":"team"`, `account team  {}`},
		{"PUT", "/v1/accounts/team", `{"limits":{"wall":"5s"}}`, 400, "does not add up", ""},
		{"PUT", "/v1/accounts/team", `{"priority":5}`, 400, "/priority", ""},
		{"PUT", "/v1/accounts/a%20b", `{}`, 400, "/name", ""},
		{"PUT", "/v1/accounts/..%2fx", `{}`, 400, "/name", ""},
		{"GET", "/v2/processes", "", 400, "there is no GET /v2/processes", ""},
		{"DELETE", "/v1/processes/7", "", 400, "there is no DELETE /v1/processes/7", ""},
	} {
		f := newFake()
		w := httptest.NewRecorder()
		f.api().Handler().ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		got := w.Body.String()
		if w.Code != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s %s\n  answers %d %s\n  want    %d %s", c.method, c.path, c.body, w.Code, got, c.status, c.want)
		}
		if n := f.noted(); n != c.done {
			t.Errorf("%s %s %s\n  does %q, want %q", c.method, c.path, c.body, n, c.done)
		}
		if c.status >= 400 {
			var e failure
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Err == nil || e.Err.Code == "" || e.Err.Message == "" {
				t.Errorf("%s %s: the error is %s, %v", c.method, c.path, got, err)
			}
		}
	}
}

// TestLargeBody refuses a body above its bound without reading it all.
func TestLargeBody(t *testing.T) {
	read := 0
	body := io.TeeReader(io.LimitReader(zeros{}, 100<<20), counter{&read})
	w := httptest.NewRecorder()
	f := newFake()
	f.api().Handler().ServeHTTP(w, httptest.NewRequest("POST", "/v1/processes/7/signal", body))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "larger than 262144 bytes") || read > 1<<20 {
		t.Errorf("%d %s after %d bytes", w.Code, w.Body, read)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

type counter struct{ n *int }

func (c counter) Write(b []byte) (int, error) { *c.n += len(b); return len(b), nil }

// serve serves f on a socket until the test ends.
func serve(t *testing.T, f *fake) (dir string, end func()) {
	t.Helper()
	dir = t.TempDir()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := NewServer(ctx, f.api().Handler())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	var once sync.Once
	end = func() {
		once.Do(func() {
			if err := Unlisten(dir); err != nil {
				t.Error(err)
			}
			cancel()
			short, stop := context.WithTimeout(context.Background(), 5*time.Second)
			defer stop()
			if err := s.Shutdown(short); err != nil {
				t.Error(err)
			}
			<-done
		})
	}
	t.Cleanup(end)
	return dir, end
}

func dial(t *testing.T, dir, version string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), SocketOf(dir), version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestWaitEnds waits, and ends the wait in every way there is.
func TestWaitEnds(t *testing.T) {
	t.Run("exit", func(t *testing.T) {
		f := newFake()
		dir, _ := serve(t, f)
		go func() { <-f.waiting; close(f.gone) }()
		var r map[string]any
		if err := dial(t, dir, "1.2.3").Result(t.Context(), 7, true, &r); err != nil || r["exit"] != "done" {
			t.Errorf("%v, %v", r, err)
		}
	})
	t.Run("client", func(t *testing.T) {
		f := newFake()
		dir, _ := serve(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-f.waiting; cancel() }()
		var r map[string]any
		if err := dial(t, dir, "1.2.3").Result(ctx, 7, true, &r); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if err := <-f.left; !errors.Is(err, context.Canceled) {
			t.Errorf("the wait at the daemon ended with %v", err)
		}
	})
	t.Run("daemon", func(t *testing.T) {
		f := newFake()
		dir, end := serve(t, f)
		go func() { <-f.waiting; end() }()
		var r map[string]any
		var e *abi.Error
		if err := dial(t, dir, "1.2.3").Result(t.Context(), 7, true, &r); !errors.As(err, &e) || e.Code != abi.DaemonGone {
			t.Errorf("%v", err)
		}
	})
	t.Run("crash", func(t *testing.T) {
		dir := t.TempDir()
		l, err := Listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, _ = bufio.NewReader(c).ReadString('\n')
				c.Close() // without a word
			}
		}()
		var r map[string]any
		if err := dial(t, dir, "1.2.3").Result(t.Context(), 7, true, &r); !errors.Is(err, ErrLost) {
			t.Errorf("%v", err)
		}
	})
}

// TestRecords streams records, large payloads included, and follows until the
// reader leaves or the daemon ends.
func TestRecords(t *testing.T) {
	f := newFake()
	big := bytes.Repeat([]byte("large "), 100)
	d, blob := abi.NewData(big)
	f.blobs[blob.Hash] = blob.Bytes
	small, _ := abi.NewData([]byte("small"))
	f.records = []*abi.Record{
		{Pid: 7, N: 1, Kind: abi.KindSpawned, Spawn: &abi.Spawn{Name: "seven", Task: small}},
		{Pid: 7, N: 2, Kind: abi.KindMailed, Note: &abi.Note{Body: d}},
		{Pid: 7, N: 3, Kind: abi.KindEnding, Exit: &abi.ExitInfo{Exit: abi.ExitDone, Output: d}},
	}
	dir, end := serve(t, f)
	c := dial(t, dir, "1.2.3")
	var got []*abi.Record
	keep := func(r *abi.Record, _ []byte) error { got = append(got, r); return nil }
	if err := c.Records(t.Context(), 7, 0, false, keep); err != nil || len(got) != 3 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	if s := string(got[0].Spawn.Task.Bytes); s != "small" {
		t.Errorf("the task is %q", s)
	}
	if b := got[1].Note.Body; !bytes.Equal(b.Bytes, big) || b.Hash != d.Hash {
		t.Errorf("the message is %q, %s", b.Bytes, b.Hash)
	}
	got = nil
	if err := c.Records(t.Context(), 7, 2, false, keep); err != nil || len(got) != 1 || got[0].N != 3 {
		t.Errorf("after 2: %d records, %v", len(got), err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-f.waiting; cancel() }()
	if err := c.Records(ctx, 7, 0, true, keep); !errors.Is(err, context.Canceled) {
		t.Errorf("the reader that leaves: %v", err)
	}
	if err := <-f.left; !errors.Is(err, context.Canceled) {
		t.Errorf("its stream ended with %v", err)
	}

	go func() { <-f.waiting; end() }()
	var e *abi.Error
	if err := c.Records(t.Context(), 7, 0, true, keep); !errors.As(err, &e) || e.Code != abi.DaemonGone {
		t.Errorf("at the daemon's end: %v", err)
	}
}

// TestBrokenStream says in the last line why a stream cannot go on.
func TestBrokenStream(t *testing.T) {
	f := newFake()
	lost := abi.Data{Hash: abi.HashOf([]byte("x")), Size: 1}
	f.records = []*abi.Record{{Pid: 7, N: 1, Kind: abi.KindSpawned, Spawn: &abi.Spawn{}}, {Pid: 7, N: 2, Kind: abi.KindMailed, Note: &abi.Note{Body: lost}}}
	dir, _ := serve(t, f)
	n := 0
	err := dial(t, dir, "1.2.3").Records(t.Context(), 7, 0, false, func(*abi.Record, []byte) error { n++; return nil })
	if err == nil || !strings.Contains(err.Error(), "no such blob") || n != 1 {
		t.Errorf("%v after %d records", err, n)
	}
}

// TestVersion refuses a daemon of another version, except to ask who it is
// and to stop it.
func TestVersion(t *testing.T) {
	f := newFake()
	dir, _ := serve(t, f)
	c := dial(t, dir, "1.2.4")
	var v *VersionError
	if _, err := c.List(t.Context()); !errors.As(err, &v) || v.Daemon != "1.2.3" {
		t.Errorf("%v", err)
	}
	if a, err := c.About(t.Context()); err != nil || a.Pid != 42 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	<-f.stopped
}

// TestSocket is about the file: private, replaced after a crash, elsewhere
// when its name would be too long, and gone at the end.
func TestSocket(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("x", 120))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var before string
		for range 2 { // the second finds the first one's remains
			l, err := Listen(dir)
			if err != nil {
				t.Fatal(err)
			}
			path := SocketOf(dir)
			if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 || i.Mode().Type() != os.ModeSocket {
				t.Errorf("%s: %v, %v", path, i, err)
			}
			if _, err := os.Stat(before); before != "" && before != path && err == nil {
				t.Errorf("%s is still there", before)
			}
			before = path
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			l.Close()
		}
		if err := Unlisten(dir); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v is left in the directory, %v", left, err)
		}
		if _, err := os.Stat(before); err == nil {
			t.Errorf("%s is still there", before)
		}
	}
}

// FuzzAPI sends any body to any endpoint. Nothing panics, what is refused is
// refused in the kernel's words and does nothing, and what is taken is taken
// again when it is written as it was understood.
func FuzzAPI(f *testing.F) {
	methods := []struct{ method, path string }{
		{"POST", "/v1/processes"}, {"PATCH", "/v1/processes/7"}, {"POST", "/v1/processes/7/signal"}, {"POST", "/v1/processes/7/decide"},
		{"POST", "/v1/processes/7/fork"}, {"POST", "/v1/processes/7/replay"}, {"PUT", "/v1/accounts/team"},
	}
	for i, body := range []string{
		okRun, `{"limits":{"money":"5","steps":3},"unset":["tokens"],"priority":4}`, `{"signal":"kill","by":"x"}`, `{"yes":true,"words":"w"}`,
		`{"at":3}`, `{"with":` + okRun + `}`, `{"limits":{"money":0.5}}`,
	} {
		f.Add(i, []byte(body))
	}
	f.Add(0, []byte(`{"program":{"model":"m","tools":[{"name":"t","command":["x"],"timeout":"5s","cost":0.1,"schema":{"type":"object"}}]},"priority":0,"task":""}`))
	f.Fuzz(func(t *testing.T, which int, body []byte) {
		m := methods[uint(which)%uint(len(methods))]
		k := newFake()
		w := httptest.NewRecorder()
		k.api().Handler().ServeHTTP(w, httptest.NewRequest(m.method, m.path, bytes.NewReader(body)))
		if w.Code != http.StatusOK {
			var e failure
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Err == nil || e.Err.Message == "" {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if n := k.noted(); n != "" {
				t.Fatalf("refused, and yet: %s", n)
			}
			return
		}
		if m.path == "/v1/processes" {
			var r, again Run
			if err := read(body, &r); err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := read(b, &again); err != nil {
				t.Fatalf("%s was taken, and %s is not: %v", body, b, err)
			}
		}
	})
}
