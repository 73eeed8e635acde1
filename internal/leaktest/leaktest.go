// Package leaktest fails the tests of a package that leave something behind: a
// goroutine, a descriptor or a process.
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
//
// A process belongs to the tests in three cases: its environment has their mark,
// it descends from them, or it is an orphan that runs the test program itself. A
// test that starts a program with an environment of its own adds the mark with
// [Env].
package leaktest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines and processes may take to end by themselves.
var patience = 10 * time.Second

// Main runs the tests, looks for leaks and exits.
func Main(m interface{ Run() int }) { os.Exit(Wrap(m).Run()) }

// Wrap returns tests that look for leaks after they ran. It calls each close
// before the look, for resources that the whole package shares.
func Wrap(m interface{ Run() int }, close ...func()) interface{ Run() int } {
	return &watched{m, close}
}

type watched struct {
	tests interface{ Run() int }
	close []func()
}

// markName is the environment variable that marks the processes of a test.
const markName = "KERN_LEAKTEST"

// Env is the mark, as a line of an environment.
func Env() string { return markName + "=" + os.Getenv(markName) }

func (w *watched) Run() int {
	if err := os.Setenv(markName, fmt.Sprintf("%d.%d", os.Getpid(), time.Now().UnixNano())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	before := descriptors()
	code := w.tests.Run()
	for _, f := range w.close {
		f()
	}
	if err := left(before); err != nil {
		fmt.Fprintln(os.Stderr, "left behind by the tests:", err)
		return max(code, 1)
	}
	return code
}

// left returns the leaks that are still there after patience has run out.
func left(before map[string]string) (err error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err = errors.Join(goleak.Find(), open(before), running()); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// open names the descriptors that are new since before.
func open(before map[string]string) error {
	now := descriptors()
	maps.DeleteFunc(now, func(n, what string) bool {
		// The Go runtime makes these when the first file waits.
		return before[n] == what || what == "anon_inode:[eventpoll]" || what == "anon_inode:[eventfd]"
	})
	if len(now) == 0 {
		return nil
	}
	var list []string
	for n, what := range now {
		list = append(list, n+" "+what)
	}
	return fmt.Errorf("descriptors: %s", strings.Join(list, ", "))
}
