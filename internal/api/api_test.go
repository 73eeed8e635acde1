package api

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
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/leaktest"
	"github.com/kern-run/kern/internal/quota"
)

func TestMain(m *testing.M) {
	usual = newMode(os.TempDir())
	leaktest.Main(m)
}

// usual is the mode of a file that is made before anybody has listened.
var usual os.FileMode

func newMode(dir string) os.FileMode {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("kern-api-test-%d", os.Getpid())), os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		panic(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		panic(err)
	}
	return i.Mode()
}

// Mutants that die here: unknown keys forgiven; a key that stands twice, in two
// cases too, forgiven; what follows the object forgiven; no bound on the body; a narrowing
// that is none; a wait that goes on when its client is gone or the daemon ends;
// a blob that is not filled in; a socket for everybody, or all files for nobody
// else from then on; a version that is not compared; a bound that a key does not
// keep to, or a key of who has none; an order that who holds does not hear; an
// answer of which a part is missing and that is taken for all of it; a parent, or
// the wish to be held, that is not handed on.

// fake is a kernel with one process, 7, that has exited when gone is closed.
type fake struct {
	mu      sync.Mutex
	info    kernel.Info
	many    abi.Pid // more like it
	pages   int     // that were asked for
	odd     abi.Pid // one of them, with a question that cannot be read
	changes []string
	blobs   map[abi.Hash][]byte
	records []*abi.Record
	orders  []kernel.Orders // that who holds hears
	holdErr error           // how it ends
	gone    chan struct{}
	waiting chan struct{} // told of every wait
	left    chan error    // told how every wait ended
	stopped chan struct{}
}

