// Package api is the daemon's control API, HTTP with JSON over a Unix
// socket in the data directory, and its client.
//
// [Server.Handler] lists every endpoint. Requests are read strictly: an unknown
// key, a repeated key or a wrong type is refused with what was expected. An error
// is {"error": ...} with an [abi.Error]. A held program may not widen its limits,
// see authority.go. A request that waits ends when its client
// disconnects. A slow reader of records slows no process, because it reads from
// the journal.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
)

// A Server serves the control API of a kernel. Its fields are what the host of the
// kernel must provide.
type Server struct {
	About      About
	Kernel     Kernel
	Views      Views
	Workspaces Workspaces
	Spawn      func(ctx context.Context, r abi.Run) (abi.Pid, error)
	Forks      Forks
	Remove     func(ctx context.Context, r abi.Removal) (abi.RemovalResult, error)
	Wait       func(ctx context.Context, pid abi.Pid) error // until its exit is on disk
	Result     func(pid abi.Pid) (any, error)
	Replay     func(ctx context.Context, pid abi.Pid, other *abi.Run) (abi.ReplayResult, error)
	Verify     func(ctx context.Context, pid abi.Pid) (records int, err error)
	Records    func(ctx context.Context, pid abi.Pid, after uint64, follow bool, f func(*abi.Record) error) error
	Feed       func(ctx context.Context, o abi.FeedOptions, f func(abi.FeedItem) error) error
	Keys       KeyService
	Stored     Stored
	Reports    Reports
	Stop       func() // makes the daemon stop; returns at once

	origins origins
}

// Stored reads what the journal keeps of a call beside its records.
type Stored struct {
	Request func(pid abi.Pid, call uint64) ([]byte, error) // the request of a call with a key, unchanged
	Output  func(pid abi.Pid, call uint64) ([]byte, error) // all that a tool printed
}

// Kernel changes processes and accounts.
type Kernel interface {
	Signal(ctx context.Context, pid abi.Pid, s abi.Signal, by string) error
	Decide(ctx context.Context, pid abi.Pid, call uint64, yes bool, by, words string) error
	Change(ctx context.Context, pid abi.Pid, e abi.Edit) error
	Settle(ctx context.Context, pid abi.Pid, s abi.Settlement) error
	SetAccount(ctx context.Context, name string, e abi.Edit) error
}

// Views reads processes and accounts.
type Views interface {
	Info(pid abi.Pid) (kernel.Info, error)
	Recent(n int) (list []kernel.Info, more int)
	After(pid abi.Pid, n int) []kernel.Info
	Accounts() []kernel.Account
	Bytes(d abi.Data) ([]byte, error)
}

// About describes a daemon. It has no keys of providers, only where each comes
// from.
type About struct {
	Version  string    `json:"version"`
	Pid      int       `json:"pid"` // in the operating system
	Data     string    `json:"data"`
	Socket   string    `json:"socket"`
	Config   string    `json:"config"`
	Started  time.Time `json:"started"`
	Settings any       `json:"settings"`
	Moved    string    `json:"moved,omitempty"` // why the gateway has another address than before
}

// VersionHeader has the version of the daemon, in every answer.
const VersionHeader = "Kern-Version"

// The largest requests. A run includes the text of a script.
const (
	maxRun     = 64 << 20
	maxRequest = 256 << 10
)

