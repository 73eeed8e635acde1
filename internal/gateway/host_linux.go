package gateway

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// openFiles returns how many descriptors this process may have; 0: unknown.
func openFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(l.Cur, 1<<20))
}

// memory returns the bytes of memory that this process may use: of the machine, or of
// the nearest bounded cgroup above it. 0: unknown.
func memory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	least := int64(uint64(info.Totalram) * uint64(info.Unit))
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range bytes.Lines(b) {
		_, rest, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		kind, dir, _ := strings.Cut(rest, ":")
		root, file := "/sys/fs/cgroup", "memory.max"
		switch {
		case kind == "memory":
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case kind != "":
			continue
		}
		for ; ; dir = filepath.Dir(dir) {
			if text, err := os.ReadFile(filepath.Join(root, dir, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
					least = min(least, n)
				}
			}
			if dir == "/" || dir == "." {
				break
			}
		}
	}
	return least
}
