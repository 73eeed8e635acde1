package leaktest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const roleEnv = "KERN_LEAKTEST_ROLE"

type tests func()

func (f tests) Run() int {
	f()
	return 0
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		patience = 200 * time.Millisecond
		Main(tests(roles[role].leave))
	}
	Main(m)
}

// roles are tests that leave something behind, and what is said of it.
var roles = map[string]struct {
	leave func()
	said  string
}{
	"nothing":   {func() {}, ""},
	"goroutine": {func() { go func() { select {} }() }, "found unexpected goroutines"},
	"descriptor": {func() {
		if _, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0); err != nil {
			panic(err)
		}
	}, "descriptors: "},
	"child": {func() { begin("sleep", "60") }, `"sleep 60 "`},
	"orphan": {func() {
		if err := begin("sh", "-c", "setsid sleep 60 &").Wait(); err != nil {
			panic(err)
		}
	}, `"sleep 60 "`},
	"orphan without a mark": {func() {
		if err := begin("sh", "-c", "exec env -i "+roleEnv+"=rest setsid --fork /proc/"+strconv.Itoa(os.Getpid())+"/exe").Wait(); err != nil {
			panic(err)
		}
		for end := time.Now().Add(5 * time.Second); running() == nil && time.Now().Before(end); runtime.Gosched() {
		} // it is somebody else until then
	}, "/exe"},
	"not asked for": {func() {
		for c := begin("true"); ; runtime.Gosched() {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid)); err != nil || bytes.Contains(b, []byte(") Z ")) {
				return
			}
		}
	}, `processes: `},
	"rest": {func() { time.Sleep(time.Minute) }, ""},
}

func begin(argv ...string) *exec.Cmd {
	c := exec.Command(argv[0], argv[1:]...)
	if err := c.Start(); err != nil {
		panic(err)
	}
	return c
}

func TestLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes and descriptors are looked for in /proc")
	}
	for name, role := range roles {
		if name == "rest" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := exec.Command("/proc/self/exe")
			c.Env = append(os.Environ(), roleEnv+"="+name)
			said, err := c.CombinedOutput()
			for _, pid := range regexp.MustCompile(`(\d+) "[^"]`).FindAllSubmatch(said, -1) {
				n, _ := strconv.Atoi(string(pid[1]))
				_ = syscall.Kill(n, syscall.SIGKILL) // it was this test's
			}
			if (err != nil) != (role.said != "") || !strings.Contains(string(said), role.said) {
				t.Errorf("want %q, got %v and %q", role.said, err, said)
			}
		})
	}
}
