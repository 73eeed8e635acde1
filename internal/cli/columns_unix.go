//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// columnsOf is the width of a terminal; 0 if the terminal does not know it.
func columnsOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
