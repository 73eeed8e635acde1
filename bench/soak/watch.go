package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kern-run/kern/bench/rig"
	"github.com/kern-run/kern/internal/api"
)

// daemonOutput parses the stderr of the daemon: the live heap after each collection
// (GODEBUG=gctrace=1), and the stacks of its goroutines after SIGQUIT.
type daemonOutput struct {
	mu    sync.Mutex
	rest  []byte
	live  int64          // bytes
	procs map[string]int // goroutines by where they began, of the last dump
	odd   []string       // what else it said
}

var (
	heap    = regexp.MustCompile(`^gc \d+ .* \d+->\d+->(\d+) MB`)
	created = regexp.MustCompile(`^created by (\S+)`)
	began   = regexp.MustCompile(`^goroutine \d+ (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[`)
)

func (e *daemonOutput) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rest = append(e.rest, b...)
	for {
		line, rest, ok := bytes.Cut(e.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		e.line(string(line))
		e.rest = rest
	}
}

func (e *daemonOutput) line(s string) {
	switch {
	case heap.MatchString(s):
		n, _ := strconv.ParseInt(heap.FindStringSubmatch(s)[1], 10, 64) // it is digits
		e.live = n << 20
	case strings.HasPrefix(s, "SIGQUIT: quit"):
		e.procs = make(map[string]int)
	case e.procs == nil:
		e.odd = append(e.odd, s)
	case began.MatchString(s):
		e.procs["all"]++
	case created.MatchString(s):
		e.procs[created.FindStringSubmatch(s)[1]]++
	}
}

// take returns everything since the last call.
func (e *daemonOutput) take() (live int64, procs map[string]int, odd []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	live, procs, odd = e.live, e.procs, e.odd
	e.procs, e.odd = nil, nil
	return live, procs, odd
}

// mostCommon prints the n largest counts.
func mostCommon(counts map[string]int, n int) string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	var all []string
	for _, name := range names[:min(n, len(names))] {
		all = append(all, fmt.Sprintf("%d %s", counts[name], strings.TrimPrefix(name, "github.com/kern-run/kern/")))
	}
	return strings.Join(all, ", ")
}

// A sample is the resources that a daemon holds.
type sample struct {
	resident    int64
	descriptors int
	threads     int
}

func takeSample(pid int) (s sample, err error) {
	if s.resident, err = rig.ResidentMemory(pid); err != nil {
		return s, err
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return s, err
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	s.descriptors, s.threads = len(fds), len(tasks)
	return s, err
}

// findMarked returns the processes of this machine with a mark in their environment,
// except the known ones.
func findMarked(mark string, known ...int) (all []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || slices.Contains(known, pid) || !bytes.Contains(env, []byte(mark)) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended meanwhile
		all = append(all, fmt.Sprintf("%d %q", pid, bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
	}
	return all
}

// journalSize returns the bytes of the journal on disk.
func journalSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if i, err := d.Info(); err == nil {
			n += i.Size()
		}
		return nil
	})
	return n
}

// connect connects to the daemon of a directory.
func connect(ctx context.Context, dir string) (*api.Client, api.About, error) {
	for version := ""; ; {
		c, err := api.Dial(ctx, api.SocketOf(dir), version)
		if err != nil {
			return nil, api.About{}, err
		}
		about, err := c.About(ctx)
		if err != nil || about.Version == version {
			return c, about, err
		}
		c.Close()
		version = about.Version // of its own version it serves all
	}
}