// Handler serves the API.
func (srv *Server) Handler() http.Handler {
	srv.origins.records, srv.origins.bytes, srv.origins.cache.Max = srv.Records, srv.Views.Bytes, maxOrigins
	held := &authority{views: srv.Views}
	keys, workspaces, accounts := keyHandler{srv, held}, workspaceHandler{srv.Workspaces}, accountHandler{srv}
	mux := http.NewServeMux()
	for pattern, h := range map[string]endpoint{
		"GET /v1/daemon":                  srv.about,
		"POST /v1/daemon/stop":            srv.stop,
		"GET /v1/processes":               srv.list,
		"POST /v1/processes":              srv.spawn,
		"GET /v1/processes/{pid}":         forProcess(srv.show),
		"PATCH /v1/processes/{pid}":       withBody(maxRequest, srv.change),
		"GET /v1/processes/{pid}/result":  forProcess(srv.result),
		"GET /v1/processes/{pid}/records": forProcess(srv.records),
		"POST /v1/processes/{pid}/signal": withBody(maxRequest, srv.signal),
		"POST /v1/processes/{pid}/decide": withBody(maxRequest, srv.decide),
		"POST /v1/processes/{pid}/fork":   withBody(maxRequest, srv.Forks.fork),
		"POST /v1/processes/{pid}/replay": withBody(maxRun, srv.replay),

		"POST /v1/processes/{pid}/continue": withBody(maxRun, srv.Forks.goOn),
		"POST /v1/processes/{pid}/settle":   withBody(maxRequest, accounts.settle),

		"GET /v1/processes/{pid}/calls/{call}/output": forProcess(keys.output),

		"GET /v1/processes/{pid}/commits": forProcess(workspaces.commits),
		"GET /v1/processes/{pid}/diff":    forProcess(workspaces.diff),
		"POST /v1/processes/{pid}/undo":   withBody(maxRequest, workspaces.undo),
		"POST /v1/workspaces/verify":      workspaces.verify,
		"POST /v1/processes/{pid}/verify": forProcess(srv.verify),
		"GET /v1/keys":                    keys.list,
		"POST /v1/keys":                   keys.create,
		"GET /v1/keys/{pid}":              forProcess(keys.show),
		"POST /v1/keys/{pid}/exit":        withBody(maxRequest, keys.end),
		"GET /v1/keys/{pid}/calls/{call}": forProcess(keys.request),
		"GET /v1/keys/{pid}/hold":         forProcess(keys.hold),
		"GET /v1/accounts":                accounts.list,
		"GET /v1/feed":                    srv.feed,
		"POST /v1/remove":                 removing(srv.Remove),
		"GET /v1/traffic":                 srv.Reports.traffic,
		"GET /v1/spend":                   srv.Reports.spend,
		"PUT /v1/accounts/{name}":         accounts.set,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(VersionHeader, srv.About.Version)
			r, err := held.authorize(pattern, r)
			var v any
			if err == nil {
				v, err = h(w, r)
			}
			switch {
			case err != nil:
				writeError(w, err)
			case v != nil:
				writeJSON(w, http.StatusOK, v)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(VersionHeader, srv.About.Version)
		writeError(w, &abi.Error{Code: abi.InvalidCall, Message: "there is no " + r.Method + " " + abi.Clip(r.URL.Path)})
	})
	return mux
}

// An endpoint returns the answer or an error. It returns neither if it wrote the
// answer itself.
type endpoint func(w http.ResponseWriter, r *http.Request) (any, error)

// forProcess makes an endpoint of a function that takes the pid of the path.
func forProcess(f func(w http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		pid, err := pidOf(r)
		if err != nil {
			return nil, err
		}
		return f(w, r, pid)
	}
}

// withBody makes an endpoint of a function that takes the pid of the path and the
// body of the request, which has at most so many bytes.
func withBody[T any](most int64, f func(ctx context.Context, pid abi.Pid, body *T) (any, error)) endpoint {
	return forProcess(func(w http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
		body := new(T)
		if err := decode(w, r, most, body); err != nil {
			return nil, err
		}
		return f(r.Context(), pid, body)
	})
}

func (srv *Server) about(http.ResponseWriter, *http.Request) (any, error) { return srv.About, nil }

func (srv *Server) stop(http.ResponseWriter, *http.Request) (any, error) {
	srv.Stop()
	return done{true}, nil
}

type done struct {
	OK bool `json:"ok"`
}

// Started names a new process.
type Started struct {
	Pid abi.Pid `json:"pid"`
}

func (srv *Server) spawn(w http.ResponseWriter, r *http.Request) (any, error) {
	var run abi.Run
	if err := decode(w, r, maxRun, &run); err != nil {
		return nil, err
	}
	if err := checkRun(&run); err != nil {
		return nil, err
	}
	if err := checkParent(r.Context(), run.Parent); err != nil {
		return nil, err
	}
	pid, err := srv.Spawn(r.Context(), run)
	return Started{pid}, err
}

func (srv *Server) list(w http.ResponseWriter, r *http.Request) (any, error) {
	return nil, srv.processes(w, r, "[", "]\n", func(*kernel.Info) bool { return true })
}

func (srv *Server) show(_ http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	i, err := srv.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	return srv.view(&i, time.Now())
}

func (srv *Server) result(_ http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	if err := query(r, "wait"); err != nil {
		return nil, err
	}
	if wait, err := flag(r, "wait"); err != nil {
		return nil, err
	} else if wait {
		if err := srv.Wait(r.Context(), pid); err != nil {
			return nil, err
		}
	}
	return srv.Result(pid)
}

func (srv *Server) verify(_ http.ResponseWriter, r *http.Request, pid abi.Pid) (any, error) {
	if _, err := srv.Views.Info(pid); err != nil {
		return nil, err
	}
	n, err := srv.Verify(r.Context(), pid)
	return Verified{pid, n}, err
}

// Verified reports how many intact records a process has.
type Verified struct {
	Pid     abi.Pid `json:"pid"`
	Records int     `json:"records"`
}

// A Replay is a request to replay a process, with another agent or task if With is
// set.
type Replay struct {
	With *abi.Run `json:"with,omitempty"`
}

func (srv *Server) replay(ctx context.Context, pid abi.Pid, p *Replay) (any, error) {
	if p.With != nil {
		if err := checkRun(p.With); err != nil {
			return nil, err
		}
	}
	return srv.Replay(ctx, pid, p.With)
}

