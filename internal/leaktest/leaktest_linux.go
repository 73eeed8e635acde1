package leaktest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// descriptors maps each descriptor of this program to the file behind it.
func descriptors() map[string]string {
	all, _ := filepath.Glob("/proc/self/fd/*")
	m := make(map[string]string)
	for _, name := range all {
		if what, err := os.Readlink(name); err == nil { // the descriptor of the listing itself is gone
			m[filepath.Base(name)] = what
		}
	}
	return m
}

// running names the processes that the tests have left. A process within execve
// is listed too, because it has no mark to read yet; the next look decides.
func running() error {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	parents := make(map[int]int)
	for _, dir := range dirs {
		if pid, parent, ok := stat(dir); ok {
			parents[pid] = parent
		}
	}
	var list []string
	for pid := range parents {
		own, other := marked(pid)
		if pid != os.Getpid() && (own || below(parents, pid) || !other && parents[pid] == 1 && runs(pid, self) || isStarting(pid)) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if len(line) == 0 { // a zombie
				line, _ = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			}
			list = append(list, fmt.Sprintf("%d %q", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("processes: %s", strings.Join(list, ", "))
}

// stat reads a process and its parent. A zombie counts only if this program is
// its parent, because no other parent is a matter of the tests.
func stat(dir string) (pid, parent int, ok bool) {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, 0, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // behind the name: state, parent
	pid, _ = strconv.Atoi(filepath.Base(dir))
	parent, _ = strconv.Atoi(f[1])
	return pid, parent, f[0] != "Z" || parent == os.Getpid()
}

func below(parents map[int]int, pid int) bool {
	for p, deep := parents[pid], 0; p > 1 && deep < 100; p, deep = parents[p], deep+1 {
		if p == os.Getpid() {
			return true
		}
	}
	return false
}

// marked reports whether a process has the mark of this run, or of another.
func marked(pid int) (own, other bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false, false
	}
	own = bytes.Contains(b, []byte(Env()))
	return own, !own && bytes.Contains(b, []byte(markName+"="))
}

// isStarting reports whether a process is within execve: it has a program, but
// neither arguments nor an environment yet.
func isStarting(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(args) > 0 {
		return false
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || len(env) > 0 {
		return false
	}
	_, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // a thread of the system has none
	return err == nil
}

// runs reports whether a process runs this program, by whatever name.
func runs(pid int, self os.FileInfo) bool {
	i, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && os.SameFile(i, self)
}
