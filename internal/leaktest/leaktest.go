// Package leaktest fails the tests of a package that leave something behind: a
// goroutine, a descriptor or a process, whoever is its parent by then.
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
//
// A process is known by the mark in its environment, by being below the test, or
// by what it runs when it has no parent any more: the test's own program, under
// some name. A program that a test starts with an environment of its own gets the
// mark with [Env].
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

// patience is how long what ends by itself may take for it.
var patience = 10 * time.Second

// Main runs the tests and ends the program.
func Main(m interface{ Run() int }) { os.Exit(Wrap(m).Run()) }

// Wrap runs the tests, and looks after them. What the package itself has to put
// away, close does before the look.
func Wrap(m interface{ Run() int }, close ...func()) interface{ Run() int } {
	return &watched{m, close}
}

type watched struct {
	tests interface{ Run() int }
	close []func()
}

// markName is the variable that a test's processes have.
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

// left is what is still there after a while.
func left(before map[string]string) (err error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err = errors.Join(goleak.Find(), open(before), running()); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// open names the descriptors that were not there before.
func open(before map[string]string) error {
	now := descriptors()
	maps.DeleteFunc(now, func(n, what string) bool {
		// Those are the runtime's: it makes them when the first file waits.
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
