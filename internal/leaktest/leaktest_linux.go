package leaktest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// descriptors are those of this program, with what each is of.
func descriptors() map[string]string {
	all, _ := filepath.Glob("/proc/self/fd/*")
	m := make(map[string]string)
	for _, name := range all {
		if what, err := os.Readlink(name); err == nil { // else it was the one to list them
			m[filepath.Base(name)] = what
		}
	}
	return m
}

// running names the processes that the tests have left.
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
		if pid != os.Getpid() && (own || below(parents, pid) || !other && parents[pid] == 1 && runs(pid, self)) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if len(line) == 0 { // it has ended
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

// stat reads a process and its parent. One that has ended, and whose parent has
// not asked for it, is its parent's, and gone if that is not this program.
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

// runs reports whether a process runs this program, under this name or another
// of the same file. One that has a parent may be another run of the same tests.
func runs(pid int, self os.FileInfo) bool {
	i, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && os.SameFile(i, self)
}
