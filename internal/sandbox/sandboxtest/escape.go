package sandboxtest

import (
	"context"
	"embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/sandbox"
)

//go:embed testdata/escape
var escapeFiles embed.FS

// An Escape is a program of testdata/escape that tries to leave its sandbox, or to
// outlive its end.
//
// It runs after testdata/escape/preamble.txt, where attempt(what, f) prints "held" if
// f fails, else "ESCAPED". Its environment names targets on the host: a file, a Unix
// socket, a TCP port and a process. The program has escaped if it says so, if it
// prints the secret of the host, or if the host sees a change.
type Escape struct {
	Name   string
	Limits sandbox.Limits
	Causes []sandbox.Cause // how it may end; none: ok or failed
}

// Escapes is the corpus.
var Escapes = []Escape{
	{Name: "dunder_walk"},
	{Name: "import_tricks"},
	{Name: "frames_and_gc"},
	{Name: "code_objects", Causes: []sandbox.Cause{sandbox.OK, sandbox.Failed}},
	{Name: "ctypes_libc"},
	{Name: "read_host_file"},
	{Name: "write_host_file"},
	{Name: "dotdot"},
	{Name: "symlink"},
	{Name: "symlink_race"},
	{Name: "hard_link"},
	{Name: "rename_out"},
	{Name: "proc_files"},
	{Name: "proc_memory"},
	{Name: "host_environment"},
	{Name: "leaked_descriptors"},
	{Name: "device_nodes"},
	{Name: "fifo"},
	{Name: "tcp"},
	{Name: "dns"},
	{Name: "unix_socket"},
	{Name: "odd_sockets"},
	{Name: "signals_to_host"},
	{Name: "become_root"},
	{Name: "mount_unshare_chroot"},
	{Name: "ptrace"},
	{Name: "keyctl"},
	{Name: "bpf"},
	{Name: "io_uring"},
	{Name: "exec_host_program"},
	{Name: "write_etc"},
	{Name: "fork_bomb", Limits: sandbox.Limits{Wall: 5 * time.Second, Processes: 32}, Causes: []sandbox.Cause{sandbox.OK, sandbox.Failed, sandbox.Processes, sandbox.Timeout, sandbox.Memory}},
	{Name: "thread_bomb", Limits: sandbox.Limits{Wall: 5 * time.Second, Processes: 32}, Causes: []sandbox.Cause{sandbox.OK, sandbox.Failed, sandbox.Processes, sandbox.Timeout, sandbox.Memory}},
	{Name: "disk_fill", Limits: sandbox.Limits{FileBytes: 8 << 20}, Causes: []sandbox.Cause{sandbox.Files}},
	{Name: "sparse_file", Limits: sandbox.Limits{FileBytes: 8 << 20}},
	{Name: "file_flood", Limits: sandbox.Limits{Files: 500}, Causes: []sandbox.Cause{sandbox.Files}},
	{Name: "output_flood", Limits: sandbox.Limits{Output: 1 << 20}, Causes: []sandbox.Cause{sandbox.Output}},
	{Name: "memory_bomb", Limits: sandbox.Limits{Memory: 128 << 20}, Causes: []sandbox.Cause{sandbox.Memory}},
	{Name: "memory_in_c", Limits: sandbox.Limits{Memory: 128 << 20, Wall: 5 * time.Second}, Causes: []sandbox.Cause{sandbox.OK, sandbox.Memory, sandbox.Failed, sandbox.Timeout}},
	{Name: "outlive", Limits: sandbox.Limits{Wall: 2 * time.Second}, Causes: []sandbox.Cause{sandbox.Timeout, sandbox.Failed, sandbox.OK}},
	{Name: "ignore_the_end", Limits: sandbox.Limits{Wall: time.Second}, Causes: []sandbox.Cause{sandbox.Timeout}},
	{Name: "atexit_forever", Limits: sandbox.Limits{Wall: time.Second}, Causes: []sandbox.Cause{sandbox.Timeout}},
	{Name: "finalizer_forever", Limits: sandbox.Limits{Wall: time.Second}, Causes: []sandbox.Cause{sandbox.Timeout}},
	{Name: "crash_the_interpreter", Limits: sandbox.Limits{Wall: 60 * time.Second, CPU: 60 * time.Second}, Causes: []sandbox.Cause{sandbox.OK, sandbox.Failed, sandbox.Memory}},
	{Name: "host_calls"},
	{Name: "other_runs"},
}

