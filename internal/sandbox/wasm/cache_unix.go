//go:build unix

package wasm

import (
	"fmt"
	"os"
	"syscall"
)

// shared says why other users may write to a directory; "" if they may not.
func shared(dir string) string {
	st, err := os.Stat(dir)
	if err != nil {
		return err.Error()
	}
	if st.Mode().Perm()&0o022 != 0 {
		return fmt.Sprintf("its mode is %v", st.Mode().Perm())
	}
	if s, is := st.Sys().(*syscall.Stat_t); is && int(s.Uid) != os.Geteuid() {
		return fmt.Sprintf("it belongs to user %d", s.Uid)
	}
	return ""
}