// A Signal is a request to send a signal, in the name of a person.
type Signal struct {
	Signal abi.Signal `json:"signal"`
	By     string     `json:"by,omitempty"`
}

func (srv *Server) signal(ctx context.Context, pid abi.Pid, s *Signal) (any, error) {
	switch s.Signal {
	case abi.Stop, abi.Cont, abi.Term, abi.Kill:
		if h := holdingOf(ctx); h.held && s.Signal == abi.Cont {
			return nil, h.refuse(fmt.Sprintf("continue process %d", pid))
		}
		return done{true}, srv.Kernel.Signal(ctx, pid, s.Signal, s.By)
	}
	return nil, expected("/signal", string(s.Signal), "stop, cont, term or kill")
}

// A Decision answers the question of a call; without Call, the only open question.
type Decision struct {
	Call  uint64 `json:"call,omitempty"`
	Yes   bool   `json:"yes"`
	By    string `json:"by,omitempty"`
	Words string `json:"words,omitempty"`
}

func (srv *Server) decide(ctx context.Context, pid abi.Pid, d *Decision) (any, error) {
	return done{true}, srv.Kernel.Decide(ctx, pid, d.Call, d.Yes, d.By, d.Words)
}

// A Change sets or removes limits, or sets the priority. The rest stays. With Narrow
// a change that raises or removes a limit is refused.
type Change struct {
	Limits   abi.Limits `json:"limits,omitzero"`
	Unset    []string   `json:"unset,omitempty"`
	Narrow   bool       `json:"narrow,omitempty"`
	Priority *int       `json:"priority,omitempty"`
	By       string     `json:"by,omitempty"`
	Per      string     `json:"per,omitempty"` // of an account: renew its limits each day, week or month; never ends that
}

// edit converts the change for the kernel.
func (c *Change) edit() (abi.Edit, error) {
	e := abi.Edit{Limits: c.Limits, Narrow: c.Narrow, Priority: c.Priority, By: c.By, Per: c.Per}
	for i, name := range c.Unset {
		u, ok := abi.UnitOf(name)
		if !ok {
			return e, expected("/unset/"+strconv.Itoa(i), name, "the name of a limit such as money or steps")
		}
		e.Unset = append(e.Unset, u)
	}
	return e, nil
}

func (srv *Server) change(ctx context.Context, pid abi.Pid, c *Change) (any, error) {
	if err := priority(c.Priority); err != nil {
		return nil, err
	}
	if err := enforceable(&c.Limits); err != nil {
		return nil, err
	}
	e, err := c.edit()
	if err != nil {
		return nil, err
	}
	if c.Per != "" {
		return nil, expected("/per", c.Per, "nothing, because only the limits of an account renew")
	}
	if !e.ChangesLimits() && e.Priority == nil {
		return nil, &abi.Error{Code: abi.InvalidArguments, Message: "nothing to change: expected limits, unset or priority"}
	}
	if err := checkChange(ctx, pid, &e); err != nil {
		return nil, err
	}
	if err := srv.Kernel.Change(ctx, pid, e); err != nil {
		return nil, holdingOf(ctx).explain(err)
	}
	i, err := srv.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	return srv.view(&i, time.Now())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status = http.StatusInternalServerError
		b, _ = json.Marshal(failure{&abi.Error{Code: abi.Internal, Message: "the answer cannot be written: " + err.Error()}})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // fails if the client is gone
}

type failure struct {
	Err *abi.Error `json:"error"`
}

func writeError(w http.ResponseWriter, err error) {
	e := asError(err)
	writeJSON(w, statusOf(e.Code), failure{e})
}

// asError makes an [abi.Error] of any error. A canceled request means that the
// daemon stops; if the client canceled it, nobody reads the answer.
func asError(err error) *abi.Error {
	var e *abi.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled):
		return &abi.Error{Code: abi.DaemonGone, Message: "the daemon is stopping", Hint: "processes continue when it starts again"}
	}
	return &abi.Error{Code: abi.InvalidCall, Message: err.Error()}
}

var statuses = map[abi.Code]int{
	abi.UnknownProcess: http.StatusNotFound,
	abi.NotGranted:     http.StatusForbidden,
	abi.ProcessExited:  http.StatusConflict,
	abi.ProcessEnding:  http.StatusConflict,
	abi.DaemonGone:     http.StatusServiceUnavailable,
	abi.StorageFull:    http.StatusInsufficientStorage,
	abi.StorageBroken:  http.StatusInternalServerError,
	abi.Internal:       http.StatusInternalServerError,

	abi.WorkspaceConflict: http.StatusConflict,
	abi.WorkspaceLocked:   http.StatusConflict,
	abi.WorkspaceMissing:  http.StatusNotFound,
	abi.WorkspaceDamaged:  http.StatusInternalServerError,
}

func statusOf(c abi.Code) int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusBadRequest
}