func newFake() *fake {
	f := &fake{gone: make(chan struct{}), waiting: make(chan struct{}, 8), left: make(chan error, 8), stopped: make(chan struct{}), blobs: make(map[abi.Hash][]byte)}
	f.info = kernel.Info{Pid: 7, State: abi.Ready, Summary: process.Summary{Name: "seven", Priority: 10, Born: 1e18}}
	f.info.Used = abi.Usage{abi.Money: 1e9, abi.InputTokens: 2, abi.OutputTokens: 3, abi.Steps: 4, abi.Tokens: 5, abi.ModelCalls: 6,
		abi.ToolCalls: 7, abi.Children: 8, abi.OutputBytes: 9, abi.CPU: 10}
	f.info.Reserved = abi.Usage{abi.Money: 2e9}
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

// known are 6, which has no key, and 7.
func (f *fake) known(pid abi.Pid) error {
	if pid != 6 && pid != 7 {
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

func (f *fake) Change(_ context.Context, pid abi.Pid, e abi.Edit) error {
	f.note("change %d %s", pid, edited(&e))
	return f.known(pid)
}

func (f *fake) SetAccount(_ context.Context, name string, e abi.Edit) error {
	f.note("account %s %s", name, edited(&e))
	return nil
}

func edited(e *abi.Edit) string {
	b, err := e.Limits.MarshalJSON()
	s := fmt.Sprintf("%s %v by %q", b, e.Unset, e.By)
	if e.Narrow {
		s += " narrow"
	}
	if e.Priority != nil {
		s += fmt.Sprint(" priority ", *e.Priority)
	}
	if err != nil {
		s += err.Error()
	}
	return s
}

func (f *fake) Info(pid abi.Pid) (kernel.Info, error) {
	i := f.info
	i.Pid = pid
	return i, f.known(pid)
}

func (f *fake) Recent(n int) ([]kernel.Info, int) { return f.After(0, 2), 40 + n }

// After are process 6, that of the tests, and many more.
func (f *fake) After(pid abi.Pid, n int) (page []kernel.Info) {
	f.pages++
	for i := max(pid+1, 6); i <= f.info.Pid+f.many && len(page) < n; i++ {
		page = append(page, f.info)
		if page[len(page)-1].Pid = i; i == f.odd {
			page[len(page)-1].Asks = []kernel.Asking{{Call: 1, Question: abi.Data{Hash: abi.Hash{1}, Size: 1}}}
		}
	}
	return page
}

func (f *fake) Has(i *kernel.Info) bool { return i.Pid == 7 }

// under says whose child a process is to be.
func under(parent abi.Pid) string {
	if parent == 0 {
		return ""
	}
	return fmt.Sprint(" under ", parent)
}

func (f *fake) Where() GatewayAddress {
	return GatewayAddress{OpenAI: "http://o", Anthropic: "http://a", Socket: "s"}
}

func (f *fake) New(_ context.Context, k Key) (KeyInfo, error) {
	b, err := k.Limits.MarshalJSON()
	f.note("key %s %d %s %s%s", k.Name, k.Priority, b, k.Watchdog.Profile, under(k.Parent))
	if k.Hold {
		f.note("to be held")
	}
	return KeyInfo{Pid: 9, Key: "sk-kern-x"}, err
}

func (f *fake) End(_ context.Context, pid abi.Pid, e KeyEnd) error {
	f.note("end %d %s%s %s", pid, e.Output, e.Error, e.Code)
	return nil
}

// Hold tells of two orders, and then of the end when gone is closed.
func (f *fake) Hold(ctx context.Context, _ abi.Pid, tell func(kernel.Orders) error) error {
	for _, o := range f.orders {
		if err := tell(o); err != nil {
			return err
		}
	}
	f.waiting <- struct{}{}
	var err error
	select {
	case <-f.gone:
		err = f.holdErr
	case <-ctx.Done():
		err = ctx.Err()
	}
	f.left <- err
	return err
}

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

func (f *fake) Commits(_ context.Context, pid abi.Pid) ([]abi.Commit, error) {
	return []abi.Commit{{Tool: "commits"}}, f.known(pid)
}

func (f *fake) Diff(_ context.Context, pid abi.Pid, seq uint64) ([]abi.FileDiff, error) {
	return []abi.FileDiff{{Patch: fmt.Sprint("diff of ", seq)}}, f.known(pid)
}

func (f *fake) Settle(_ context.Context, pid abi.Pid, s abi.Settlement) error {
	spent, _ := json.Marshal(s.Spent)
	f.note("settle %d %d %v %s %s", pid, s.Call, s.None, spent, s.By)
	return f.known(pid)
}

func (f *fake) Undo(_ context.Context, pid abi.Pid, u abi.UndoOptions) (abi.UndoResult, error) {
	f.note("undo %d %d %v %s", pid, u.To, u.Partial, u.By)
	return abi.UndoResult{Pid: pid, Hash: "restored"}, f.known(pid)
}

func (f *fake) Verify(_ context.Context, dir string) (abi.WorkspaceCheck, error) {
	return abi.WorkspaceCheck{}, &abi.Error{Code: abi.WorkspaceMissing, Message: "nobody worked in " + dir}
}

func (f *fake) api() *Server {
	return &Server{
		About: About{Version: "1.2.3", Pid: 42}, Kernel: f, Views: f,
		Spawn: func(ctx context.Context, r abi.Run) (abi.Pid, error) {
			if r.Task == "wait for the disk" {
				f.waiting <- struct{}{}
				<-ctx.Done()
				return 0, ctx.Err()
			}
			f.note("spawn %s %s%s", r.Program.Model, r.Task, under(r.Parent))
			return 8, nil
		},
		Workspaces: f,
		Forks: Forks{
			Fork: func(_ context.Context, pid abi.Pid, fork abi.ForkOptions) (abi.ForkResult, error) {
				f.note("fork %d %d%s", pid, fork.At, fork.Workspace)
				return abi.ForkResult{Pid: 9}, f.known(pid)
			},
			Continue: func(_ context.Context, pid abi.Pid, o abi.ContinueOptions) (abi.Pid, error) {
				limits, _ := json.Marshal(o.Grant)
				f.note("continue %d %s %s", pid, o.Say, limits)
				return 10, f.known(pid)
			},
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
		Replay: func(_ context.Context, pid abi.Pid, r *abi.Run) (abi.ReplayResult, error) {
			f.note("replay %d %v", pid, r != nil)
			return abi.ReplayResult{Same: true}, f.known(pid)
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
		Feed: func(ctx context.Context, o abi.FeedOptions, each func(abi.FeedItem) error) error {
			after := uint64(len(f.records))
			if o.After != nil {
				after = *o.After
			}
			f.note("feed %d %v %v", o.Pid, o.Tree, o.Live)
			if err := each(abi.FeedItem{Cursor: after}); err != nil {
				return err
			}
			for _, r := range f.records[after:] {
				after++
				c := *r
				if err := each(abi.FeedItem{Cursor: after, Record: &c}); err != nil {
					return err
				}
			}
			if o.Live {
				return each(abi.FeedItem{Live: &abi.LiveItem{Kind: abi.LiveText, Pid: 7, Call: 3, Text: "so", Dropped: 2}})
			}
			f.waiting <- struct{}{}
			<-ctx.Done()
			f.left <- ctx.Err()
			return ctx.Err()
		},
		Keys: f,
		Stored: Stored{Request: func(pid abi.Pid, call uint64) ([]byte, error) {
			return fmt.Appendf(nil, `{"asked":%d}`, call), f.known(pid)
		},
			Output: func(pid abi.Pid, call uint64) ([]byte, error) {
				return fmt.Appendf(nil, "printed by %d", call), f.known(pid)
			}},
		Reports: Reports{Traffic: func() []quota.Snapshot { return []quota.Snapshot{{Name: "p/m", Waiting: 3}} }, Spent: func() []abi.Spent {
			return []abi.Spent{{Hour: 24, Model: "m", Account: "team", Usage: abi.Usage{abi.Money: 1e9}}, {Hour: 25, Model: "m", Name: "crew", Usage: abi.Usage{abi.Money: 2e9}},
				{Hour: 48, Model: "n", Usage: abi.Usage{abi.Money: 4e9}}}
		}},
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
		{"GET", "/v1/processes", "", 200, `[{"pid":6,`, ""},
		{"GET", "/v1/processes", "", 200, `,{"pid":7,`, ""},
		{"GET", "/v1/processes?all=1", "", 400, "only the parameters", ""},
		{"GET", "/v1/processes?recent=2", "", 200, `[{"pid":6,`, ""},
		{"GET", "/v1/processes?recent=", "", 400, `"where":"/recent"`, ""},
		{"GET", "/v1/processes?recent=-1", "", 400, `"where":"/recent"`, ""},
		{"GET", "/v1/processes?recent=1001", "", 400, "a number from 0 to 1000", ""},
		{"GET", "/v1/processes/7", "", 200, `"limits":{"money":"5","steps":20}`, ""},
		{"GET", "/v1/processes/7", "", 200, `"usage":{"money":"1","tokens":5,"input_tokens":2,"output_tokens":3,"steps":4,"model_calls":6,"tool_calls":7,"children":8,"output_bytes":9,"cpu":"10ns"},"reserved":{"money":"2",`, ""},
		{"GET", "/v1/processes/8", "", 404, `"code":"UNKNOWN_PROCESS"`, ""},
		{"GET", "/v1/processes/seven", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/0", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/1", "", 404, `"code":"UNKNOWN_PROCESS"`, ""},
		{"GET", "/v1/processes/-7", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/07", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/99999999999999999999", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/7/result", "", 200, `"exit":"done"`, ""},
		{"GET", "/v1/processes/7/result?wait=soon", "", 400, `expected 0 or 1`, ""},
		{"GET", "/v1/processes/7/records?after=x", "", 400, `"where":"/after"`, ""},
		{"GET", "/v1/processes/7/records?after=-1", "", 400, `"where":"/after"`, ""},
		{"GET", "/v1/processes/7/records?follow=1&follow=0", "", 400, "each once", ""},
		{"GET", "/v1/feed?live=1", "", 200, `{"live":{"kind":"text","pid":7,"call":3,"text":"so","dropped":2}}`, "feed 0 false true"},
		{"GET", "/v1/feed?live=1&after=0&pid=7&tree=1", "", 200, `{"live":`, "feed 7 true true"},
		{"GET", "/v1/feed?after=x", "", 400, `"where":"/after"`, ""},
		{"GET", "/v1/feed?after=-1", "", 400, `"where":"/after"`, ""},
		{"GET", "/v1/feed?pid=seven", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/feed?pid=8", "", 404, `"code":"UNKNOWN_PROCESS"`, ""},
		{"GET", "/v1/feed?live=maybe", "", 400, `"where":"/live"`, ""},
		{"GET", "/v1/feed?from=1", "", 400, "only the parameters", ""},
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
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":0,"task":"go","watchdog":{"repeat":1}}`, 400, "2 or more", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":0,"task":"go","watchdog":{"repeat":2}}`, 200, `{"pid":8}`, "spawn script:x go"},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":99,"task":"go","parent":1}`, 200, `{"pid":8}`, "spawn script:x go under 1"},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"task":"go","parent":1,"account":"team"}`, 400, "charged to its parent", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"task":"go","account":"team"}`, 200, `{"pid":8}`, "spawn script:x go"},
		{"POST", "/v1/processes", `{"program":{"model":"script:x","parallel":-1},"priority":1,"task":"go"}`, 400, "/program/parallel", ""},
		{"POST", "/v1/processes", `{"program":{"model":"script:x"},"priority":1,"task":"go"} {}`, 400, "not JSON", ""},
		{"POST", "/v1/processes", `[]`, 400, "expected an object", ""},
		{"POST", "/v1/processes", `null`, 400, "expected an object", ""},
		{"POST", "/v1/processes", ``, 400, "not JSON", ""},
		{"POST", "/v1/processes", "{\"task\":\"\xff\"}", 400, "not JSON", ""},
		{"GET", "/v1/processes/7/commits", "", 200, `"tool":"commits"`, ""},
		{"GET", "/v1/processes/8/commits", "", 404, "UNKNOWN_PROCESS", ""},
		{"GET", "/v1/processes/7/commits?seq=1", "", 400, "only the parameters", ""},
		{"GET", "/v1/processes/7/diff", "", 200, `diff of 0`, ""},
		{"GET", "/v1/processes/7/diff?seq=12", "", 200, `diff of 12`, ""},
		{"GET", "/v1/processes/7/diff?seq=0", "", 400, `"where":"/seq"`, ""},
		{"GET", "/v1/processes/7/diff?seq=last", "", 400, `"where":"/seq"`, ""},
		{"POST", "/v1/processes/7/undo", `{"to":3,"partial":true,"by":"ann"}`, 200, `"commit":"restored"`, "undo 7 3 true ann"},
		{"POST", "/v1/processes/7/undo", `{"to":-3}`, 400, "/to", ""},
		{"POST", "/v1/processes/7/undo", `{"all":true}`, 400, "all", ""},
		{"POST", "/v1/workspaces/verify", `{"dir":"/tmp/x"}`, 404, "WORKSPACE_MISSING", ""},
		{"POST", "/v1/workspaces/verify", `{"dir":"x"}`, 400, `"where":"/dir"`, ""},
		{"POST", "/v1/processes/7/signal", `{"signal":"kill","by":"ann"}`, 200, `{"ok":true}`, "signal 7 kill ann"},
		{"POST", "/v1/processes/7/signal", `{"signal":"stop"}`, 200, `{"ok":true}`, "signal 7 stop "},
		{"POST", "/v1/processes/7/signal", `{"signal":"cont"}`, 200, `{"ok":true}`, "signal 7 cont "},
		{"POST", "/v1/processes/7/signal", `{"signal":"term"}`, 200, `{"ok":true}`, "signal 7 term "},
		{"POST", "/v1/processes/7/signal", `{"signal":"hup"}`, 400, "stop, cont, term or kill", ""},
		{"POST", "/v1/processes/8/signal", `{"signal":"kill"}`, 404, "UNKNOWN_PROCESS", "signal 8 kill "},
		{"POST", "/v1/processes/7/decide", `{"yes":true,"words":"fine","call":3}`, 200, `{"ok":true}`, "decide 7 3 true  fine"},
		{"POST", "/v1/processes/7/decide", `{"yes":"true"}`, 400, "expected true or false", ""},
		{"POST", "/v1/processes/7/decide", `{"yes":true,"call":-1}`, 400, "/call", ""},
		{"PATCH", "/v1/processes/7", `{"limits":{"steps":30},"by":"ann"}`, 200, `"money":"5"`, `change 7 {"steps":30} [] by "ann"`},
		{"PATCH", "/v1/processes/7", `{"unset":["money"],"priority":3}`, 200, `"steps":20`, `change 7 {} [money] by "" priority 3`},
		{"PATCH", "/v1/processes/7", `{"unset":["mony"]}`, 400, "/unset/0", ""},
		{"PATCH", "/v1/processes/7", `{}`, 400, "nothing to change", ""},
		{"PATCH", "/v1/processes/7", `{"priority":-1}`, 400, "/priority", ""},
		{"POST", "/v1/processes/7/fork", `{"at":5}`, 200, `{"pid":9}`, "fork 7 5"},
		{"POST", "/v1/processes/7/fork", `{"at":1.5}`, 400, "/at", ""},
		{"POST", "/v1/processes/7/settle", `{"call":5,"spent":{"money":"0.02"},"by":"ann"}`, 200, `"pid":7`, `settle 7 5 false {"money":"0.02"} ann`},
		{"POST", "/v1/processes/7/settle", `{"call":5,"spent":{"mony":"0.02"}}`, 400, `unknown unit \"mony\"`, ""},
		{"POST", "/v1/processes/7/continue", `{"say":"and now","grant":{"add":{"money":"1"},"unset":["steps"]}}`, 200, `{"pid":10}`, `continue 7 and now {"add":{"money":"1"},"unset":["steps"]}`},
		{"POST", "/v1/processes/7/continue", `{"grant":{"add":{"mony":"1"}}}`, 400, `unknown unit \"mony\"`, ""},
		{"POST", "/v1/processes/8/continue", `{}`, 404, "UNKNOWN_PROCESS", "continue 8  {}"},
		{"POST", "/v1/processes/7/replay", `{}`, 200, `"same":true`, "replay 7 false"},
		{"POST", "/v1/processes/7/replay", `{"with":` + okRun + `}`, 200, `"same":true`, "replay 7 true"},
		{"POST", "/v1/processes/7/replay", `{"with":{"priority":1,"task":""}}`, 400, "/program/model", ""},
		{"POST", "/v1/processes/7/verify", ``, 200, `{"pid":7,"records":3}`, ""},
		{"GET", "/v1/spend", "", 200, `{"by":[],"lines":[{"usage":{"money":"7",`, ""},
		{"GET", "/v1/spend?by=day", "", 200, `{"day":"1970-01-02","usage":{"money":"3",`, ""},
		{"GET", "/v1/spend?by=model,name&since=86400000000001", "", 200, `"since":"1970-01-02T00:00:00Z","lines":[{"model":"m","name":"-","usage":{"money":"1",`, ""},
		{"GET", "/v1/spend?by=account&since=90000000000000", "", 200, `[{"account":"-","usage":{"money":"6",`, ""},
		{"GET", "/v1/spend?by=week", "", 400, `"where":"/by"`, ""},
		{"GET", "/v1/spend?since=x", "", 400, `"where":"/since"`, ""},
		{"GET", "/v1/keys", "", 200, `"openai_base_url":"http://o","anthropic_base_url":"http://a","socket":"s"},"keys":[{"pid":7,`, ""},
		{"GET", "/v1/keys?all=1", "", 400, "only the parameters", ""},
		{"GET", "/v1/keys/7", "", 200, `{"pid":7,`, ""},
		{"GET", "/v1/keys/6", "", 400, "process 6 has no key", ""},
		{"GET", "/v1/keys/8", "", 404, "UNKNOWN_PROCESS", ""},
		{"GET", "/v1/keys/seven", "", 400, `"where":"/pid"`, ""},
		{"POST", "/v1/keys", `{"name":"crew","priority":3,"limits":{"money":"1"},"watchdog":{"profile":"smart","repeat":2}}`, 200, `"pid":9,"key":"sk-kern-x"`, `key crew 3 {"money":"1"} smart`},
		{"POST", "/v1/keys", `{"name":"` + strings.Repeat("n", 64) + `","priority":0,"account":"team"}`, 200, `"pid":9`, `key ` + strings.Repeat("n", 64) + ` 0 {} `},
		{"POST", "/v1/keys", `{"name":"` + strings.Repeat("n", 65) + `","priority":0}`, 400, `"where":"/name"`, ""},
		{"POST", "/v1/keys", `{"priority":100}`, 400, `"where":"/priority"`, ""},
		{"POST", "/v1/keys", `{"priority":0,"limits":{"cpu":"5s"}}`, 400, "cannot enforce", ""},
		{"POST", "/v1/keys", `{"priority":0,"watchdog":{"profile":"lazy"}}`, 400, "smart, strict or off", ""},
		{"POST", "/v1/keys", `{"priority":0,"watchdog":{"repeat":1}}`, 400, "2 or more", ""},
		{"POST", "/v1/keys", `{"priority":0,"parent":1,"hold":true}`, 200, `"pid":9`, "key  0 {}  under 1; to be held"},
		{"POST", "/v1/keys", `{"priority":0,"parent":1,"account":"team"}`, 400, "charged to its parent", ""},
		{"POST", "/v1/keys", `{"limits":{"money":"1"},"Limits":{}}`, 400, `unknown field \"Limits\"`, ""},
		{"POST", "/v1/keys", `{"limits":{"money":"1"},"limit\u017f":{}}`, 400, "unknown field", ""},
		{"POST", "/v1/keys", `{"priority":0,"owner":"ann"}`, 400, `unknown field \"owner\"`, ""},
		{"POST", "/v1/keys/7/exit", `{"output":"fine"}`, 200, `{"ok":true}`, `end 7 "fine" `},
		{"POST", "/v1/keys/7/exit", `{"error":"no money","code":"LIMIT_MONEY"}`, 200, `{"ok":true}`, "end 7 no money LIMIT_MONEY"},
		{"POST", "/v1/keys/7/exit", `{"output":}`, 400, "not JSON", ""},
		{"POST", "/v1/keys/6/exit", `{}`, 400, "process 6 has no key", ""},
		{"POST", "/v1/keys/8/exit", `{}`, 404, "UNKNOWN_PROCESS", ""},
		{"POST", "/v1/keys/seven/exit", `{}`, 400, `"where":"/pid"`, ""},
		{"GET", "/v1/keys/8/hold", "", 404, "UNKNOWN_PROCESS", ""},
		{"GET", "/v1/keys/0/hold", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/keys/7/calls/18446744073709551615", "", 200, `{"asked":18446744073709551615}`, ""},
		{"GET", "/v1/keys/7/calls/0", "", 400, `"where":"/call"`, ""},
		{"GET", "/v1/keys/7/calls/last", "", 400, `"where":"/call"`, ""},
		{"GET", "/v1/keys/8/calls/1", "", 404, "UNKNOWN_PROCESS", ""},
		{"GET", "/v1/keys/x/calls/1", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/traffic", "", 200, `"waiting":3`, ""},
		{"GET", "/v1/traffic?all=1", "", 400, "only the parameters", ""},
		{"GET", "/v1/processes/x/commits", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/x/diff", "", 400, `"where":"/pid"`, ""},
		{"GET", "/v1/processes/7/diff?at=1", "", 400, "only the parameters", ""},
		{"POST", "/v1/workspaces/verify", `{"dir":"` + strings.Repeat("é", 150) + `"}`, 400, `is \"` + strings.Repeat("é", 100) + `...\"`, ""},
		{"POST", "/v1/workspaces/verify", `{"dir":"x` + strings.Repeat("é", 150) + `"}`, 400, `is \"x` + strings.Repeat("é", 99) + `...\"`, ""},
		{"GET", "/v1/accounts", "", 200, `"left":{"money":"1","tokens":100}`, ""},
		{"PUT", "/v1/accounts/team", `{"limits":{"money":"9"},"by":"ann"}`, 200, `"name":"team"`, `account team {"money":"9"} [] by "ann"`},
		{"PUT", "/v1/accounts/team", `{"unset":["money","tokens"],"narrow":true}`, 200, `"name":"team"`, `account team {} [money tokens] by "" narrow`},
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

// TestStatuses: what the kernel says has a status that programs can rely on.
func TestStatuses(t *testing.T) {
	for code, want := range map[abi.Code]int{
		abi.UnknownProcess: 404, abi.WorkspaceMissing: 404, abi.ProcessExited: 409, abi.ProcessEnding: 409, abi.WorkspaceConflict: 409,
		abi.WorkspaceLocked: 409, abi.Internal: 500, abi.StorageBroken: 500, abi.WorkspaceDamaged: 500, abi.DaemonGone: 503, abi.StorageFull: 507,
		abi.LimitMoney: 400, abi.InvalidCall: 400,
	} {
		w := httptest.NewRecorder()
		if writeError(w, &abi.Error{Code: code, Message: "m"}); w.Code != want {
			t.Errorf("%s is %d, want %d", code, w.Code, want)
		}
	}
	for err, want := range map[error]string{
		errors.New("plain"):                       `{"error":{"code":"INVALID_CALL","message":"plain"}}`,
		fmt.Errorf("while: %w", context.Canceled): `{"error":{"code":"DAEMON_GONE","message":"the daemon is stopping"`,
	} {
		w := httptest.NewRecorder()
		if writeError(w, err); !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%v is %s", err, w.Body)
		}
	}
}

// TestBodyBreaksOff: what came of a request is not taken for all of it.
func TestBodyBreaksOff(t *testing.T) {
	w := httptest.NewRecorder()
	f := newFake()
	body := io.MultiReader(strings.NewReader(`{"signal":"kill"}`), iotest.ErrReader(io.ErrUnexpectedEOF))
	f.api().Handler().ServeHTTP(w, httptest.NewRequest("POST", "/v1/processes/7/signal", body))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "INVALID_ARGUMENTS") || !strings.Contains(w.Body.String(), "broke off: unexpected EOF") || f.noted() != "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestLargeHead: a head has a bound too, and it is not far above the 16 KB that
// are said.
func TestLargeHead(t *testing.T) {
	dir, _ := serve(t, newFake())
	for size, want := range map[int]string{headMax: "HTTP/1.1 200", 3 * headMax: "HTTP/1.1 431"} {
		c, err := net.Dial("unix", SocketOf(dir))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /v1/daemon HTTP/1.1\r\nHost: kern\r\nX: %s\r\n\r\n", strings.Repeat("x", size))
		if got, _ := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(got, want) {
			t.Errorf("a head of %d bytes: %q", size, got)
		}
		c.Close()
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
	s := NewHTTPServer(ctx, f.api().Handler())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	var once sync.Once
	end = func() {
		once.Do(func() {
			if err := Unlisten(dir); err != nil {
				t.Error(err)
			}
			cancel()
			short, stop := context.WithTimeout(context.Background(), 30*time.Second)
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
	t.Run("daemon, of a wait for the disk", func(t *testing.T) {
		f := newFake()
		dir, end := serve(t, f)
		go func() { <-f.waiting; end() }()
		var run abi.Run
		if err := json.Unmarshal([]byte(okRun), &run); err != nil {
			t.Fatal(err)
		}
		run.Task = "wait for the disk"
		var e *abi.Error
		if _, err := dial(t, dir, "1.2.3").Spawn(t.Context(), run); !errors.As(err, &e) || e.Code != abi.DaemonGone {
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
	w := httptest.NewRecorder()
	f.api().Handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/processes/7/records", nil))
	if n := bytes.Count(w.Body.Bytes(), []byte("\n")); n != 3 {
		t.Errorf("%d records when nothing is said of the first", n)
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

// TestPayloads: every large payload of a record is filled in.
func TestPayloads(t *testing.T) {
	f := newFake()
	big := func(name string) abi.Data {
		d, blob := abi.NewData([]byte(strings.Repeat(name+" ", 100)))
		f.blobs[blob.Hash] = blob.Bytes
		return d
	}
	f.records = []*abi.Record{
		{Pid: 7, N: 1, Kind: abi.KindSpawned, Spawn: &abi.Spawn{Program: big("program"), Task: big("task"), Fork: &abi.Fork{State: big("state")}}},
		{Pid: 7, N: 2, Kind: abi.KindBegan, Intent: &abi.Intent{Args: big("args"), Say: big("say")}},
		{Pid: 7, N: 3, Kind: abi.KindEnded, Answer: &abi.Answer{Value: big("value"), Whole: big("whole")}},
		{Pid: 7, N: 4, Kind: abi.KindMailed, Note: &abi.Note{Body: big("body")}},
		{Pid: 7, N: 5, Kind: abi.KindExited, Exit: &abi.ExitInfo{Output: big("output")}},
	}
	dir, _ := serve(t, f)
	var got []abi.Data
	if err := dial(t, dir, "1.2.3").Records(t.Context(), 7, 0, false, func(r *abi.Record, _ []byte) error {
		for d := range r.Payloads() {
			got = append(got, *d)
		}
		switch r.N { // they are where they are looked for
		case 1:
			got = append(got, r.Spawn.Program, r.Spawn.Task, r.Spawn.Fork.State)
		case 2:
			got = append(got, r.Intent.Args, r.Intent.Say)
		case 3:
			got = append(got, r.Answer.Value, r.Answer.Whole)
		case 4:
			got = append(got, r.Note.Body)
		case 5:
			got = append(got, r.Exit.Output)
		}
		return nil
	}); err != nil || len(got) != 18 {
		t.Errorf("%d payloads, %v", len(got), err)
	}
	for _, d := range got {
		if len(d.Bytes) < 300 || abi.HashOf(d.Bytes) != d.Hash {
			t.Errorf("%s has %d bytes", d.Hash, len(d.Bytes))
		}
	}
}

// TestReaderThatReadsNothing does not hold up the end of the daemon.
func TestReaderThatReadsNothing(t *testing.T) {
	f := newFake()
	d, blob := abi.NewData(bytes.Repeat([]byte("more than a socket takes "), 1<<20))
	f.blobs[blob.Hash] = blob.Bytes
	f.records = []*abi.Record{{Pid: 7, N: 1, Kind: abi.KindSpawned, Spawn: &abi.Spawn{}}, {Pid: 7, N: 2, Kind: abi.KindMailed, Note: &abi.Note{Body: d}}}
	dir, end := serve(t, f)
	c, err := net.Dial("unix", SocketOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /v1/processes/7/records HTTP/1.1\r\nHost: kern\r\n\r\n")
	r := bufio.NewReaderSize(c, 16)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Fatalf("%q, %v", line, err)
	}
	end() // which fails when it takes too long
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

// TestClient goes every way that a client has, and sees what the kernel is asked
// and what comes back.
func TestClient(t *testing.T) {
	f := newFake()
	dir, _ := serve(t, f)
	c, ctx := dial(t, dir, "1.2.3"), t.Context()
	var run abi.Run
	if err := json.Unmarshal([]byte(okRun), &run); err != nil {
		t.Fatal(err)
	}
	var limits abi.Limits
	limits.Set(abi.Steps, 30)
	three := 3
	ofAll := []string{"list", "spawn", "accounts", "account", "traffic", "keys", "new key"}
	for name, w := range map[string]struct {
		call func(pid abi.Pid) (any, error)
		did  string
		says string
	}{
		"list":   {func(pid abi.Pid) (any, error) { return c.List(ctx) }, "", `[{"pid":6,`},
		"show":   {func(pid abi.Pid) (any, error) { return c.Show(ctx, pid) }, "", `{"pid":7,`},
		"spawn":  {func(pid abi.Pid) (any, error) { return c.Spawn(ctx, run) }, "spawn script:x go", "8"},
		"signal": {func(pid abi.Pid) (any, error) { return nil, c.Signal(ctx, pid, Signal{Signal: abi.Stop, By: "ann"}) }, "signal 7 stop ann", ""},
		"decide": {func(pid abi.Pid) (any, error) {
			return nil, c.Decide(ctx, pid, Decision{Call: 3, Yes: true, Words: "w"})
		}, "decide 7 3 true  w", ""},
		"change":   {func(pid abi.Pid) (any, error) { return c.Change(ctx, pid, Change{Limits: limits, Priority: &three}) }, `change 7 {"steps":30} [] by "" priority 3`, `{"pid":7,`},
		"fork":     {func(pid abi.Pid) (any, error) { return c.Forks.Fork(ctx, pid, abi.ForkOptions{At: 5}) }, "fork 7 5", `{"pid":9}`},
		"continue": {func(pid abi.Pid) (any, error) { return c.Forks.Continue(ctx, pid, abi.ContinueOptions{Say: "on"}) }, "continue 7 on {}", "10"},
		"settle": {func(pid abi.Pid) (any, error) {
			return c.Accounts.Settle(ctx, pid, abi.Settlement{Call: 5, None: true})
		}, "settle 7 5 true {} (uid " + fmt.Sprint(os.Getuid()) + ")", `{"pid":7,`},
		"replay":     {func(pid abi.Pid) (any, error) { return c.Replay(ctx, pid, Replay{}) }, "replay 7 false", `"same":true`},
		"verify":     {func(pid abi.Pid) (any, error) { return c.Verify(ctx, pid) }, "", `{"pid":7,"records":3}`},
		"accounts":   {func(pid abi.Pid) (any, error) { return c.Accounts.List(ctx) }, "", `"name":"team"`},
		"account":    {func(pid abi.Pid) (any, error) { return c.Accounts.Set(ctx, "team", Change{Limits: limits}) }, `account team {"steps":30} [] by ""`, `"name":"team"`},
		"traffic":    {func(pid abi.Pid) (any, error) { return c.Traffic(ctx) }, "", `"waiting":3`},
		"keys":       {func(pid abi.Pid) (any, error) { return c.Keys.List(ctx, true) }, "", `"openai_base_url":"http://o"`},
		"new key":    {func(pid abi.Pid) (any, error) { return c.Keys.New(ctx, Key{Name: "crew", Limits: limits}) }, `key crew 0 {"steps":30} `, `"key":"sk-kern-x"`},
		"key":        {func(pid abi.Pid) (any, error) { return c.Keys.Show(ctx, pid) }, "", `{"pid":7,`},
		"end of key": {func(pid abi.Pid) (any, error) { return nil, c.Keys.End(ctx, pid, KeyEnd{Error: "e"}) }, "end 7 e ", ""},
		"request":    {func(pid abi.Pid) (any, error) { return c.Keys.Request(ctx, pid, 12) }, "", `{"asked":12}`},
		"output":     {func(pid abi.Pid) (any, error) { return c.Keys.Output(ctx, pid, 12) }, "", `"printed by 12"`},
		"commits":    {func(pid abi.Pid) (any, error) { return c.Workspaces.Commits(ctx, pid) }, "", `"tool":"commits"`},
		"diff":       {func(pid abi.Pid) (any, error) { return c.Workspaces.Diff(ctx, pid, 0) }, "", `diff of 0`},
		"diff of 12": {func(pid abi.Pid) (any, error) { return c.Workspaces.Diff(ctx, pid, 12) }, "", `diff of 12`},
		"undo": {func(pid abi.Pid) (any, error) {
			return c.Workspaces.Undo(ctx, pid, abi.UndoOptions{To: 3, By: "ann"})
		}, "undo 7 3 false ann", `"commit":"restored"`},
	} {
		v, err := w.call(7)
		b, bad := json.Marshal(v)
		if did := f.noted(); err != nil || bad != nil || did != w.did || !strings.Contains(string(b), w.says) {
			t.Errorf("%s: %s %v, and the kernel did %q", name, b, err, did)
		}
		var e *abi.Error
		if _, err := w.call(8); !slices.Contains(ofAll, name) && (!errors.As(err, &e) || e.Code != abi.UnknownProcess) {
			t.Errorf("%s of nobody: %v", name, err)
		}
		f.noted()
	}
	for code, err := range map[abi.Code]error{
		abi.WorkspaceMissing: secondOf(c.Workspaces.Verify(ctx, "/w")),
		abi.InvalidArguments: secondOf(c.Workspaces.Undo(ctx, -1, abi.UndoOptions{})),
	} {
		var e *abi.Error
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("want %s: %v", code, err)
		}
	}
}

func secondOf[T any](_ T, err error) error { return err }

// TestHold holds a process: what is ordered comes at once, then its end.
func TestHold(t *testing.T) {
	orders := []kernel.Orders{{Paused: true}, {}, {Exit: abi.ExitKilled, Reason: "test"}}
	gone := &abi.Error{Code: abi.UnknownProcess, Message: "it went away"}
	for _, c := range []struct {
		name   string
		orders []kernel.Orders
		end    error // at the daemon
		code   abi.Code
		lost   bool
	}{
		{"to its end", orders, nil, "", false},
		{"the daemon stops before it ended", orders[:2], nil, "", true},
		{"an error", orders[:1], gone, abi.UnknownProcess, false},
	} {
		f := newFake()
		f.orders, f.holdErr = c.orders, c.end
		dir, _ := serve(t, f)
		var heard []kernel.Orders
		err := dial(t, dir, "1.2.3").Keys.Hold(t.Context(), 7, func(o kernel.Orders) {
			if heard = append(heard, o); len(heard) == len(c.orders) {
				<-f.waiting // all that was ordered is here while it is still held
				close(f.gone)
			}
		})
		var e *abi.Error
		switch {
		case c.lost:
			if !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v", c.name, err)
			}
		case c.code != "":
			if !errors.As(err, &e) || e.Code != c.code {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(heard, c.orders) {
			t.Errorf("%s: heard %+v", c.name, heard)
		}
	}
	f := newFake()
	dir, _ := serve(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-f.waiting; cancel() }()
	if err := dial(t, dir, "1.2.3").Keys.Hold(ctx, 7, func(kernel.Orders) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("who lets go: %v", err)
	}
	if err := <-f.left; !errors.Is(err, context.Canceled) {
		t.Errorf("the daemon holds on: %v", err)
	}
}

// TestBadDaemon is about answers that no daemon of ours gives, or not in full.
func TestBadDaemon(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nKern-Version: 1.2.3\r\nContent-Length: 100\r\n\r\n"
	for _, c := range []struct{ answer, want string }{
		{"HTTP/1.1 502 Bad Gateway\r\nKern-Version: 1.2.3\r\nContent-Length: 3\r\n\r\nwhy", "the daemon answered 502 Bad Gateway: why"},
		{"HTTP/1.1 400 Bad Request\r\nKern-Version: 1.2.3\r\nContent-Length: 2\r\n\r\n{}", "the daemon answered 400 Bad Request: {}"},
		{"HTTP/1.1 400 Bad Request\r\nKern-Version: 1.2.3\r\nContent-Length: 50\r\n\r\n{\"err", ErrLost.Error()},
		{head + `{"pid":7}`, ErrLost.Error()},
		{head + `{"pid":7}` + "\n" + `{"pi`, ErrLost.Error()},
		{head + `{"pid":"seven"}` + "\n", "a record that cannot be read"},
		{head + `{"error":{"code":"STORAGE_FULL","message":"no room"}}` + "\n", "no room"},
		{"", ErrLost.Error()},
	} {
		dir := t.TempDir()
		l, err := Listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(conn, c.answer)
		}()
		err = dial(t, dir, "1.2.3").Records(t.Context(), 7, 0, false, func(*abi.Record, []byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.answer, err)
		}
		<-served
		l.Close()
	}
	f := newFake()
	f.records = []*abi.Record{{Pid: 7, N: 1, Kind: abi.KindSpawned}, {Pid: 7, N: 2, Kind: abi.KindMailed}}
	dir, _ := serve(t, f)
	enough, n := errors.New("enough"), 0
	err := dial(t, dir, "1.2.3").Records(t.Context(), 7, 0, false, func(*abi.Record, []byte) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("a reader that has enough: %v after %d records", err, n)
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
			if mode := newMode(dir); mode != usual {
				t.Errorf("a file that is made afterwards has mode %s, and had %s", mode, usual)
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
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the socket went before it was taken away: %v", err)
			}
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
		{"POST", "/v1/processes/7/fork"}, {"POST", "/v1/processes/7/continue"}, {"POST", "/v1/processes/7/replay"}, {"PUT", "/v1/accounts/team"},
	}
	for i, body := range []string{
		okRun, `{"limits":{"money":"5","steps":3},"unset":["tokens"],"priority":4}`, `{"signal":"kill","by":"x"}`, `{"yes":true,"words":"w"}`,
		`{"at":3}`, `{"say":"on","grant":{"set":{"steps":1},"add":{"money":"2"},"unset":["wall"]},"account":"team"}`, `{"with":` + okRun + `}`, `{"limits":{"money":0.5}}`,
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
			var r, again abi.Run
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
