package program

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Conceal hides the memory and the environment of this process from programs of
// the same user, because they may hold keys. It also ends core dumps.
func Conceal() error {
	if err := HideEnvironment(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("this process cannot be hidden: %w", err)
	}
	return nil
}

// HideEnvironment overwrites the environment that this process was started with, which
// /proc shows to root and to other processes of the user. It keeps what begins with
// KERN_, apart from the key. The variables of this process stay as they are, because
// the runtime has copied them.
var HideEnvironment = sync.OnceValue(func() error {
	if err := hideEnvironment(); err != nil {
		return fmt.Errorf("the environment of this process cannot be hidden: %w", err)
	}
	return nil
})

func hideEnvironment() error {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name before may have spaces
	const start, end = 50 - 3, 51 - 3                    // proc(5) counts from 1, and the first two are gone
	if len(f) <= end {
		return fmt.Errorf("/proc/self/stat is %q", b)
	}
	var at [2]int64
	for i, n := range []int{start, end} {
		if at[i], err = strconv.ParseInt(string(f[n]), 10, 64); err != nil {
			return err
		}
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	block := make([]byte, at[1]-at[0])
	if _, err := mem.ReadAt(block, at[0]); err != nil {
		return err
	}
	for v := range bytes.SplitAfterSeq(block, []byte{0}) {
		if !bytes.HasPrefix(v, []byte("KERN_")) || bytes.HasPrefix(v, []byte("KERN_KEY=")) {
			clear(v)
		}
	}
	_, err = mem.WriteAt(block, at[0])
	return err
}

// SignalName names a signal, such as SIGTERM.
func SignalName(n int) string { return unix.SignalName(syscall.Signal(n)) }