// RunEscapes runs the corpus on a backend.
func RunEscapes(t *testing.T, b sandbox.Backend, c Capabilities) {
	preamble, err := escapeFiles.ReadFile("testdata/escape/preamble.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Escapes {
		t.Run(e.Name, func(t *testing.T) {
			code, err := escapeFiles.ReadFile("testdata/escape/" + e.Name + ".py")
			if err != nil {
				t.Fatal(err)
			}
			h := newBait(t)
			escape(t, b, c, e, string(preamble)+string(code), h)
		})
	}
}

func escape(t *testing.T, b sandbox.Backend, c Capabilities, e Escape, code string, h *bait) {
	if e.Limits.Wall == 0 {
		e.Limits.Wall = 20 * time.Second
	}
	s := sandbox.Spec{Code: code, Env: h.env(), Dir: h.workspace, Limits: e.Limits}
	from := time.Now()
	out, err := b.Run(context.Background(), s)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	// A program that outlives its limit has escaped in time.
	if d := time.Since(from); d > e.Limits.Wall+c.start() {
		t.Errorf("it took %v of %v", d, e.Limits.Wall)
	}
	causes := e.Causes
	if causes == nil {
		causes = []sandbox.Cause{sandbox.OK, sandbox.Failed}
	}
	if !slices.Contains(causes, out.Cause) {
		t.Errorf("it ended with %s, want one of %v\n%.600s%.600s", out.Cause, causes, out.Stdout, out.Stderr)
	}
	// A program that broke before its first attempt proves nothing.
	if out.Cause == sandbox.OK && !strings.Contains(string(out.Stdout), "held") {
		t.Errorf("it did not try anything: %.600s", out.Stdout)
	}
	for _, bad := range []string{"ESCAPED", h.secret} {
		if i := strings.Index(string(out.Stdout)+string(out.Stderr), bad); i >= 0 {
			t.Errorf("it got out: %.300s", (string(out.Stdout) + string(out.Stderr))[i:])
		}
	}
	h.check(t)
	// An escape may also leave something for the next run, so the next run must be clean.
	if got := printed(t, b, sandbox.Spec{Code: "print('next', *__import__('os').listdir('.'))"}); got != "next\n" {
		t.Errorf("the next run printed %q", got)
	}
}

// A bait is a set of targets on the host, with what was true of them at first.
type bait struct {
	secret    string
	dir       string // of the host
	workspace string
	file      string
	socket    string
	listener  net.Listener
	unix      net.Listener
	reached   atomic.Int32
	mode      os.FileMode // of file
	time      time.Time   // of file
}

func newBait(t *testing.T) *bait {
	t.Helper()
	h := &bait{secret: fmt.Sprintf("canary-%d-%d", os.Getpid(), time.Now().UnixNano()), dir: t.TempDir(), workspace: t.TempDir()}
	h.file, h.socket = filepath.Join(h.dir, "canary"), filepath.Join(h.dir, "s")
	var err error
	if err = os.WriteFile(h.file, []byte(h.secret), 0o666); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(h.file)
	if err != nil {
		t.Fatal(err)
	}
	// A change that is undone again still moves the time.
	h.mode, h.time = st.Mode().Perm(), st.ModTime()
	// A backend that passes its own environment on would show the secret.
	t.Setenv("KERN_CANARY", h.secret)
	if h.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if h.unix, err = net.Listen("unix", h.socket); err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{h.listener, h.unix} {
		t.Cleanup(func() { l.Close() })
		// A connection counts even if nothing is sent on it.
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				h.reached.Add(1)
				c.Close()
			}
		}()
	}
	return h
}

func (h *bait) env() map[string]string {
	_, port, _ := net.SplitHostPort(h.listener.Addr().String())
	return map[string]string{
		"BAIT_FILE": h.file, "BAIT_DIR": h.dir, "BAIT_SOCKET": h.socket, "BAIT_PORT": port,
		"BAIT_PID": fmt.Sprint(os.Getpid()), "BAIT_WORKSPACE": h.workspace,
	}
}

// check fails the test if a program reached or changed a target.
func (h *bait) check(t *testing.T) {
	t.Helper()
	if got, err := os.ReadFile(h.file); err != nil || string(got) != h.secret {
		t.Errorf("the host's file is now %q, %v", got, err)
	}
	if st, err := os.Stat(h.file); err != nil || st.Mode().Perm() != h.mode || !st.ModTime().Equal(h.time) {
		t.Errorf("the host's file is now %v, %v", st, err)
	}
	if l, err := os.ReadDir(h.dir); err != nil || len(l) != 2 {
		t.Errorf("the host's directory is now %v, %v", l, err)
	}
	if n := h.reached.Load(); n != 0 {
		t.Errorf("%d connections reached the host", n)
	}
}
